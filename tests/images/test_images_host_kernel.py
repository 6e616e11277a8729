"""The kernel that a host runs is found wherever its distribution keeps it, by its version."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images import images_fakes as fakes
from images.host_trees import PACKED, TreeHost, image, tree, unified
from tare.errors import InputError
from tare.images.guest_image import build_guest_image
from tare.images.host_kernel import find_host_image, host_kernel, unified_sections
from tare.images.modules import ModuleTree

V = fakes.VERSION
NOBODY = 65534
PATHS = (
    f"boot/vmlinuz-{V}",
    f"usr/lib/modules/{V}/vmlinuz",
    f"lib/modules/{V}/vmlinuz",
    "boot/vmlinuz-linux",
    "boot/vmlinuz-linux-lts",
    "boot/vmlinuz-virt",
    "boot/vmlinuz",
    f"boot/kernel-{V}",
    f"boot/kernel-genkernel-x86_64-{V}",
    f"boot/bzImage-{V}",
    f"boot/Image-{V}",
    f"boot/0123456789abcdef0123456789abcdef/{V}/linux",
    f"efi/0123456789abcdef0123456789abcdef/{V}/linux",
    f"boot/efi/fedora/{V}/linux",
    f"usr/lib/kernel/org.clearlinux.native.{V}",
    "run/booted-system/kernel",
)


@pytest.mark.parametrize("path", PATHS)
async def test_the_image_is_found_wherever_it_is(tmp_path: Path, path: str) -> None:
    tree(tmp_path, path)
    found = await find_host_image(TreeHost(tmp_path))
    assert (found.path, found.release, found.offset) == (f"/{path}", V, 0)


@pytest.mark.parametrize("path", ["boot/EFI/Linux/arch.efi", "efi/EFI/Linux/x-6.efi"])
@pytest.mark.parametrize("padded", [True, False])
async def test_a_unified_kernel_image_holds_the_kernel(
    tmp_path: Path, path: str, padded: bool
) -> None:
    tree(tmp_path, path, unified(image(), padded=padded))
    kernel = await host_kernel(TreeHost(tmp_path), tmp_path / "cache")
    assert kernel.file.read_bytes() == image()
    assert kernel.version == V


async def test_an_image_of_another_version_is_not_the_hosts(tmp_path: Path) -> None:
    # As on Arch after an update without a reboot: the name is the same, the kernel is not.
    tree(tmp_path, "boot/vmlinuz-linux", image("9.9.10-arch1-1"))
    (tmp_path / "boot" / f"vmlinuz-{V}").write_bytes(image("1.2.3-misnamed"))
    with pytest.raises(InputError, match=f"Linux {V}.*no image of it.*reboot"):
        await find_host_image(TreeHost(tmp_path))


async def test_the_running_image_is_chosen_from_several(tmp_path: Path) -> None:
    tree(tmp_path, "boot/vmlinuz-linux", image("9.9.10-arch1-1"))
    tree(tmp_path, "boot/vmlinuz-linux-lts")
    assert (await find_host_image(TreeHost(tmp_path))).path == "/boot/vmlinuz-linux-lts"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    # Others than its owner can look into this one.
    folder = Path(tempfile.mkdtemp(prefix="tare-host-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


async def test_an_image_that_only_root_can_read_is_named(open_folder: Path) -> None:
    # As Ubuntu has it: mode 0600.
    tree(open_folder, f"boot/vmlinuz-{V}").chmod(0o600 if os.getuid() == 0 else 0)
    with pytest.raises(InputError) as error:
        await find_host_image(TreeHost(open_folder, user=NOBODY))
    assert error.value.message == f"only root can read the host's kernel /boot/vmlinuz-{V}"
    assert f"sudo chmod a+r /boot/vmlinuz-{V}" in error.value.hint
    assert "kernel: generic" in error.value.hint


async def test_a_readable_copy_is_taken_where_another_is_not(open_folder: Path) -> None:
    tree(open_folder, f"usr/lib/modules/{V}/vmlinuz")
    tree(open_folder, f"boot/vmlinuz-{V}").chmod(0o600 if os.getuid() == 0 else 0)
    found = await find_host_image(TreeHost(open_folder, user=NOBODY))
    assert found.path == f"/usr/lib/modules/{V}/vmlinuz"


async def test_a_folder_that_only_root_can_look_into_is_named(open_folder: Path) -> None:
    tree(open_folder, f"boot/vmlinuz-{V}")
    (open_folder / "boot").chmod(0o700 if os.getuid() == 0 else 0)
    with pytest.raises(InputError, match="only root can look for its image in /boot"):
        await find_host_image(TreeHost(open_folder, user=NOBODY))
    (open_folder / "boot").chmod(0o755)


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize(
    "modules", ["lib/modules", "usr/lib/modules", "run/booted-system/kernel-modules/lib/modules"]
)
async def test_modules_are_copied_however_they_are_compressed(
    tmp_path: Path, packed: str, modules: str
) -> None:
    tree(tmp_path, f"boot/vmlinuz-{V}", modules=modules, packed=packed)
    kernel = await host_kernel(TreeHost(tmp_path), tmp_path / "cache")
    assert kernel.modules is not None
    held = ModuleTree(kernel.modules)
    assert held.missing(["virtio_pci", "virtio_console", "crc32c_generic"]) == ()
    order = [part.name for part in held.sort_by_dependency(["virtio_pci"])]
    assert order == ["virtio", "virtio_ring", "virtio_pci"]


async def test_the_same_kernel_gives_the_same_image_however_it_is_laid_out(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_bytes(b"\x7fELF agent")
    made = set()
    for number, (path, packed) in enumerate(
        [(f"boot/vmlinuz-{V}", ""), ("boot/vmlinuz-linux", ".zst"), (f"boot/kernel-{V}", ".xz")]
    ):
        root = tmp_path / str(number)
        tree(root, path, packed=packed)
        built = await build_guest_image(
            TreeHost(root), "host", needs=frozenset({"virtio"}), agent=agent, cache=root / "cache",
            runs_on=TreeHost(root),
        )  # fmt: skip
        made.add(built.initramfs.read_bytes())
        assert built.boot_kernel.read_bytes() == fakes.pvh_kernel()
    assert len(made) == 1


async def test_the_kernel_is_of_the_arms_host_and_not_of_the_builder(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_bytes(b"\x7fELF agent")
    tree(tmp_path / "far", "boot/vmlinuz-linux", image("5.5.5-far"), version="5.5.5-far")
    built = await build_guest_image(
        TreeHost(tmp_path / "here"), "host", needs=frozenset({"virtio"}), agent=agent,
        cache=tmp_path / "cache", runs_on=TreeHost(tmp_path / "far", "5.5.5-far"),
    )  # fmt: skip
    assert built.kernel_version == "5.5.5-far"


async def test_nothing_is_copied_again_until_something_changes(tmp_path: Path) -> None:
    file = tree(tmp_path, f"boot/vmlinuz-{V}")
    host, cache = TreeHost(tmp_path), tmp_path / "cache"
    first = await host_kernel(host, cache)
    assert f"/boot/vmlinuz-{V}" in host.copied
    host.copied.clear()
    again = await host_kernel(host, cache)
    assert (again, host.copied) == (first, [])
    file.write_bytes(image() + b"signed")
    os.utime(file, (1, 1))
    changed = await host_kernel(host, cache)
    assert changed.digest != first.digest


async def test_a_damaged_copy_is_made_again(tmp_path: Path) -> None:
    tree(tmp_path, f"boot/vmlinuz-{V}")
    host, cache = TreeHost(tmp_path), tmp_path / "cache"
    first = await host_kernel(host, cache)
    first.file.write_bytes(b"rubbish")
    second = await host_kernel(host, cache)
    assert second.file.read_bytes() == image()


async def test_a_damaged_module_is_named(tmp_path: Path) -> None:
    tree(tmp_path, f"boot/vmlinuz-{V}", packed=".zst")
    bad = next(tmp_path.rglob("virtio_pci.ko.zst"))
    bad.write_bytes(bad.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"virtio_pci\.ko\.zst cannot be used.*damaged"):
        await host_kernel(TreeHost(tmp_path), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("draft-*"))


async def test_without_modules_the_message_says_that_drivers_must_be_built_in(
    tmp_path: Path,
) -> None:
    tree(tmp_path, f"boot/vmlinuz-{V}")
    shutil.rmtree(tmp_path / "usr")
    kernel = await host_kernel(TreeHost(tmp_path), tmp_path / "cache")
    assert kernel.modules is None
    assert f"no modules of {V}" in kernel.notes[0]


async def test_source_trees_that_modules_lead_to_are_not_searched(tmp_path: Path) -> None:
    tree(tmp_path, f"boot/vmlinuz-{V}")
    source = tmp_path / "src"
    source.mkdir()
    (source / "virtio_pci.ko").write_bytes(b"a half-built one")
    (tmp_path / "usr/lib/modules" / V / "build").symlink_to(source)
    kernel = await host_kernel(TreeHost(tmp_path), tmp_path / "cache")
    assert kernel.modules is not None
    assert ModuleTree(kernel.modules).module("virtio_pci").depends == ("virtio_ring",)


async def test_a_host_cannot_have_files_written_elsewhere(tmp_path: Path) -> None:
    tree(tmp_path, f"boot/vmlinuz-{V}")

    class WrongAnswers(TreeHost):
        async def run(self, argv, **more):  # type: ignore[no-untyped-def]
            done = await super().run(argv, **more)
            if any("find -L" in word for word in argv) and done.stdout:
                lines = done.stdout + b"kernel/../../../../../virtio_pci.ko\n/etc/nvme.ko\n"
                return type(done)(0, lines, b"")
            return done

    host = WrongAnswers(tmp_path)
    kernel = await host_kernel(host, tmp_path / "cache")
    assert kernel.version == V
    assert not [path for path in host.copied if ".." in path or path.startswith("/etc")]


@pytest.mark.fuzz
@settings(max_examples=200)
@given(st.binary(max_size=400), st.integers(0, 1 << 32))
def test_sections_of_anything_are_read_or_none(data: bytes, at: int) -> None:
    file = bytearray(unified(image()))
    file[at % 0x200 : at % 0x200 + len(data)] = data
    for content in (bytes(file[:0x1000]), data, b"MZ" + data):
        for offset, size in unified_sections(content).values():
            assert offset >= 0 and size >= 0
