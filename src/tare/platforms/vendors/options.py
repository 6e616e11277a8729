"""What is said alike of every hypervisor that is reached by its maker's API."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from tare.study.platform_options import PlatformOptions

ANY = "ADDRESS"
"""What stands for the address where none is meant: in the docs and for the doctor."""


@dataclass(frozen=True)
class Place:
    """An address of this computer's that guests can reach, and a port; 0: any free one."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


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


def _is_place(text: str) -> str:
    place_of(text)
    return text


class VendorOptions(PlatformOptions):
    """What every such platform's options begin with."""

    address: str = Field(
        min_length=1,
        max_length=255,
        pattern=r"^[A-Za-z0-9.:_-]+$",
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
        """Return how the server is reached again, without secrets: for the ledger."""
        return {
            "address": self.address,
            "port": self.port,
            "credentials": self.credentials,
            "ca": self.ca,
        }
