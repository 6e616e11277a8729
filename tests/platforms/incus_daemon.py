"""A server of a test's own: Debian's LXD in a folder, with a pool, and nothing of the system's."""

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tare.hosts import LocalHost
from tare.platforms.incus.session import logged_in

UP_S = 30.0
POOL = "test"
# This computer may lack what VMs need of it: vhost_vsock, and the right to lock memory. `modprobe`
# and the kernel's answer are played, so that the server goes on to what is really tried.
_LED = """
import ctypes, os, struct, sys
LOAD, EQUAL, RETURN, ALLOW, DONE = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000
PRLIMIT, SETRLIMIT, MEMLOCK = 302, 160, 8
steps = [
    (LOAD, 0, 0, 0), (EQUAL, 3, 0, PRLIMIT), (EQUAL, 0, 5, SETRLIMIT),
    (LOAD, 0, 0, 16), (EQUAL, 2, 3, MEMLOCK),
    (LOAD, 0, 0, 24), (EQUAL, 0, 1, MEMLOCK),
    (RETURN, 0, 0, DONE), (RETURN, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
assert ctypes.CDLL(None).prctl(22, 2, ctypes.create_string_buffer(program)) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


# Elsewhere anybody may open it, such as a VM's QEMU; here it is so for the server alone.
_TUN = """
mknod -m 666 "$0/tun" c 10 200
mount --bind "$0/tun" /dev/net/tun
exec "$@"
"""


def asked(way: dict[str, Any], method: str, path: str, body: Any = None) -> Any:
    """Return what a server answers."""

    async def ask() -> Any:
        async with logged_in(LocalHost(Path("/nowhere")), way) as session:
            return await session.ask(method, path, body)

    return asyncio.run(ask())


def image_of(disk: Path, folder: Path) -> bytes:
    """Return the image of a VM as a server imports it, see docs/owning.md."""
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
    lxd = shutil.which("lxd")
    if lxd is None:
        pytest.skip("LXD is not installed: apt-get install lxd")
    if os.geteuid() != 0:
        pytest.skip("a server of containers needs root")
    # Its name is short, for sockets have their place in it.
    with tempfile.TemporaryDirectory(prefix="lxd-") as name:
        folder = Path(name)
        environment = {
            **os.environ,
            "PATH": SERVICE_PATH,
            "LXD_DIR": name,
            "LXD_OVMF_PATH": "/usr/share/OVMF",
        }
        command = [lxd, "--group", "root"]
        if led:
            play = folder / "modprobe"
            play.write_text("#!/bin/sh\n")
            play.chmod(0o755)
            environment["PATH"] = f"{name}:{environment['PATH']}"
            command = ["sh", "-ec", _TUN, name, sys.executable, "-c", _LED, *command]
        # Mounts that it leaves end with its name space.
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "--", *command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=(folder / "log").open("wb"),
            start_new_session=True,
        )
        try:
            _wait(lxd, process, environment, folder)
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
    lxd: str, process: subprocess.Popen[bytes], environment: dict[str, str], folder: Path
) -> None:
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline and process.poll() is None:
        ready = [lxd, "waitready", "--timeout", "1"]
        if subprocess.run(ready, env=environment, capture_output=True, check=False).returncode == 0:
            return
    said = (folder / "log").read_text(errors="replace")[-2000:]
    pytest.skip(f"LXD does not start here: {said}")


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
    """Return what a server holds besides its pool and its own project."""
    way = way_of(folder)
    projects = asked(way, "GET", "/1.0/projects")
    instances = asked(way, "GET", "/1.0/instances?all-projects=true")
    volumes = asked(way, "GET", f"/1.0/storage-pools/{POOL}/volumes")
    return [*(each for each in projects if not each.endswith("/default")), *instances, *volumes]
