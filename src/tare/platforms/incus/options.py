"""Options of an instance of Incus or LXD."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tare.errors import InputError
from tare.platforms.scheduled_options import ScheduledOptions, refused, subject_scheduling
from tare.platforms.scheduling import Scheduling
from tare.platforms.vendors.options import (
    VendorOptions,
    absolute,
    check_address,
    image_faults,
    network_faults,
)
from tare.platforms.vendors.tls import verifying
from tare.study.model.forms import NAME, WORD, Form

KNOBS = frozenset({"weight", "cap"})
UNKNOWN = ("policy", "nice", "reservation", "slice")
ON_THE_HOST = "auto"
"""The value that stands for the default socket of a server on its host."""
OWN_KEYS = frozenset(
    {
        *("limits.cpu", "limits.cpu.allowance", "limits.memory", "limits.memory.swap"),
        *(
            "limits.memory.hugepages",
            "security.privileged",
            "security.secureboot",
            "boot.autostart",
        ),
    }
)
"""Configuration keys of instances that other options set."""
Name = Annotated[str, NAME]
_SOCKET = Form(r"^(auto|/\S*)$", "a whole path on the host, such as `/var/lib/lxd/unix.socket`")
_ADDRESS = Form(r"^[A-Za-z0-9.:_-]*$", "only a name or an address, such as `incus.example`")
_KEY = Form(
    r"^(raw|security|limits|boot|linux|migration|nvidia|agent)\.[a-z][a-z0-9._-]*$",
    "a configuration key of an instance, such as `raw.qemu`",
)


def _is_none_or_address(text: str) -> str:
    return check_address(text) if text else ""


class IncusOptions(VendorOptions, ScheduledOptions):
    """Options of the platform ``incus``."""

    instead: ClassVar[Mapping[str, str]] = {
        **VendorOptions.instead,
        "project": "machines are in projects of their own: name where VMs boot from by `image`",
        **dict.fromkeys(("remote", "endpoint"), "write `address` or `socket`"),
        **dict.fromkeys(("bridge", "nic"), "write `network`"),
        **dict.fromkeys(("storage", "datastore"), "write `pool`"),
        **dict.fromkeys(("config", "raw"), "write `extra-config: {KEY: VALUE}`"),
        "kvm": "write `accelerator`",
    }

    type: Literal["vm", "container"] = Field(
        default="vm",
        description="`vm`: a virtual machine that boots the live image. `container`: a system "
        "container on the host's kernel that contains only the agent.",
    )
    socket: Annotated[str, _SOCKET] = Field(
        default=ON_THE_HOST,
        min_length=1,
        max_length=255,
        description="The server's Unix socket, on the host that the arm runs on. `auto`: the first "
        "that exists of `/var/lib/incus/unix.socket`, `/var/lib/lxd/unix.socket` and "
        "`/var/snap/lxd/common/lxd/unix.socket`.",
    )
    address: Annotated[str, AfterValidator(_is_none_or_address), _ADDRESS] = Field(
        default="",
        max_length=255,
        description="Instead of the socket: name or address of a server with an HTTPS API, as in "
        "its certificate.",
    )
    credentials: str | None = Field(
        default=None,
        min_length=1,
        description="With `address`: a PEM file readable only by its owner (mode 600), with a "
        "certificate that the server trusts, and its key.",
    )
    image: Annotated[str, WORD] | None = Field(
        default=None,
        min_length=1,
        description="The image that VMs boot: alias or fingerprint of a VM image in the server's "
        "project `default`, made from the live image. Containers need none.",
    )
    pool: Name | None = Field(default=None, description="The storage pool. Default: the only one.")
    network: Name | None = Field(
        default=None,
        description="The network that VMs' agents dial back over: a managed network of the server, "
        "or a bridge of its host. Default: the only managed one. Containers need none, because the "
        "server's proxy forwards their agents' connections.",
    )
    accelerator: Literal["kvm", "tcg"] = Field(
        default="kvm",
        description="For VMs: `kvm`, the server's default, or `tcg`, which emulates the processor "
        "(through `raw.qemu`) and shows behaviour, not the speed of hardware.",
    )
    secure_boot: bool = Field(
        default=True, description="Let a VM's firmware verify signatures; the image has them."
    )
    hugepages: bool = Field(
        default=False,
        description="Back a VM's memory with reserved huge pages of the host.",
    )
    privileged: bool = Field(
        default=False,
        description="Make root in the container root on the host; without it, nothing inside may "
        "have real-time priority.",
    )
    extra_config: dict[Annotated[str, _KEY], str] = Field(
        default_factory=dict,
        max_length=32,
        description="Additional configuration keys of the instance, such as `raw.qemu`. Tare does "
        "not interpret them, and the report lists them.",
    )
    scheduling: Scheduling = subject_scheduling(
        "How the server schedules a subject that is a container: either a weight among the "
        "server's containers (others have 100) or a cap, both set by `limits.cpu.allowance`; see "
        "`scheduling` below."
    )

    @classmethod
    def within(cls, wanted: Scheduling) -> Scheduling:
        """Refuse settings that the server does not support, alone or together."""
        if wanted.weight is not None and wanted.cap is not None:
            raise ValueError(
                "`limits.cpu.allowance` of Incus and LXD is either a weight or a cap: remove one"
            )
        return refused(wanted, UNKNOWN, "Incus and LXD")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        vm = self.type == "vm"
        only_vm = {
            "image": self.image is not None,
            "network": self.network is not None,
            "network-way": self.network_way is not None,
            "accelerator": self.accelerator == "tcg",
            "hugepages": self.hugepages,
        }
        for name, given in only_vm.items():
            if given and not vm:
                raise ValueError(f"`{name}` is of VMs; containers (`type: container`) have none")
        if vm and self.privileged:
            raise ValueError("`privileged` is of containers (`type: container`)")
        if vm and (self.scheduling.given or self.neighbour_scheduling.given):
            raise ValueError("Incus and LXD weigh and cap containers only; remove `scheduling`")
        if self.address and self.socket != ON_THE_HOST:
            raise ValueError("a server has either an `address` or a `socket`: remove one")
        with_address = {"credentials": self.credentials, "ca": self.ca, "port": self.port}
        for name, value in with_address.items():
            if value is not None and not self.address:
                raise ValueError(f"`{name}` goes with an `address`; a socket needs none")
        if twice := sorted(OWN_KEYS & set(self.extra_config)):
            raise ValueError(f"{twice[0]} is set by Tare: it cannot be in `extra-config`")
        return self

    @property
    def is_container(self) -> bool:
        """Whether machines are containers."""
        return self.type == "container"

    @property
    def is_here(self) -> bool:
        """Whether a machine that dials back reaches this computer by its loopback addresses.

        The server's proxy forwards a container's connection; a VM connects directly.
        """
        return self.is_container and (not self.address or super().is_here)

    def read_credentials(self) -> object:
        """Load the client's certificate, if there is one; raises InputError if it is unusable."""
        return None if self.credentials is None else client_certificate(self.credentials)

    def connection(self) -> dict[str, Any]:
        """Return the way to reach the server again, without secrets, for the ledger."""
        return {**super().connection(), "socket": self.socket}

    def faults(self, look: bool) -> Iterable[tuple[str, str]]:
        """Return the required options that are missing, and those that cannot be used."""
        found = [*super().faults(look), *network_faults(self.network)]
        if not self.is_container:
            found += image_faults(self.image, "`image: tare-live`")
        if self.address and self.credentials is None:
            found.append(
                (
                    "credentials",
                    "is missing; add a file (mode 600, PEM) with the certificate that the server "
                    "trusts, and its key (`tare help incus`)",
                )
            )
        return found

    @property
    def wanted_devices(self) -> str:
        """The requested device models."""
        return "" if self.is_container else "paravirtual"


def client_certificate(file: str, ca: str | None = None) -> ssl.SSLContext:
    """Return a TLS context with the client's certificate, which verifies the server's.

    Args:
        file: A PEM file with the client's certificate and key, readable only by its owner.
        ca: A file of PEM certificates to trust instead of the system's; None: the system's.

    Raises:
        InputError: The file cannot be read, is readable by others, or lacks certificate or key.
    """
    path = Path(absolute(file) or "")
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InputError(
            f"the client's certificate {path} cannot be read: {error.strerror}",
            "write the certificate and its key there, in PEM form, for your eyes only (mode 600)",
        ) from None
    if mode & 0o077:
        raise InputError(f"others may read the key in {path}", f"run: chmod 600 {path}")
    context = verifying(ca)
    try:
        # Without this, OpenSSL would ask at the terminal for the password of a key that has one.
        context.load_cert_chain(path, password=lambda: "")
    except (OSError, ValueError) as error:
        reason = error.strerror if not isinstance(error, ssl.SSLError | ValueError) else ""
        raise InputError(
            f"{path} is not a client's certificate: "
            f"{reason or 'it holds no certificate with its key'}",
            "write the certificate and its key there, both in PEM form, the key without a password",
        ) from None
    return context
