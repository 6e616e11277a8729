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
        description="The OCI runtime. `auto`: the first of crun and runc that works on the host. "
        "`kata`, a containerd shim, puts each container into a virtual machine.",
    )
    seccomp: SeccompName = Field(
        default="none",
        description="The system calls to refuse: `none`, as the runtimes do by default, or those "
        "in Docker's profile (`docker`). With a profile, the kernel checks every call.",
    )

    rootless: bool = Field(
        default=False,
        description="Run as an ordinary user who is root only in a separate user namespace. There "
        "are no control groups, network, disk or toolbox, and usually no real-time priority.",
    )

    kata_config: str | None = Field(
        default=None,
        description="The configuration of Kata's machines, such as "
        "`/opt/kata/share/defaults/kata-containers/configuration-clh.toml`; it chooses the "
        "hypervisor. Tare changes only vCPUs and memory in it. Default: the one that Kata uses.",
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
