"""Make the live disc: an ISO 9660 image that is also a hard disk, and boots by BIOS and by UEFI.

Its boot record names two partitions behind the file system: one for UEFI with the signed loaders,
and the toolbox. From a CD, the firmware starts the loader that the El Torito catalogue names
(El Torito specification, 1995; UEFI 2.10, 13.3.2.1). From a disk, it starts the code in the boot
record (BIOS) or the loader in the partition of type EF (UEFI).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError
from tare.hosts import Host

LABEL = "TARE-LIVE"
EARLIEST = 315_532_800
"""1980-01-01, in seconds since 1970: FAT knows no earlier time."""

_MAKE_S = 900.0
_MIB = 1 << 20
_EFI_BYTES = 8 * _MIB
_EFI_SERIAL = "54415245"
_EFI_KIND, _LINUX_KIND = "0xef", "0x83"

TOOLS: Mapping[str, str] = {"xorriso": "xorriso", "mformat": "mtools", "mcopy": "mtools"}
"""Maps each program that makes a disc to the package that has it."""

WORDS = (
    *("console=tty0", "console=ttyS0,115200", "quiet", "panic=-1"),
    *("noirqdebug", "no_timer_check", "cryptomgr.notests"),
)
"""Words of the kernel's command line; `tare help images` gives the reasons."""


@dataclass(frozen=True)
class DiscLayout:
    """The parts of a disc.

    Args:
        parts: The folder of :class:`tare.images.live.image.LiveParts`.
        digest: Distinguishes this disc from others in a machine.
        toolbox: The toolbox's file system; None: the disc has none.
        words: Further words for the kernel's command line.
        epoch: The time stamp of every file on the disc, in seconds since 1970.
    """

    parts: Path
    digest: str
    toolbox: Path | None
    words: tuple[str, ...]
    epoch: int

    @property
    def command_line(self) -> str:
        """The kernel's command line."""
        live = "tare.live=toolbox" if self.toolbox is not None else "tare.live=bare"
        return " ".join((live, *WORDS, *self.words))


def source_date(environment: Mapping[str, str]) -> int:
    """Return the time stamp of every file on a disc, in seconds since 1970.

    Args:
        environment: The environment's variables; ``SOURCE_DATE_EPOCH`` sets the time, as
            specified at reproducible-builds.org.

    Raises:
        InputError: The variable is not a number of seconds, or is a time before 1980.
    """
    text = environment.get("SOURCE_DATE_EPOCH", str(EARLIEST))
    if not text.isascii() or not text.isdigit() or not EARLIEST <= int(text) < 1 << 32:
        raise InputError(
            f"SOURCE_DATE_EPOCH is {text!r}", f"set it to seconds since 1970, from {EARLIEST} on"
        )
    return int(text)


def require_tools() -> None:
    """Check that the programs of :data:`TOOLS` are installed.

    Raises:
        InputError: A program is missing; the hint is the command that installs it.
    """
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if missing:
        raise InputError(
            f"the live image is made with {' and '.join(missing)}, and that is not installed",
            f"run `apt-get install --no-remove {' '.join(missing)}` as root",
        )


async def make_disc(host: Host, layout: DiscLayout, work: Path, out: Path) -> None:
    """Make the disc; the same layout gives the same bytes.

    Args:
        host: This computer.
        layout: Its parts.
        work: An empty folder.
        out: The file to write.

    Raises:
        InputError: A program is missing or fails; the message has the program's reason.
    """
    require_tools()
    env = {"SOURCE_DATE_EPOCH": str(layout.epoch), "TZ": "UTC", "LC_ALL": "C"}
    tree, loader = work / "tree", work / "efi.img"
    _lay_out(layout, tree)
    await _make_loader(host, layout, tree, loader, env)
    _set_times(tree, layout.epoch)
    await _run(host, _iso(layout, tree, loader, out), env)
    # Some platforms accept only disks whose size is a multiple of 1 MiB.
    os.truncate(out, -(-out.stat().st_size // _MIB) * _MIB)


def _lay_out(layout: DiscLayout, tree: Path) -> None:
    parts = layout.parts
    (tree / "tare").mkdir(parents=True)
    (tree / "isolinux").mkdir()
    (tree / "boot" / "grub").mkdir(parents=True)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copyfile(parts / name, tree / "tare" / name)
    (tree / "tare" / layout.digest[:16]).write_text(f"{layout.digest}\n")
    for name in ("isolinux.bin", "ldlinux.c32"):
        shutil.copyfile(parts / name, tree / "isolinux" / name)
    (tree / "isolinux" / "isolinux.cfg").write_text(_isolinux(layout))
    (tree / "boot" / "grub" / "grub.cfg").write_text(_grub(layout))


def _isolinux(layout: DiscLayout) -> str:
    lines = ("serial 0 115200", "default live", "prompt 0", "label live", "linux /tare/vmlinuz")
    return "\n".join((*lines, "initrd /tare/initrd.img", f"append {layout.command_line}", ""))


def _grub(layout: DiscLayout) -> str:
    lines = (
        "set timeout=0",
        # The machine may have other discs: find this one by a file that only it has.
        f"search --no-floppy --file --set=root /tare/{layout.digest[:16]}",
        f"linux /tare/vmlinuz {layout.command_line}",
        "initrd /tare/initrd.img",
        "boot",
    )
    return "\n".join((*lines, ""))


async def _make_loader(
    host: Host, layout: DiscLayout, tree: Path, loader: Path, env: Mapping[str, str]
) -> None:
    """Make the UEFI partition: the firmware starts shim, shim GRUB, and GRUB reads its file."""
    loader.touch()
    os.truncate(loader, _EFI_BYTES)
    image = ("-i", str(loader))
    await _run(
        host, ["mformat", *image, "-N", _EFI_SERIAL, "-T", str(_EFI_BYTES // 512), "::"], env
    )
    await _run(host, ["mmd", *image, "::/EFI", "::/EFI/BOOT", "::/boot", "::/boot/grub"], env)
    for source, place in (
        (layout.parts / "shim.efi", "::/EFI/BOOT/BOOTX64.EFI"),
        (layout.parts / "grub.efi", "::/EFI/BOOT/grubx64.efi"),
        (tree / "boot" / "grub" / "grub.cfg", "::/boot/grub/grub.cfg"),
    ):
        await _run(host, ["mcopy", *image, str(source), place], env)


def _set_times(tree: Path, epoch: int) -> None:
    for path in (tree, *tree.rglob("*")):
        os.utime(path, (epoch, epoch))


def _iso(layout: DiscLayout, tree: Path, loader: Path, out: Path) -> list[str]:
    toolbox: tuple[str, ...] = ()
    if layout.toolbox is not None:
        toolbox = ("-append_partition", "3", _LINUX_KIND, str(layout.toolbox))
    return [
        *("xorriso", "-as", "mkisofs", "-quiet", "-o", str(out), "-V", LABEL, "-r"),
        *("-isohybrid-mbr", str(layout.parts / "isohdpfx.bin")),
        *("-c", "isolinux/boot.cat", "-b", "isolinux/isolinux.bin"),
        *("-no-emul-boot", "-boot-load-size", "4", "-boot-info-table"),
        *("-append_partition", "2", _EFI_KIND, str(loader), *toolbox),
        *("-eltorito-alt-boot", "-e", "--interval:appended_partition_2:all::", "-no-emul-boot"),
        str(tree),
    ]


async def _run(host: Host, argv: Sequence[str], env: Mapping[str, str]) -> None:
    done = await host.run(argv, timeout_s=_MAKE_S, env=env)
    if not done.ok:
        failures = [line for line in done.words().splitlines() if "FAILURE" in line] or [
            done.words()
        ]
        raise InputError(
            f"{argv[0]} cannot make the live image: {failures[-1]}", "free some space on the disk"
        )
