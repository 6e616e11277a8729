"""Options of containers."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from tare.platforms.linux.scheduling import LinuxOptions
from tare.platforms.linux.switch_options import SwitchedOptions
from tare.platforms.oci.seccomp import SeccompName


class OciOptions(SwitchedOptions, LinuxOptions):
    """How containers are run."""

    runtime: Literal["auto", "crun", "runc", "runsc", "kata"] = Field(
        default="auto",
        description="The OCI runtime; auto takes the first of crun and runc that works here; "
        "kata, a shim of containerd's, puts each container into a virtual machine.",
    )
    seccomp: SeccompName = Field(
        default="none",
        description="Which system calls are refused: none, as the runtimes themselves do, or "
        "those that Docker's profile refuses. The kernel then looks at every call.",
    )

    rootless: bool = Field(
        default=False,
        description="Run by an ordinary user, who is root only in a user namespace of its own: no "
        "control groups, no network, no disk, no toolbox, and mostly no real-time priority.",
    )

    kata_config: str | None = Field(
        default=None,
        description="The configuration that Kata's machines start from, such as "
        "`/opt/kata/share/defaults/kata-containers/configuration-clh.toml`, which chooses the "
        "hypervisor; none: the one that Kata itself uses. Only its vCPUs and memory are changed.",
    )

    @model_validator(mode="after")
    def _filtered_where_it_counts(self) -> Self:
        if self.runtime == "runsc" and self.seccomp != "none":
            raise ValueError("gVisor filters all calls by itself: leave seccomp out")
        if self.runtime == "runsc" and self.rootless:
            raise ValueError("gVisor is run as root here: leave rootless out, or name runc")
        if self.runtime == "kata" and (self.seccomp != "none" or self.rootless):
            raise ValueError("Kata's containers have root and no filter: leave both options out")
        if self.runtime != "kata" and self.kata_config is not None:
            raise ValueError("only `runtime: kata` has a configuration of Kata's")
        return self
