"""The parts of a live image: its list of drivers, and a disc that comes out the same each time."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images import images_fakes as fakes
from tare.errors import InputError
from tare.hosts import LocalHost
from tare.images.live import disc, drivers
from tare.images.modules import ModuleTree

needs_tools = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in disc.TOOLS),
    reason="xorriso and mtools are not installed: `make setup` of the tests installs them",
)


def module(*texts: str) -> bytes:
    return fakes.elf({b".modinfo": b"".join(text.encode() + b"\0" for text in texts)})


def tree_of(folder: Path, modules: dict[str, bytes]) -> ModuleTree:
    held = folder / "kernel"
    held.mkdir(parents=True)
    for name, data in modules.items():
        (held / f"{name}.ko").write_bytes(data)
    return ModuleTree(folder)


def all_modules(**special: bytes) -> dict[str, bytes]:
    names = (*drivers.ALWAYS, *drivers.NAMED, *drivers.REQUIRED)
    return {**{name: fakes.module() for name in names}, **special}


def test_a_driver_is_listed_with_what_it_needs_and_what_asks_for_it(tmp_path: Path) -> None:
    tree = tree_of(
        tmp_path,
        all_modules(
            virtio=fakes.module(),
            realtek=fakes.module(),
            virtio_net=module("depends=virtio", "alias=virtio:d00000001v*", "alias=of:N*T*"),
            r8169=module("softdep=pre: realtek post: nothing", "alias=pci:v000010ECd00008168*"),
        ),
    )
    found = drivers.find_drivers(tree, "9.9")
    lines = drivers.driver_list(found.modules).splitlines()
    assert "/lib/modules/virtio_net.ko virtio virtio:d00000001v*" in lines
    assert "/lib/modules/r8169.ko realtek pci:v000010ECd00008168*" in lines
    assert "/lib/modules/e1000.ko -" in lines
    order = [line.split()[0].split("/")[-1] for line in lines]
    assert order.index("virtio.ko") < order.index("virtio_net.ko")
    held = {entry.path for entry in found.entries()}
    assert {line.split()[0][1:] for line in lines} <= held
    assert {part.name for part in found.always} == {*drivers.ALWAYS}


def test_a_kernel_without_emulated_cards_is_refused(tmp_path: Path) -> None:
    """Debian's kernel for clouds has none of them."""
    modules = all_modules()
    del modules["e1000"], modules["mptspi"]
    with pytest.raises(InputError, match=r"no module e1000, mptspi") as refused:
        drivers.find_drivers(tree_of(tmp_path, modules), "9.9-cloud")
    assert "leave --kernel out" in refused.value.hint


@pytest.mark.parametrize("text", ["", "-1", "yesterday", "12", str(1 << 32)])
def test_a_date_that_no_disc_can_have_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="SOURCE_DATE_EPOCH"):
        disc.source_date({"SOURCE_DATE_EPOCH": text})


@given(st.integers(disc.EARLIEST, (1 << 32) - 1))
def test_any_other_date_is_taken(epoch: int) -> None:
    assert disc.source_date({"SOURCE_DATE_EPOCH": str(epoch)}) == epoch


def parts(folder: Path) -> Path:
    """Lay out files that stand for a kernel and boot loaders."""
    folder.mkdir()
    for at, name in enumerate(("vmlinuz", "initrd.img", "ldlinux.c32", "shim.efi", "grub.efi")):
        (folder / name).write_bytes(bytes([at + 1]) * 5000)
        os.utime(folder / name)
    (folder / "isolinux.bin").write_bytes(bytes(4096))
    (folder / "isohdpfx.bin").write_bytes(bytes(432))
    return folder


async def made(folder: Path, epoch: int = disc.EARLIEST) -> bytes:
    folder.mkdir()
    toolbox = folder / "toolbox"
    toolbox.write_bytes(b"toolbox!" * 4096)
    layout = disc.DiscLayout(parts(folder / "parts"), "0a" * 32, toolbox, ("nopv",), epoch)
    work = folder / "work"
    work.mkdir()
    await disc.make_disc(LocalHost(), layout, work, folder / "disc")
    return (folder / "disc").read_bytes()


@needs_tools
async def test_two_discs_of_the_same_parts_are_equal(tmp_path: Path) -> None:
    one, two = await made(tmp_path / "one"), await made(tmp_path / "two")
    assert one == two
    assert one != await made(tmp_path / "later", disc.EARLIEST + 86_400)


@needs_tools
async def test_a_disc_is_a_hard_disk_too(tmp_path: Path) -> None:
    image = await made(tmp_path / "one")
    assert len(image) % (1 << 20) == 0
    assert image[32769:32774] == b"CD001" and image[32808:32840].startswith(b"TARE-LIVE ")
    assert image[510:512] == b"\x55\xaa"
    found = {}
    for at in range(446, 510, 16):
        begin, size = struct.unpack_from("<II", image, at + 8)
        found[image[at + 4]] = image[begin * 512 : (begin + size) * 512]
    # UEFI's partition is FAT, and holds the loaders by the names that firmware looks for.
    assert b"BOOTX64 EFI" in found[0xEF] and b"GRUBX64 EFI" in found[0xEF]
    assert b"tare.live=toolbox" in found[0xEF] and b" nopv" in found[0xEF]
    assert found[0x83].startswith(b"toolbox!" * 4096)


async def test_without_its_tools_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="mtools and xorriso") as refused:
        disc.require_tools()
    assert refused.value.hint == "run `apt-get install --no-remove mtools xorriso` as root"
