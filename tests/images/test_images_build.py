import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from images import images_fakes as fakes
from images.test_images_cpio import unpack
from tare.errors import InputError
from tare.hosts import LocalHost
from tare.images import cache as store
from tare.images.guest_image import GuestImage, build_guest_image

VIRTIO: dict[str, list[str]] = {
    "virtio_ring": [],
    "virtio": ["virtio_ring"],
    "virtio_pci": ["virtio"],
    "virtio_console": ["virtio"],
    "virtio_net": ["virtio"],
    "virtio_blk": ["virtio"],
}


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return fakes.kernel_tree(tmp_path / "kernel", VIRTIO)


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    file = tmp_path / "tare-agent"
    file.write_bytes(b"\x7fELF agent")
    return file


async def build(
    kernel: Path, agent: Path, cache: Path, needs: frozenset[str] = frozenset({"virtio"})
) -> GuestImage:
    return await build_guest_image(LocalHost(), kernel, needs=needs, agent=agent, cache=cache)


async def test_two_caches_hold_the_same_bytes(kernel: Path, agent: Path, tmp_path: Path) -> None:
    one = await build(kernel, agent, tmp_path / "one")
    two = await build(kernel, agent, tmp_path / "two")
    assert one.digest == two.digest
    assert one.initramfs.read_bytes() == two.initramfs.read_bytes()
    assert one.boot_kernel.read_bytes() == two.boot_kernel.read_bytes() == fakes.pvh_kernel()
    assert not one.cached


async def test_image_is_built_once(kernel: Path, agent: Path, tmp_path: Path) -> None:
    first = await build(kernel, agent, tmp_path / "cache")
    second = await build(kernel, agent, tmp_path / "cache")
    assert second.cached
    assert second.initramfs == first.initramfs
    assert second.kernel_version == fakes.VERSION


async def test_the_initramfs_holds_agent_modules_and_their_order(
    kernel: Path, agent: Path, tmp_path: Path
) -> None:
    image = await build(kernel, agent, tmp_path / "cache")
    held = {name: (fields, data) for name, fields, data in unpack(image.initramfs.read_bytes())}
    assert held["init"][1] == agent.read_bytes()
    assert held["init"][0][1] & 0o111
    order = held["etc/tare/modules"][1].decode().split()
    assert order.index("/lib/modules/virtio_ring.ko") < order.index("/lib/modules/virtio.ko")
    assert order.index("/lib/modules/virtio_console.ko") < order.index("/lib/modules/virtio_net.ko")
    assert all(path[1:] in held for path in order)


async def test_another_agent_or_need_is_another_image(
    kernel: Path, agent: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    before = await build(kernel, agent, cache)
    none = await build(kernel, agent, cache, needs=frozenset())
    agent.write_bytes(b"\x7fELF newer agent")
    after = await build(kernel, agent, cache)
    assert len({before.digest, none.digest, after.digest}) == 3


@pytest.mark.parametrize("file", ["initramfs", "vmlinux", store.MANIFEST])
@pytest.mark.parametrize("damage", [b"", b"rubbish"])
async def test_a_damaged_entry_is_rebuilt(
    kernel: Path, agent: Path, tmp_path: Path, file: str, damage: bytes
) -> None:
    first = await build(kernel, agent, tmp_path / "cache")
    content = first.initramfs.read_bytes()
    (first.initramfs.parent / file).write_bytes(damage)
    second = await build(kernel, agent, tmp_path / "cache")
    assert not second.cached
    assert second.initramfs.read_bytes() == content


async def test_an_entry_without_a_file_is_rebuilt(
    kernel: Path, agent: Path, tmp_path: Path
) -> None:
    first = await build(kernel, agent, tmp_path / "cache")
    first.initramfs.unlink()
    assert not (await build(kernel, agent, tmp_path / "cache")).cached
    assert first.initramfs.is_file()


def age(folder: Path, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(folder, (then, then))


async def test_entries_unused_for_a_month_are_removed_at_the_next_build(
    kernel: Path, agent: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    used = (await build(kernel, agent, cache)).initramfs.parent
    unused = (await build(kernel, agent, cache, needs=frozenset())).initramfs.parent
    foreign = cache / "images" / "notes"
    foreign.mkdir()
    for folder in (used, unused, foreign):
        age(folder, store.KEPT_DAYS + 1)
    assert (await build(kernel, agent, cache)).cached
    assert unused.is_dir()
    agent.write_bytes(b"\x7fELF another agent")
    new = (await build(kernel, agent, cache)).initramfs.parent
    assert used.is_dir() and new.is_dir() and foreign.is_dir()
    assert not unused.exists()


async def test_many_builders_at_once_build_once(kernel: Path, agent: Path, tmp_path: Path) -> None:
    images = await asyncio.gather(*(build(kernel, agent, tmp_path / "cache") for _ in range(6)))
    assert sum(not image.cached for image in images) == 1
    assert len({image.initramfs for image in images}) == 1
    assert not list((tmp_path / "cache").glob("draft-*"))


async def test_a_killed_builder_leaves_nothing_behind(
    kernel: Path, agent: Path, tmp_path: Path
) -> None:
    stale = tmp_path / "cache" / "draft-killed"
    stale.mkdir(parents=True)
    (stale / "half").write_bytes(b"half")
    await build(kernel, agent, tmp_path / "cache")
    assert not stale.exists()


async def test_a_kernel_without_a_needed_module_is_refused(
    kernel: Path, agent: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"has no module e1000") as error:
        await build(kernel, agent, tmp_path / "cache", needs=frozenset({"e1000"}))
    assert "generic" in error.value.hint


async def test_a_kernel_that_cannot_be_extracted_boots_unchanged(
    agent: Path, tmp_path: Path
) -> None:
    kernel = tmp_path / "vmlinuz"
    kernel.write_bytes(fakes.bzimage(b"what" + bytes(60)))
    image = await build(kernel, agent, tmp_path / "cache")
    assert image.boot_kernel == image.kernel == kernel
    assert any("boots as it is" in note for note in image.notes)


async def test_an_elf_without_a_pvh_entry_is_not_used(agent: Path, tmp_path: Path) -> None:
    kernel = tmp_path / "vmlinuz"
    inside = fakes.elf({b".text": b"\x90"})
    kernel.write_bytes(fakes.bzimage(fakes.COMPRESSORS["gzip"](inside)))
    image = await build(kernel, agent, tmp_path / "cache")
    assert image.boot_kernel == kernel
    assert any("no PVH entry" in note for note in image.notes)


async def test_a_missing_agent_is_reported(kernel: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="make setup"):
        await build(kernel, tmp_path / "nothing", tmp_path / "cache")


async def test_a_cache_that_cannot_be_written_is_reported(
    kernel: Path, agent: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file, not a directory")
    with pytest.raises(InputError, match="XDG_CACHE_HOME"):
        await build(kernel, agent, tmp_path / "cache")


def test_a_manifest_of_the_wrong_kind_counts_as_none(tmp_path: Path) -> None:
    wrong: list[object] = [
        [],
        {"files": []},
        {"files": {}, "facts": 3},
        {"files": {"x": 1}, "facts": {}},
    ]
    for content in wrong:
        (tmp_path / store.MANIFEST).write_text(json.dumps(content))
        assert store.load(tmp_path) is None


def test_the_cache_follows_the_xdg_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store.default_cache() == tmp_path / "tare"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert store.default_cache().is_absolute()
