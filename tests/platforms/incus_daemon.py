"""A server of a test's own: Debian's LXD or Incus, in a folder, with a pool.

Debian 12 has LXD 5.0.2, Debian 13 Incus 6.0.4, too: the same tests try whichever is installed, the
latter where both are, and use nothing of the system's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tare.hosts import LocalHost
from tare.platforms.incus.session import logged_in

UP_S = 30.0
POOL = "test"
PLAYED = Path(__file__).with_name("incus_played.py")
"""Plays what this computer may lack of what VMs need."""


def asked(way: dict[str, Any], method: str, path: str, body: Any = None) -> Any:
    """Return what a server answers."""

    async def ask() -> Any:
        async with logged_in(LocalHost(Path("/nowhere")), way) as session:
            return await session.ask(method, path, body)

    return asyncio.run(ask())


def image_of(disk: Path, folder: Path) -> bytes:
    """Return the image of a VM as a server imports it, see `tare help incus`."""
    made = folder / "rootfs.img"
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", str(disk), str(made)], check=True)
    out, metadata = io.BytesIO(), b"architecture: x86_64\ncreation_date: 1\n"
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("metadata.yaml")
        info.size = len(metadata)
        archive.addfile(info, io.BytesIO(metadata))
        archive.add(made, "rootfs.img")
    return out.getvalue()


SERVICE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where services find programs. A newer QEMU that tests are given is none that this LXD knows."""


@dataclass(frozen=True)
class Product:
    """One of the two, as Debian has it.

    Args:
        name: Its name in Tare, and in the reasons of skipped tests.
        program: Its daemon.
        package: The package that has it.
        folder: The variable that names its folder to it.
        path: Where it finds programs.
        more: Further variables that its service gives it.
    """

    name: str
    program: str
    package: str
    folder: str
    path: str = SERVICE_PATH
    more: Mapping[str, str] = field(default_factory=dict)

    def environment(self, folder: str) -> dict[str, str]:
        """Return the environment in which its programs use a folder."""
        return {**os.environ, **self.more, "PATH": self.path, self.folder: folder}


LXD = Product("LXD", "lxd", "lxd", "LXD_DIR", more={"LXD_OVMF_PATH": "/usr/share/OVMF"})
INCUS = Product(
    "Incus",
    "/usr/libexec/incus/incusd",
    "incus",
    "INCUS_DIR",
    path=f"/usr/libexec/incus:{SERVICE_PATH}",
)


def installed() -> Product:
    """Return which of the two is installed, Incus before LXD; where neither is, skip the test."""
    for product in (INCUS, LXD):
        if shutil.which(product.program) is not None:
            return product
    pytest.skip(
        f"neither LXD nor Incus is installed: apt-get install {LXD.package} (Debian 12) or "
        f"{INCUS.package} (Debian 13)"
    )


def killed_words() -> str:
    """Return what Tare says of a machine that its owner stopped, by the product that is here."""
    return f"{installed().name} says that it is Stopped"


def way_of(folder: Path) -> dict[str, Any]:
    """Return how the server in a folder is reached."""
    socket = str(folder / "unix.socket")
    return {"address": "", "port": None, "credentials": None, "ca": None, "socket": socket}


@contextlib.contextmanager
def served(*, led: bool = False) -> Iterator[Path]:
    """Hold a server with one pool.

    Args:
        led: Whether what this computer lacks for VMs is played.

    Yields:
        Its folder, with the socket ``unix.socket``.
    """
    product = installed()
    if os.geteuid() != 0:
        pytest.skip("a server of containers needs root")
    # Its name is short, for sockets have their place in it.
    with tempfile.TemporaryDirectory(prefix="tare-") as name:
        folder, environment = Path(name), product.environment(name)
        command = [product.program, "--group", "root"]
        if led:
            environment["PATH"] = f"{name}:{environment['PATH']}"
            command = [sys.executable, str(PLAYED), name, *command]
        # Mounts that it leaves end with its name space.
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "--", *command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=(folder / "log").open("wb"),
            start_new_session=True,
        )
        try:
            _wait(product, process, environment, folder)
            pool = {"name": POOL, "driver": "dir"}
            asked(way_of(folder), "POST", "/1.0/storage-pools", pool)
            yield folder
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(UP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(
    product: Product, process: subprocess.Popen[bytes], environment: dict[str, str], folder: Path
) -> None:
    ready = [product.program, "waitready", "--timeout", "1"]
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline and process.poll() is None:
        if subprocess.run(ready, env=environment, capture_output=True, check=False).returncode == 0:
            return
    output = (folder / "log").read_text(errors="replace")[-2000:]
    pytest.skip(f"{product.name} does not start here: {output}")


def own_address() -> str:
    """Return an address of this computer that is not its loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            # Nothing is sent: the kernel says which address it would be sent from.
            found.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this computer has no network but its loopback")
        return str(found.getsockname()[0])


def left_in(folder: Path) -> list[str]:
    """Return what a server holds in addition to its pool and its own project."""
    way = way_of(folder)
    projects = asked(way, "GET", "/1.0/projects")
    instances = asked(way, "GET", "/1.0/instances?all-projects=true")
    volumes = asked(way, "GET", f"/1.0/storage-pools/{POOL}/volumes")
    return [*(each for each in projects if not each.endswith("/default")), *instances, *volumes]
