"""Options of existing machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from tare.hosts.ssh.finding import options_for
from tare.hosts.ssh.options import SshOptions
from tare.platforms.existing_network import ASK, GivenOptions
from tare.study.model.forms import absolute_path, host_alone
from tare.study.model.platform_options import fault_of
from tare.study.reading.hosting import Login
from tare.units import Duration

ANY = "ADDRESS"
"""The placeholder for the machine's address, in the docs and for the doctor."""


class SshArmOptions(GivenOptions, Login):
    """Options of the platform ``ssh``."""

    ssh: Annotated[str, AfterValidator(host_alone)] = Field(
        min_length=1,
        max_length=255,
        description="Name or address of the machine, which must exist.",
    )
    patience: Duration = Field(
        30.0,
        gt=0,
        description="How long to retry a broken connection; the cell continues meanwhile.",
    )
    folder: Annotated[str, AfterValidator(absolute_path)] = Field(
        "/tmp",
        description="The folder for the agent in the machine, from which programs must be "
        "executable. The agent is removed after each batch.",
    )
    reboot: bool = Field(
        False,
        description="Reboot the machine before each batch, so that boots vary as on other "
        "platforms. Needs root there, or `sudo`.",
    )
    reboot_patience: Duration = Field(
        300.0, gt=0, description="With `reboot`: time limit for the machine to come back."
    )

    instead: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("host", "address", "hostname"), "write `ssh`"),
        "password": "it has no place in a study: write `password-env` or `password-file`",
        "identity": "write `key`",
        **dict.fromkeys(("proxy-jump", "jump-host", "proxy", "gateway", "bastion"), "write `jump`"),
        "config": "write `ssh-config`",
        "on-host": "write `on`",
        "network": f"write {ASK} to measure over the network that SSH reaches it by",
    }

    def faults(self, look: bool) -> Iterable[tuple[str, str]]:
        """Report files and passwords that are missing."""
        if not look:
            return ()
        found: list[tuple[str, str]] = []
        if self.key is not None and not Path(self.key).expanduser().is_file():
            found.append(("key", f"there is no key file {self.key}"))
        if faults := fault_of("ssh_config", lambda: self.way):
            return found + faults
        option = "password_env" if self.password_env is not None else "password_file"
        return found + fault_of(option, self.way.password)

    @property
    def way(self) -> SshOptions:
        """How to reach the machine."""
        return options_for(self.ssh, self, self.patience)
