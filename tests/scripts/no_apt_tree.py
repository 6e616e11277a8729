"""A computer without apt, dpkg and systemd: a tree of files, entered by bubblewrap."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import zstandard

PARTLY = re.compile(r"apt.*|dpkg.*|deb.*|systemd.*|.*ctl|update-alternatives|loginctl|git.*")
"""Programs, and folders of /usr/lib and /usr/share, that distributions without apt lack."""
NEVER = {"apt", "dpkg", "systemd", "debhelper", "lsb", "modules", "python3-apt"}
OS_RELEASE = 'NAME="Fedora Linux"\nID=fedora\nPRETTY_NAME="Fedora Linux 99 (simulated)"\n'


class NoAptTree:
    """A tree like Fedora's: kernels below /usr/lib/modules, compressed modules, no /boot.

    Programs and libraries are this computer's own, without all that is apt's, dpkg's or systemd's.
    There is no network but loopback.

    Args:
        folder: Where the tree and all that is written there are; it has the same path inside.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.release = ""
        self._bin, self._etc, self._modules = (
            folder / "tree" / part for part in ("bin", "etc", "modules")
        )
        for made in (self.home, self._bin, self._etc, self._modules):
            made.mkdir(parents=True)
        for program in Path("/usr/bin").iterdir():
            if not PARTLY.fullmatch(program.name):
                _same(program, self._bin / program.name)
        for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache", "hosts"):
            shutil.copyfile(f"/etc/{name}", self._etc / name)
        shutil.copytree("/etc/alternatives", self._etc / "alternatives", symlinks=True)
        (self._etc / "os-release").write_text(OS_RELEASE)

    def add_kernel(self, kept: Path, version: str) -> None:
        """Lay a kernel out as Fedora does, its modules compressed by zstd, and have it run.

        Args:
            kept: A kernel of Tare's cache: ``vmlinuz`` and ``modules/VERSION``.
            version: Its version, which ``uname -r`` is to be taken from here.
        """
        self.release = version
        target = self._modules / version
        target.mkdir()
        shutil.copyfile(kept / "vmlinuz", target / "vmlinuz")
        for module in (kept / "modules" / version).rglob("*"):
            copy = target / module.relative_to(kept / "modules" / version)
            if module.suffix == ".ko":
                copy.parent.mkdir(parents=True, exist_ok=True)
                packed = zstandard.ZstdCompressor(level=3).compress(module.read_bytes())
                copy.with_suffix(".ko.zst").write_bytes(packed)
            elif module.is_file():
                shutil.copyfile(module, copy)
        (self.folder / "osrelease").write_text(f"{version}\n")

    def install(self, *wheels: Path) -> None:
        """Install wheels into an environment of the tree that has the libraries of the tests."""
        env = self.folder / "env"
        if not env.exists():
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
        python = env / "bin" / "python"
        pip: list[str | Path] = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "--disable-pip-version-check",
        ]
        options: list[str | Path] = ["--quiet", "--no-deps", "--no-index", "--no-compile"]
        subprocess.run([*pip, "install", *options, *wheels], check=True)
        (packages,) = env.glob("lib/python*/site-packages")
        # A line of a .pth file adds a folder, whose own .pth files (the checkout's) do not count.
        (packages / "libraries.pth").write_text(f"{Path(zstandard.__path__[0]).parent}\n")

    def run(self, *words: str | Path, limit_s: float = 900) -> subprocess.CompletedProcess[str]:
        """Run a program of the tree, seen from its home."""
        argv = [*self._around(), *map(str, words)]
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=limit_s, check=False, cwd=self.home
        )

    def tare(self, *words: str | Path, limit_s: float = 900) -> subprocess.CompletedProcess[str]:
        """Run the installed tare there."""
        return self.run(self.folder / "env" / "bin" / "tare", *words, limit_s=limit_s)

    def _around(self) -> Sequence[str]:
        around = ["bwrap", "--die-with-parent", "--unshare-net", "--unshare-ipc", "--clearenv"]
        # Folders that bwrap makes by itself are its user's alone.
        for place in ("/usr", "/usr/lib", "/usr/share"):
            around += ["--perms", "0755", "--dir", place]
        around += ["--ro-bind", str(self._bin), "/usr/bin", "--ro-bind", str(self._etc), "/etc"]
        for folder in ("lib", "share"):
            for part in sorted(Path("/usr", folder).iterdir()):
                if part.name not in NEVER and not PARTLY.fullmatch(part.name):
                    around += ["--ro-bind", str(part), str(part)]
        for place in ("/usr/sbin", "/usr/lib64", "/usr/libexec"):
            if Path(place).is_dir():
                around += ["--ro-bind", place, place]
        for name in ("bin", "sbin", "lib", "lib64"):
            around += ["--symlink", f"usr/{name}", f"/{name}"]
        around += ["--ro-bind", str(self._modules), "/usr/lib/modules", "--dir", "/boot"]
        around += ["--proc", "/proc", "--dev-bind", "/dev", "/dev", "--bind", "/sys", "/sys"]
        if self.release:
            kernel = str(self.folder / "osrelease")
            around += ["--ro-bind", kernel, "/proc/sys/kernel/osrelease"]
        around += ["--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var"]
        around += ["--dir", "/var/tmp", "--dir", "/var/cache", "--dir", "/run/lock"]
        for shown in {str(self.folder), sys.prefix, str(Path(sys.executable).resolve().parents[1])}:
            if shown != "/usr":
                around += ["--bind", shown, shown]
        seen = {"HOME": self.home, "LANG": "C.UTF-8", "PATH": "/usr/bin:/usr/sbin"}
        for name, value in seen.items():
            around += ["--setenv", name, str(value)]
        return [*around, "--chdir", str(self.home)]


def _same(source: Path, target: Path) -> None:
    """Have the same file or link in two places."""
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    if source.is_file():
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
