"""Missing parts of a host to connect a machine's network card as requested."""

from __future__ import annotations

from images.images_fakes import FakeHost
from tare.hosts import Completed
from tare.platforms.qemu.nic import lacking_way
from tare.platforms.qemu.options import QemuOptions


def options(network: str) -> QemuOptions:
    return QemuOptions.model_validate({"network": network})


async def test_a_host_that_makes_no_macvtap_says_why_and_a_tap_needs_no_look() -> None:
    host = FakeHost(lambda argv: Completed(2, b"", b"Error: Unknown device type."))
    lacks = await lacking_way(host, options("macvtap"))
    assert lacks is not None
    assert "Unknown device type" in lacks[0]
    assert lacks[1] == "modprobe macvtap"
    host.asked.clear()
    assert await lacking_way(host, options("tap")) is None
    assert host.asked == []
