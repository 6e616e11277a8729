"""Removal that is refused for a while: tried again only for what passes, and not for ever."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import MachineFault
from tare.hosts.ledger import resources
from tare.platforms.contract import remove_resource
from tare.platforms.vendors.resource import ServerResource
from tare.platforms.vendors.session import RequestRefused


class Refusing(ServerResource[Any]):
    """A VM whose removal is refused with these words first."""

    kind = "vm"
    busy = ("is locked", "is running")
    removal_s = 60.0

    def __init__(self, refusals: list[str]) -> None:
        super().__init__(cast(Any, None), {"name": "tare-7"})
        self.refusals = refusals
        self.tried = 0

    async def exists(self) -> bool:
        return self.tried <= len(self.refusals)

    async def remove(self) -> None:
        self.tried += 1
        if self.tried <= len(self.refusals):
            raise RequestRefused(self.refusals[self.tried - 1])


async def remove(vm: Refusing) -> str:
    """Remove a VM; return how that ended."""
    try:
        return "removed" if await remove_resource(vm) else "not there"
    except MachineFault as fault:
        return fault.message


@given(st.lists(st.sampled_from(["VM 7 is locked", "VM 7 is running", "no right"]), max_size=6))
async def test_passing_refusals_are_retried_and_others_raised_at_once(refusals: list[str]) -> None:
    vm = Refusing(refusals)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resources, "_LOOK_S", 0.0)
        end = await remove(vm)
    final = refusals.index("no right") if "no right" in refusals else len(refusals)
    assert vm.tried == final + 1
    assert end == ("no right" if "no right" in refusals else "removed")


async def test_the_refusal_is_raised_when_the_time_is_over() -> None:
    vm = Refusing(["VM 7 is locked"] * 3)
    vm.removal_s = -1.0  # type: ignore[misc]
    assert (await remove(vm), vm.tried) == ("VM 7 is locked", 1)
