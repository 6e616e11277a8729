"""The options that all platforms with a vendor's API share."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from tare.platforms.existing_network import ASK, GivenOptions
from tare.platforms.vendors.credentials import credentials
from tare.platforms.vendors.tls import verifying
from tare.study.model.forms import Form, host_alone
from tare.study.model.platform_options import GIVEN, fault_of

ANY = "ADDRESS"
"""The placeholder for an address, in the docs and for the doctor."""

_ADDRESS = Form(r"^[A-Za-z0-9.:_-]+$", "only a name or an address, such as `pve.example`")


@dataclass(frozen=True)
class CallbackAddress:
    """An address of this computer that guests can reach, and a port; 0: any free one."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is a loopback or unspecified address, which reaches the computer itself."""
        address = ipaddress.IPv4Address(self.address)
        return address.is_loopback or address.is_unspecified


def parse_callback_address(text: str) -> CallbackAddress:
    """Parse ``ADDRESS:PORT``.

    Raises:
        ValueError: It has another form.
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
    return CallbackAddress(address, number)


def check_address(text: str) -> str:
    """Return a server's name or address; raises ValueError if the text contains more."""
    if "@" in text and "/" not in text:
        raise ValueError(
            f"must be only a name or an address: write `{text.rpartition('@')[2]}`; the user "
            "comes from the environment or from the file of `credentials`"
        )
    return host_alone(text)


def _check_callback(text: str) -> str:
    parse_callback_address(text)
    return text


class VendorOptions(GivenOptions):
    """Options of a platform with a vendor's API."""

    instead: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("host", "server", "url", "endpoint", "hostname"), "write `address`"),
        **dict.fromkeys(
            ("user", "username", "password", "token", "secret"),
            "it has no place in a study: set the environment's variables, or name a file of mode "
            "600 by `credentials` (`tare help my-hypervisor`)",
        ),
        **dict.fromkeys(
            ("insecure", "verify", "verify-ssl", "verify-certs", "tls"),
            "certificates are always verified: name the CA's, or the server's own, by `ca`",
        ),
        "template": "VMs are created from scratch: name what they boot by `image`",
        **dict.fromkeys(("iso", "boot"), "write `image`"),
        "network": f"write {ASK} to measure over the network that agents dial back over",
        **dict.fromkeys(
            ("cpus", "vcpus", "cores", "memory", "disk"), "write it within `shape: {…}`"
        ),
    }

    network_way: Literal["isolated", "given"] | None = Field(  # type: ignore[assignment]  # wider
        default=None,
        description="The network of workloads that need one (`tare help network`). `isolated`, the "
        "default where the platform offers it: Tare creates an isolated network at the hypervisor, "
        "with the other ends as machines on it, and removes it. `given`: the network over which "
        "agents dial back; Tare creates and isolates nothing there.",
    )
    address: Annotated[str, AfterValidator(check_address), _ADDRESS] = Field(
        min_length=1,
        max_length=255,
        description="Name or address of the API server, as in its certificate.",
    )
    port: int | None = Field(
        default=None, ge=1, le=65535, description="Its TCP port. Default: the product's."
    )
    credentials: str | None = Field(
        default=None,
        min_length=1,
        description="A file readable only by its owner (mode 600) with the lines `user=…` and "
        "`password=…`. Default: the environment.",
    )
    ca: str | None = Field(
        default=None,
        min_length=1,
        description="A file of PEM certificates to trust instead of the system's: a private CA's, "
        "or the server's own. Certificates are always verified.",
    )
    callback: Annotated[str, AfterValidator(_check_callback)] = Field(
        default="127.0.0.1:0",
        description="`ADDRESS:PORT` of this computer that guests can reach. Their agents dial back "
        "to it over TLS, with a separate key.",
    )
    power_off: float = Field(
        default=10.0,
        gt=0,
        le=600,
        description="Time limit, in seconds, for a guest to power itself off.",
    )

    @property
    def callback_address(self) -> CallbackAddress:
        """The address that agents dial back to."""
        return parse_callback_address(self.callback)

    def connection(self) -> dict[str, Any]:
        """Return how to reach the server, without secrets, for sessions and for the ledger.

        Paths are absolute, because ``tare clean`` may run in any folder.
        """
        return {
            "address": self.address,
            "port": self.port,
            "credentials": absolute(self.credentials),
            "ca": absolute(self.ca),
        }

    @property
    def is_here(self) -> bool:
        """Whether agents can reach this computer at its loopback addresses."""
        return _is_loopback(self.address)

    def read_credentials(self) -> object:
        """Read the file of `credentials`; raises InputError if it cannot be used."""
        return credentials("", self.credentials)

    def faults(self, look: bool) -> Iterable[tuple[str, str]]:
        """Report an unreachable `callback`, and files that cannot be used."""
        found: list[tuple[str, str]] = []
        if self.callback_address.is_loopback and not self.is_here:
            of = f" of {self.address}" if self.address else ""
            why = f"guests{of} reach themselves by {self.callback_address.address}: write"
            problem = why if "callback" in self.model_fields_set else "is missing; add"
            found.append(
                (
                    "callback",
                    f"{problem} an address of this computer that guests can reach, and a port, "
                    "such as 192.0.2.7:4460",
                )
            )
        if look and self.credentials is not None:
            found += fault_of("credentials", self.read_credentials)
        if look and self.ca is not None:
            found += fault_of("ca", lambda: verifying(self.ca))
        return found


def network_faults(network: str | None) -> tuple[tuple[str, str], ...]:
    """Report a `network` that names a way of networking, as :meth:`PlatformOptions.faults` does.

    Args:
        network: The vendor's network that an arm names.
    """
    if network != GIVEN:
        return ()
    why = f"names the network that machines are attached to; to measure over it, write {ASK}"
    return (("network", why),)


def image_faults(image: str | None, like: str) -> tuple[tuple[str, str], ...]:
    """Report an arm without an image to boot, as :meth:`PlatformOptions.faults` does.

    Args:
        image: The image that it names.
        like: An example.
    """
    if image is not None:
        return ()
    return (
        ("image", f"is missing; add what VMs boot, such as {like} (`tare help my-hypervisor`)"),
    )


def absolute(path: str | None) -> str | None:
    """Return a file's absolute path."""
    return None if path is None else str(Path(path).expanduser().absolute())


def _is_loopback(address: str) -> bool:
    """Check whether an address is a loopback address, or the placeholder."""
    return address in (ANY, "localhost", "::1") or address.startswith("127.")
