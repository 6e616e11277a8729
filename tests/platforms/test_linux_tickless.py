"""`nohz_full`: the guest kernel's arguments, and where the option is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError
from tare.images.guest_image import GuestImage
from tare.platforms.linux.tickless import require_tickless, tickless_arguments, tickless_cpus
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.xen.options import XenOptions


def image(folder: Path, content: bytes, *, packed: bool = False) -> GuestImage:
    kernel, elf = folder / "vmlinuz", folder / "vmlinux"
    kernel.write_bytes(b"packed")
    elf.write_bytes(content)
    return GuestImage(kernel, kernel if packed else elf, folder / "i", "d", "6.1.0-x", True, 0.0)


@given(st.integers(2, 256))
def test_all_vcpus_but_the_first_lose_their_tick_and_do_the_work(vcpus: int) -> None:
    words = dict(word.split("=") for word in tickless_arguments(True, vcpus))
    first, _, last = words["nohz_full"].partition("-")
    named = tuple(range(int(first), int(last or first) + 1))
    assert named == tickless_cpus(True, vcpus) == tuple(range(1, vcpus))
    assert words["rcu_nocbs"] == words["nohz_full"]


def test_no_kernel_arguments_without_the_option(tmp_path: Path) -> None:
    assert tickless_arguments(False, 4) == ()
    assert tickless_cpus(False, 4) == ()
    require_tickless(False, image(tmp_path, b""), 1)
    assert not QemuOptions().nohz_full
    assert "nohz_full" not in XenOptions().model_dump(mode="json")
    assert "nohz_full" in XenOptions(nohz_full=True).words()


def test_one_vcpu_or_a_kernel_without_it_is_refused(tmp_path: Path) -> None:
    built = image(tmp_path, b"NO_HZ: Full dynticks CPUs: %*pbl.\n")
    require_tickless(True, built, 2)
    with pytest.raises(InputError, match="needs two vCPUs"):
        require_tickless(True, built, 1)
    for other in (image(tmp_path, b"nohz_full="), image(tmp_path, b"", packed=True)):
        with pytest.raises(InputError, match=r"6\.1\.0-x is not known to be built with"):
            require_tickless(True, other, 2)
    unread = replace(other, notes=("The bzImage boots as it is, since it is packed by zstd.",))
    with pytest.raises(InputError, match=r"NO_HZ_FULL \(The bzImage .* by zstd\.\)"):
        require_tickless(True, unread, 2)
