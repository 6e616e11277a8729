"""Libvirt's domains pass the cases that every platform passes: its real driver, real guests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import pytest_asyncio

from platforms.libvirt_embedded import embedded
from tare.platforms.contract import Context
from tare.platforms.libvirt.options import LibvirtOptions
from tare.platforms.libvirt.platform import Libvirt
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.testing.conformance import PlatformCases
from tare.testing.hosts import SecondHost, second_host

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(os.geteuid() != 0, reason="libvirt's system driver needs root"),
]


class Domains(PlatformCases):
    chosen: ClassVar[dict[str, object]] = {}
    killed_words = "its QEMU was killed"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def driver(cls) -> Iterator[None]:
        with embedded() as uri:
            cls.options = LibvirtOptions.model_validate({"uri": uri, **cls.chosen})
            yield

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def elsewhere(cls, context: Context) -> AsyncIterator[SecondHost | None]:
        """A second host with QEMU itself: libvirt's driver here knows the first one alone."""
        with tempfile.TemporaryDirectory(prefix="tare-test-") as folder:
            async with second_host(context, Path(folder) / "ledger") as made:
                own = QemuOptions(accelerator="tcg")
                yield None if made is None else SecondHost(made, Qemu(), own)


@pytest.mark.slow
@pytest.mark.boots
class TestLibvirt(Domains):
    platform = Libvirt()


@pytest.mark.acceptance
class TestLibvirtEmulatedDevices(Domains):
    platform = Libvirt()
    chosen: ClassVar[dict[str, object]] = {
        "devices": "emulated",
        "disk_cache": "writeback",
        "disk_io": "threads",
        "emulator_cpus": "same",
    }


@pytest.mark.acceptance
class TestLibvirtTuned(Domains):
    platform = Libvirt()
    chosen: ClassVar[dict[str, object]] = {
        "machine": "pc",
        "disk_bus": "virtio-scsi",
        "disk_format": "qcow2",
        "disk_queues": 2,
        "cpu_features": ["-avx2"],
        "iothread": True,
        "iothread_cpus": "same",
        "disk_io": "native",
        "emulator_cpus": "other",
        "extra_args": ["-global", "virtio-scsi-pci.packed=off"],
    }
