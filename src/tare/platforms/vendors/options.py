"""What is said alike of every hypervisor that is reached by its maker's API."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from tare.platforms.existing_network import ASK, GivenOptions
from tare.platforms.vendors.credentials import credentials
from tare.platforms.vendors.tls import verifying
from tare.study.forms import Form, host_alone
from tare.study.platform_options import GIVEN, fault_of

ANY = "ADDRESS"
"""What stands for the address where none is meant: in the docs and for the doctor."""

_ADDRESS = Form(r"^[A-Za-z0-9.:_-]+$", "a name or an address alone, such as `pve.example`")


@dataclass(frozen=True)
class Place:
    """An address of this computer's that guests can reach, and a port; 0: any free one."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def loops(self) -> bool:
        """Whether every computer means itself by it."""
        address = ipaddress.IPv4Address(self.address)
        return address.is_loopback or address.is_unspecified


def place_of(text: str) -> Place:
    """Return the place that ``ADDRESS:PORT`` means.

    Raises:
        ValueError: It is none.
    """
    address, colon, port = text.rpartition(":")
    try:
        ipaddress.IPv4Address(address)
        number = int(port)
    except ValueError:
        number = -1
    if not colon or not 0 <= number <= 65535:
        raise ValueError(
            "must be an IPv4 address of this computer that guests can reach, and a port, "
            "such as 192.0.2.7:4460"
        )
    return Place(address, number)


def is_address(text: str) -> str:
    """Return the name or address of a server alone; raises ValueError where more is said."""
    if "@" in text and "/" not in text:
        raise ValueError(
            f"must be a name or an address alone: write `{text.rpartition('@')[2]}`; who logs in "
            "stands in the environment or in the file of `credentials`"
        )
    return host_alone(text)


def _is_place(text: str) -> str:
    place_of(text)
    return text


class VendorOptions(GivenOptions):
    """What every such platform's options begin with."""

    instead: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("host", "server", "url", "endpoint", "hostname"), "write `address`"),
        **dict.fromkeys(
            ("user", "username", "password", "token", "secret"),
            "it has no place in a study: set the environment's variables, or name a file of mode "
            "600 by `credentials` (docs/owning.md)",
        ),
        **dict.fromkeys(
            ("insecure", "verify", "verify-ssl", "verify-certs", "tls"),
            "certificates are always verified: name the CA's, or the server's own, by `ca`",
        ),
        "template": "VMs are made anew: name what they boot by `image`",
        **dict.fromkeys(("iso", "boot"), "write `image`"),
        "network": f"write {ASK} to measure over the network that agents dial back over",
        **dict.fromkeys(
            ("cpus", "vcpus", "cores", "memory", "disk"), "write it within `shape: {…}`"
        ),
    }

    address: Annotated[str, AfterValidator(is_address), _ADDRESS] = Field(
        min_length=1,
        max_length=255,
        description="Name or address of the server whose API is used, as its certificate has it.",
    )
    port: int | None = Field(
        default=None, ge=1, le=65535, description="Its TCP port; by default the product's own."
    )
    credentials: str | None = Field(
        default=None,
        min_length=1,
        description="A file for its owner's eyes only (mode 600) with the lines `user=…` and "
        "`password=…`; without it they are taken from the environment.",
    )
    ca: str | None = Field(
        default=None,
        min_length=1,
        description="A file of PEM certificates to trust instead of the system's: a private CA's, "
        "or the server's own. Certificates are always verified.",
    )
    callback: Annotated[str, AfterValidator(_is_place)] = Field(
        default="127.0.0.1:0",
        description="`ADDRESS:PORT` of this computer that guests can reach: their agents dial "
        "back there, over TLS, with a key of their own.",
    )
    power_off: float = Field(
        default=10.0, gt=0, le=600, description="Seconds that a guest may take to power itself off."
    )

    @property
    def place(self) -> Place:
        """Where agents dial back to."""
        return place_of(self.callback)

    def way(self) -> dict[str, Any]:
        """Return how the server is reached again, without secrets: for the ledger.

        Files are named by their whole paths: what was left is removed from any folder.
        """
        return {
            "address": self.address,
            "port": self.port,
            "credentials": whole(self.credentials),
            "ca": whole(self.ca),
        }

    @property
    def loops(self) -> bool:
        """Whether who dials back means this computer by its loopback addresses."""
        return _loops(self.address)

    def known(self) -> object:
        """Read the file of `credentials`; raises InputError where it cannot be used."""
        return credentials("", self.credentials)

    def faults(self, look: bool) -> Iterable[tuple[str, str]]:
        """Return that guests cannot reach this computer, or which file cannot be used."""
        found: list[tuple[str, str]] = []
        if self.place.loops and not self.loops:
            of = f" of {self.address}" if self.address else ""
            why = f"guests{of} reach {self.place.address} in themselves: write"
            said = why if "callback" in self.model_fields_set else "is missing; add"
            found.append(
                (
                    "callback",
                    f"{said} an address of this computer that guests can reach, and a port, such "
                    "as 192.0.2.7:4460",
                )
            )
        if look and self.credentials is not None:
            found += fault_of("credentials", self.known)
        if look and self.ca is not None:
            found += fault_of("ca", lambda: verifying(self.ca))
        return found


def named_given(network: str | None) -> tuple[tuple[str, str], ...]:
    """Return, as :meth:`PlatformOptions.faults` does, that a way stands where a name belongs.

    Args:
        network: The network of the maker's that an arm names.
    """
    if network != GIVEN:
        return ()
    why = f"names the network that machines are attached to; to measure over it, write {ASK}"
    return (("network", why),)


def unnamed(image: str | None, like: str) -> tuple[tuple[str, str], ...]:
    """Return, as :meth:`PlatformOptions.faults` does, that an arm names nothing that boots.

    Args:
        image: What it names.
        like: An example.
    """
    if image is not None:
        return ()
    return (("image", f"is missing; add what VMs boot, such as {like} (docs/owning.md)"),)


def whole(path: str | None) -> str | None:
    """Return a file's whole path."""
    return None if path is None else str(Path(path).expanduser().absolute())


def _loops(address: str) -> bool:
    """Whether an address is a computer's own, or stands for none."""
    return address in (ANY, "localhost", "::1") or address.startswith("127.")
