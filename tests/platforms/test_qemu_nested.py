"""A machine in a machine: what the host must allow, and what the outer machine boots."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

from tare.errors import InputError
from tare.hosts import Host, LocalHost
from tare.images import cpio
from tare.images.guest_image import GuestImage
from tare.platforms.contract import Shape
from tare.platforms.qemu import nested
from tare.platforms.qemu.nested import (
    OUTER_MEMORY,
    lacking_nesting,
    outer_arguments,
    outer_image,
    outer_shape,
)
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu

AMD, INTEL = nested.SETTINGS


class Played:
    """A host with some files."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    async def read(self, path: str | Path) -> bytes:
        if str(path) not in self.files:
            raise FileNotFoundError(path)
        return self.files[str(path)]


def options(**more: Any) -> QemuOptions:
    return QemuOptions.model_validate({"accelerator": "kvm", "nested": True, **more})


def lacking(files: Mapping[str, bytes], asked: QemuOptions) -> tuple[str, str] | None:
    return asyncio.run(lacking_nesting(cast("Host", Played(files)), asked))


@pytest.mark.parametrize("files", [{AMD: b"1\n"}, {INTEL: b"Y\n"}])
def test_a_host_that_nests_lacks_nothing(files: Mapping[str, bytes]) -> None:
    assert lacking(files, options()) is None


def test_a_host_that_does_not_nest_says_why_and_what_to_do() -> None:
    found = lacking({INTEL: b"N\n"}, options())
    assert found is not None
    reason, todo = found
    assert INTEL in reason and "is N" in reason
    assert "modprobe kvm_intel nested=1" in todo
    found = lacking({}, options())
    assert found is not None and "neither kvm_amd nor kvm_intel" in found[0]
    assert lacking({}, QemuOptions(accelerator="kvm")) is None


@pytest.mark.parametrize(
    ("more", "needs"),
    [
        ({"accelerator": "tcg"}, "`accelerator: kvm`"),
        ({"devices": "emulated"}, "`devices: paravirtual`"),
        ({"machine": "pc"}, "`machine: q35`"),
        ({"enlightenments": {"hyperv": True}}, "enlightenments"),
    ],
)
def test_options_of_the_outer_machine_alone_are_refused(more: dict[str, Any], needs: str) -> None:
    with pytest.raises(ValidationError, match=needs):
        options(**more)


def test_a_nested_arm_states_that_it_has_neither_disk_nor_network() -> None:
    plain, inner = (Qemu().stated(each) for each in (options(nested=False), options()))
    assert plain.capabilities.disk and plain.capabilities.toolbox and plain.network.rooted
    assert not inner.capabilities.disk and not inner.capabilities.toolbox
    assert not inner.network.rooted and not inner.network.unprivileged
    assert "neither disks nor a network" in inner.capabilities.no_disk
    assert "a machine in a machine" in Qemu().describe(options())


def test_the_outer_kernel_hands_the_inner_command_line_on() -> None:
    shape = Shape(vcpus=2, memory=256 << 20)
    common = ("console=ttyS0", "tare.channel=tare.agent")
    words = outer_arguments(common, (*common, "clocksource=tsc"), shape)
    mine, inner = words[: words.index("--")], words[words.index("--") + 1 :]
    assert mine == ("console=ttyS0",)
    assert inner == ("2", f"{256 << 10}K", *common, "clocksource=tsc")
    assert outer_shape(shape).memory == (256 << 20) + OUTER_MEMORY
    assert outer_shape(shape).vcpus == 2


@pytest.fixture
def images(tmp_path: Path) -> tuple[GuestImage, GuestImage]:
    def image(name: str) -> GuestImage:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "kernel").write_bytes(f"kernel of {name}".encode())
        archive = cpio.archive([cpio.file("init", f"agent of {name}".encode(), executable=True)])
        (folder / "initramfs").write_bytes(archive)
        return GuestImage(
            folder / "kernel", folder / "kernel", folder / "initramfs", name, "6.1", False, 0.0
        )

    return image("outer"), image("inner")


def test_the_outer_image_holds_the_inner_one_and_qemu(
    images: tuple[GuestImage, GuestImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"QEMU")

    async def system(_: Host) -> dict[str, Path]:
        return {"bin/qemu": program}

    monkeypatch.setattr(nested, "_system", system)
    nobody = cast("Host", None)

    def made(inner: GuestImage = images[1]) -> GuestImage:
        return asyncio.run(outer_image(nobody, images[0], inner, tmp_path / "cache"))

    image = made()
    content = image.initramfs.read_bytes()
    # The later /init takes the place of the agent.
    assert content.index(b"agent of outer") < content.index(b"exec qemu")
    for part in (b"kernel of inner", b"agent of inner", b"QEMU"):
        assert part in content
    assert image.boot_kernel == images[0].boot_kernel and image.digest != images[0].digest
    assert not image.cached and made().cached
    program.write_bytes(b"another QEMU")
    assert not made().cached
    assert made(replace(images[1], digest="other")).digest != image.digest


def test_libraries_are_listed_as_the_loader_finds_them(tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    found = asyncio.run(nested._libraries(host, Path("/bin/sh")))
    assert any(path.name.startswith("ld-") for path in found)
    assert all(path.is_absolute() and path.exists() for path in found)
    with pytest.raises(InputError, match="cannot be listed"):
        asyncio.run(nested._libraries(host, tmp_path / "nothing"))
