"""What a host lacks to connect a machine's network card as it is asked for."""

from __future__ import annotations

import pytest

from images.images_fakes import FakeHost
from tare.hosts import Completed
from tare.platforms.qemu.nic import lacking_way
from tare.platforms.qemu.options import QemuOptions


def options(network: str) -> QemuOptions:
    return QemuOptions.model_validate({"network": network})


@pytest.mark.parametrize(
    ("functions", "why", "hint"),
    [
        (b"", "no network card of the host offers virtual functions", "use `network: tap`"),
        (b"8\n", "Tare gives no virtual functions to machines yet", ""),
    ],
)
async def test_virtual_functions_are_looked_for_and_the_arm_is_skipped_with_the_reason(
    functions: bytes, why: str, hint: str
) -> None:
    host = FakeHost(lambda argv: Completed(0 if functions else 1, functions, b""))
    assert await lacking_way(host, options("sriov")) == (f"`network: sriov`: {why}", hint)
    assert "sriov_totalvfs" in " ".join(host.asked[0])


async def test_a_host_that_makes_no_macvtap_says_why_and_a_tap_needs_no_look() -> None:
    host = FakeHost(lambda argv: Completed(2, b"", b"Error: Unknown device type."))
    lacks = await lacking_way(host, options("macvtap"))
    assert lacks is not None
    assert "Unknown device type" in lacks[0]
    assert lacks[1] == "modprobe macvtap"
    host.asked.clear()
    assert await lacking_way(host, options("tap")) is None
    assert host.asked == []
