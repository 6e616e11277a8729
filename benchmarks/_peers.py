"""The peers of boot_time: plain QEMU with a busybox initramfs, and virtme-ng."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks._runs import Unmeasured
from tare.hosts import LocalHost
from tare.images import cpio
from tare.images.packages import Package, download, kernel_packages
from tare.run.lifecycle.session import agent_path, cache_dir

MARK = "TARE-BENCH-USERLAND"
BOOT_DEADLINE_S = 120.0
MEMORY_MIB = 256

_INIT = f"""#!/bin/sh
/bin/busybox echo {MARK}
/bin/busybox poweroff -f
"""


@dataclass(frozen=True)
class DebianKernel:
    """A distribution's kernel, unpacked whole: the bzImage, with its modules in ``lib``."""

    name: str
    version: str
    file: Path


def bench_cache() -> Path:
    """Return where the benchmarks keep what they need, next to Tare's own cache."""
    folder = cache_dir() / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def unpacked_kernel(name: str) -> DebianKernel:
    """Return a distribution's kernel (``rt``, ``cloud``), unpacked with all its modules.

    Tare's own cache keeps only the modules that its images need; virtme-ng needs others.
    """
    return asyncio.run(_unpacked_kernel(name))


async def _unpacked_kernel(name: str) -> DebianKernel:
    host = LocalHost(agent_path())
    packages = await kernel_packages(host, name)
    folder = bench_cache() / "kernels" / "+".join(f"{p.name}_{p.version}" for p in packages)
    if not folder.is_dir():
        draft = folder.with_name(folder.name + f".{os.getpid()}")
        await _unpack(host, packages, draft)
        draft.rename(folder)
    files = sorted(folder.glob("boot/vmlinuz-*"))
    if not files:
        raise Unmeasured(f"there is no kernel in {folder}")
    return DebianKernel(name, files[0].name.partition("-")[2], files[0])


async def _unpack(host: LocalHost, packages: Sequence[Package], draft: Path) -> None:
    draft.mkdir(parents=True)
    try:
        for package in packages:
            deb = await download(host, package, draft)
            await _succeed(host, ["dpkg-deb", "-x", str(deb), str(draft)])
            deb.unlink()
        for modules in draft.glob("lib/modules/*"):
            depmod = _program("depmod", "kmod")
            await _succeed(host, [depmod, "-b", str(draft), modules.name])
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


async def _succeed(host: LocalHost, argv: Sequence[str]) -> None:
    done = await host.run(argv, timeout_s=600)
    if not done.ok:
        raise Unmeasured(f"{argv[0]} failed: {done.words()}")


def busybox_initramfs(folder: Path) -> Path:
    """Write an initramfs in which busybox prints :data:`MARK` as soon as it is PID 1."""
    busybox = Path(_program("busybox", "busybox-static")).read_bytes()
    path = folder / "busybox.cpio"
    path.write_bytes(
        cpio.archive(
            [
                cpio.file("init", _INIT.encode(), executable=True),
                cpio.directory("dev"),
                cpio.character_device("dev/console", 5, 1),
                cpio.directory("bin"),
                cpio.file("bin/busybox", busybox, executable=True),
                cpio.file("bin/sh", busybox, executable=True),
            ]
        )
    )
    return path


def plain_qemu_s(kernel: Path, initramfs: Path) -> float:
    """Boot with plain QEMU under TCG; return the seconds from its spawn to userland."""
    return _until_mark(
        [
            "qemu-system-x86_64",
            *("-M", "q35", "-accel", "tcg", "-cpu", "max", "-m", str(MEMORY_MIB)),
            *("-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"),
            *("-kernel", str(kernel), "-initrd", str(initramfs)),
            *("-append", "console=ttyS0 quiet panic=-1"),
        ]
    )


def virtme_root(folder: Path) -> Path:
    """Lay out a root of busybox alone: less for virtme-ng to start than with the host's root."""
    root = folder / "root"
    for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "run", "var", "lib", "usr/bin"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("home", "opt", "srv", "root"):
        (root / name).mkdir()
    (root / "etc/fstab").touch()
    shutil.copy(_program("busybox", "busybox-static"), root / "bin/busybox")
    for applet in ("sh", "mount", "mkdir", "ln", "cat", "ip"):
        (root / "bin" / applet).symlink_to("busybox")
    return root


def virtme_program() -> Path:
    """Return ``vng`` out of the environment that ``scripts/setup bench`` makes.

    Raises:
        Unmeasured: It is not there.
    """
    program = bench_cache() / "virtme-ng" / "bin" / "vng"
    if not program.exists():
        raise Unmeasured(f"{program} is missing: run scripts/setup bench")
    return program


def virtme_version() -> str:
    """Return what virtme-ng calls itself."""
    argv = [str(virtme_program()), "--version"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def virtme_s(kernel: Path, root: Path) -> float:
    """Boot with virtme-ng under TCG; return the seconds from its spawn to the user's command.

    ``quiet`` and a root of busybox alone are its fastest way; 9p, because Debian's virtiofsd is
    one that virtme-ng does not use. ``-v`` only connects the console, where the command's output
    ends up without udev in the guest.
    """
    program = virtme_program()
    return _until_mark(
        [
            str(program),
            *("-r", str(kernel), "--disable-kvm", "--force-9p", "--root", str(root)),
            *("--cpus", "1", "-m", f"{MEMORY_MIB}M"),
            *("-v", "-a", "quiet", "-a", "loglevel=1", "-e", f"echo {MARK}"),
        ],
        environment={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
    )


def _until_mark(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    # A pipe, not a file: virtme-ng has QEMU reopen its standard output, which empties a file.
    began = time.monotonic()
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    assert process.stdout is not None
    lines: list[bytes] = []
    took: float | None = None
    try:
        for line in process.stdout:
            lines.append(line)
            if took is None and line.strip() == MARK.encode():
                took = time.monotonic() - began
            if time.monotonic() - began > BOOT_DEADLINE_S:
                break
    finally:
        if took is None:
            process.kill()
        process.wait(BOOT_DEADLINE_S)
        process.stdout.close()
    if took is None:
        last = b" / ".join(lines[-3:]).decode(errors="replace").strip()
        raise Unmeasured(f"{Path(argv[0]).name} did not reach userland: {last}")
    return took


def _program(name: str, package: str) -> str:
    for found in (shutil.which(name), f"/usr/sbin/{name}", f"/sbin/{name}"):
        if found and Path(found).exists():
            return found
    raise Unmeasured(f"{name} is missing: apt-get install --no-remove {package}")
