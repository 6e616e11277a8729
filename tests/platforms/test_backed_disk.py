"""The backing of a machine's disk on its host, and its complete removal."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tare.errors import MachineFault
from tare.hosts import clean
from tare.platforms.contract import Context, MachineSpec, Shape
from tare.platforms.linux import backed_disk as backing
from tare.platforms.linux.backed_disk import backed_disk, forget_backed, lacking_backing
from tare.platforms.qemu.platform import Qemu

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="loop devices need root")
MIB = 1 << 20
GROUP = f"tare-test-{os.getpid()}"
LVM = """#!/bin/sh
# LVM, as far as Tare uses it: volumes are loop devices. Refuses what lvm(8) refuses.
state=@STATE@ dev=/dev/@GROUP@
fail() { echo "  $*" >&2; exit 5; }
case "${0##*/}:$1" in *:--version) echo "LVM version: a stand-in"; exit 0;; esac
for last; do :; done
known() { [ "$1" = @GROUP@ ] || fail "Volume group \\"$1\\" not found"; }
case "${0##*/}" in
vgs) known "$last";;
lvs) known "${last%/*}"; [ -e "$state/${last#*/}" ] || fail "Failed to find logical volume";;
lvcreate)
    known "$last"
    while [ $# -gt 1 ]; do
        case $1 in --size) size=${2%b};; --name) name=$2;; esac
        shift
    done
    [ "$size" -le 67108864 ] || fail "Volume group has insufficient free space"
    [ ! -e "$state/$name" ] || fail "Logical Volume \\"$name\\" already exists"
    # Its blocks hold what somebody left.
    head -c "$size" /dev/urandom > "$state/$name"
    mkdir -p "$dev"
    ln -s "$(losetup --find --show "$state/$name")" "$dev/$name";;
lvremove)
    known "${last%/*}"
    [ -e "$state/${last#*/}" ] || fail "Failed to find logical volume"
    losetup --detach "$(readlink "$dev/${last#*/}")"
    rm "$dev/${last#*/}" "$state/${last#*/}"
    rmdir "$dev";;
esac
"""


def spec_of(folder: Path, size: int = 16 * MIB) -> MachineSpec:
    work = folder / "work"
    work.mkdir()
    return MachineSpec(f"{GROUP}-1-subject", Shape(1, 64 * MIB, size), (), work, False)


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A volume group; returns the folder with a file for each of its volumes."""
    state, programs = tmp_path / "volumes", tmp_path / "programs"
    state.mkdir()
    programs.mkdir()
    text = LVM.replace("@STATE@", str(state)).replace("@GROUP@", GROUP)
    for name in ("vgs", "lvs", "lvcreate", "lvremove"):
        program = programs / name
        program.write_text(text)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(backing, "_MAPPER", str(state))
    return state


@ROOT
async def test_a_logical_volume_is_made_for_a_machine_and_goes_with_it(
    context: Context, group: Path, tmp_path: Path
) -> None:
    assert await lacking_backing(context.host, "lvm", GROUP) is None
    spec = spec_of(tmp_path)
    async with backed_disk(context, spec, "lvm", GROUP) as disk:
        assert disk is not None
        assert [entry.name for entry in group.iterdir()] == [spec.name]
        assert stat.S_ISBLK(disk.file.stat().st_mode)
        assert disk.reserved
        # The file system is whole, although the volume held something else.
        made = await context.host.run(["/usr/sbin/e2fsck", "-fn", str(disk.file)], timeout_s=60)
        assert made.ok, made.words()
        assert (await forget_backed(context.host, disk))["dropped"] == "the disk's file"
    assert not disk.file.exists()
    assert list(group.iterdir()) == []
    assert context.ledger.open_entries() == ()


@ROOT
async def test_the_volume_of_a_killed_run_is_removed_by_its_ledger(
    context: Context, group: Path, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path)
    making = backed_disk(context, spec, "lvm", GROUP)
    await making.__aenter__()
    messages = await clean(context.host, context.ledger, Qemu.undoers)
    assert f"Removed the logical volume {GROUP}/{spec.name}." in messages
    assert list(group.iterdir()) == []
    assert await clean(context.host, context.ledger, Qemu.undoers) == []
    # Removing it once more does nothing.
    await making.__aexit__(None, None, None)


@ROOT
@pytest.mark.parametrize(
    ("size", "wanted", "words"),
    [(128 * MIB, GROUP, "insufficient free space"), (16 * MIB, "other", "not found")],
    ids=["too large", "no such group"],
)
async def test_refusal_of_lvm_is_reported_and_leaves_nothing(
    context: Context, group: Path, tmp_path: Path, size: int, wanted: str, words: str
) -> None:
    with pytest.raises(MachineFault, match=words):
        async with backed_disk(context, spec_of(tmp_path, size), "lvm", wanted):
            pass
    assert list(group.iterdir()) == []
    assert context.ledger.open_entries() == ()


async def test_missing_volume_group_is_reported_before_a_run(context: Context, group: Path) -> None:
    problem = await lacking_backing(context.host, "lvm", "other")
    assert problem is not None
    assert "there is no volume group other" in problem[0]


@ROOT
async def test_a_block_device_is_a_loop_device_of_tares_own(
    context: Context, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path)
    async with backed_disk(context, spec, "block", None) as disk:
        assert disk is not None
        assert disk.under is not None
        assert disk.file == Path("/dev") / f"{spec.name}-disk"
        assert stat.S_ISBLK(disk.file.stat().st_mode)
        assert disk.file.stat().st_rdev != 0
    assert not disk.file.exists()
    assert not disk.under.exists()
    assert context.ledger.open_entries() == ()
