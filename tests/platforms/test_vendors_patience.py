"""Removal that is refused for a while: tried again only for what passes, and not for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import MachineFault
from tare.platforms.vendors import patience
from tare.platforms.vendors.session import Refused

PASSING = ("is locked", "is running")


async def after(refusals: list[str], patience_s: float) -> tuple[str, int]:
    """Remove what is refused with these words first; returns the end and how often it was tried."""
    tried = 0

    async def remove() -> str:
        nonlocal tried
        tried += 1
        if tried <= len(refusals):
            raise Refused(refusals[tried - 1])
        return "removed"

    try:
        return await patience.patiently(remove, PASSING, patience_s), tried
    except MachineFault as fault:
        return fault.message, tried


@given(st.lists(st.sampled_from(["VM 7 is locked", "VM 7 is running", "no right"]), max_size=6))
async def test_what_passes_is_waited_for_and_all_else_is_told_at_once(refusals: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(patience, "AGAIN_S", 0.0)
        end, tried = await after(refusals, 60.0)
    final = refusals.index("no right") if "no right" in refusals else len(refusals)
    assert tried == final + 1
    assert end == ("no right" if "no right" in refusals else "removed")


async def test_after_its_patience_the_refusal_is_told() -> None:
    assert await after(["VM 7 is locked"] * 3, -1.0) == ("VM 7 is locked", 1)
