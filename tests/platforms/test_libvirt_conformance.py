"""Libvirt's domains pass the cases that every platform passes: its real driver, real guests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from platforms.libvirt_embedded import embedded
from tare.platforms.libvirt.options import LibvirtOptions
from tare.platforms.libvirt.platform import Libvirt
from tare.testing.conformance import PlatformCases

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
        # Sockets' names are short, which pytest's folders are not.
        with tempfile.TemporaryDirectory(prefix="lv-") as folder, embedded(Path(folder)) as uri:
            cls.options = LibvirtOptions.model_validate({"uri": uri, **cls.chosen})
            yield


@pytest.mark.slow
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
        "iothread": True,
        "disk_io": "native",
        "emulator_cpus": "other",
    }
