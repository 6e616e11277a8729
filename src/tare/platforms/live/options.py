"""Options of a bare machine that boots from the live image."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from tare.platforms.existing_network import GivenOptions
from tare.platforms.live.medium import read_medium
from tare.platforms.vendors.options import parse_callback_address
from tare.study.model.platform_options import fault_of
from tare.units import Duration

ANY = "MEDIUM"
"""The placeholder for a medium's image, in the docs and for the doctor."""


def _is_place(text: str) -> str:
    parse_callback_address(text)
    return text


class LiveOptions(GivenOptions):
    """Options of the platform ``bare-live``."""

    medium: str = Field(
        min_length=1,
        description="The medium's image, as `tare image medium` made it; the machine has a copy on "
        "a USB stick or CD. It holds the address to dial and the key.",
    )
    listen: Annotated[str, AfterValidator(_is_place)] | None = Field(
        default=None,
        description="`ADDRESS:PORT` of this computer to listen on, if the machine reaches this "
        "computer by another address, for example through NAT. Default: the medium's.",
    )
    patience: Duration = Field(
        default=900.0,
        gt=0,
        le=86400,
        description="Time limit for the machine to boot and dial back.",
    )
    virtual: bool = Field(
        default=False,
        description="Accept a virtual machine as the bare one, to try things out; its results are "
        "marked emulated. Otherwise Tare refuses a machine on which it detects a hypervisor.",
    )

    def faults(self, look: bool) -> Iterable[tuple[str, str]]:
        """Report the reason if the medium's image cannot be used."""
        if not look or self.medium == ANY:
            return ()
        return fault_of("medium", lambda: read_medium(Path(self.medium)))
