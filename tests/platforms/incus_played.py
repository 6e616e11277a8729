"""Starts a program for which is played what this computer lacks of what LXD and Incus want for VMs.

usage: incus_played.py FOLDER PROGRAM [WORD...]    (root; in a mount name space of its own)

``modprobe``, the device vhost-vsock and the kernel's answers are played, so that the server gets
to what is really tried. No VM can speak by the sockets: tests take the device from it.

- ``/dev/vhost-vsock`` is there, and takes the number that a VM's sockets are to have.
- What the server listens at as the host of VMs (``VMADDR_CID_HOST``) is bound as any computer's,
  which the kernel allows without vhost_vsock, too.
- Memory may be locked.
- ``/dev/net/tun`` may be opened by a VM's QEMU, which is nobody; elsewhere anybody may.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path

LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, DONE, ASK = 0x7FFF0000, 0x00050000, 0x7FC00000
"""A filter's answers (linux/seccomp.h): continue; succeed without being done; ask the listener."""
IOCTL, BIND, SETRLIMIT, PRLIMIT, SECCOMP, PIDFD_GETFD = 16, 49, 160, 302, 317, 438
"""Numbers of system calls on x86-64."""
MEMLOCK, SET_GUEST_CID = 8, 0x4008AF60
PLAYED = ((PRLIMIT, 1, MEMLOCK), (SETRLIMIT, 0, MEMLOCK), (IOCTL, 1, SET_GUEST_CID))
"""Calls that succeed without being done: each with the argument that has some value."""
SET_FILTER, NEW_LISTENER = 1, 8
RECEIVE, SEND, CONTINUE = 0xC0502100, 0xC0182101, 1
"""How a listener is asked and answers (linux/seccomp.h)."""
NOTICE, ANSWER = struct.Struct("QIIiIQ6Q"), struct.Struct("QqiI")
VSOCK, HOST, ANY = 40, 2, 0xFFFFFFFF
ADDRESS = struct.Struct("HHII")
NULL = os.makedev(1, 3)

_libc = ctypes.CDLL(None, use_errno=True)


def furnish(folder: Path) -> None:
    """Lay what devices are to be over ``/dev``, and a ``modprobe`` into a folder of PATH."""
    play = folder / "modprobe"
    play.write_text("#!/bin/sh\n")
    play.chmod(0o755)
    laid, work = folder / "dev", folder / "dev-work"
    for made in (laid, work):
        made.mkdir()
    os.mknod(laid / "vhost-vsock", 0o666 | 0o020000, NULL)
    # What is mounted below is hidden by what is laid over, and brought back by its open folders.
    below = [place for place in ("/dev/pts", "/dev/shm") if os.path.ismount(place)]
    held = [(os.open(place, os.O_PATH), place) for place in below]
    over = f"lowerdir=/dev,upperdir={laid},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "-o", over, "overlay", "/dev"], check=True)
    for file, place in held:
        bind = ["mount", "--no-canonicalize", "--bind", f"/proc/self/fd/{file}", place]
        subprocess.run(bind, check=True, pass_fds=[file])
        os.close(file)
    Path("/dev/net/tun").chmod(0o666)


def filtered() -> int:
    """Have this process' calls, and those of all that it starts, filtered; returns the listener."""
    steps = []
    for number, argument, value in PLAYED:
        steps += [(LOAD, 0, 0, 0), (EQUAL, 0, 3, number), (LOAD, 0, 0, 16 + 8 * argument)]
        steps += [(EQUAL, 0, 1, value), (RETURN, 0, 0, DONE)]
    steps += [(LOAD, 0, 0, 0), (EQUAL, 0, 1, BIND), (RETURN, 0, 0, ASK), (RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code))
    listener = _libc.syscall(
        SECCOMP, SET_FILTER, NEW_LISTENER, ctypes.create_string_buffer(program)
    )
    return _made(listener)


def _made(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def answer(listener: int) -> None:
    """Answer what a filter asks, until nothing lives that it filters."""
    asked = select.poll()
    asked.register(listener, select.POLLIN)
    while any(event & select.POLLIN for _, event in asked.poll()):
        notice = bytearray(NOTICE.size)
        try:
            fcntl.ioctl(listener, RECEIVE, notice)
            fields = NOTICE.unpack(notice)
            fcntl.ioctl(
                listener, SEND, bytearray(answered(fields[0], fields[1], fields[6], fields[7]))
            )
        except OSError:
            # The client has ended meanwhile.
            continue


def answered(asked: int, thread: int, file: int, address: int) -> bytes:
    """Return the answer to a thread that binds a file to an address: the host's is any's."""
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        read = memory.read(ADDRESS.size)
    family, _, port, context = ADDRESS.unpack(read.ljust(ADDRESS.size, b"\0"))
    if (family, context) != (VSOCK, HOST):
        return ANSWER.pack(asked, 0, 0, CONTINUE)
    try:
        with socket.socket(fileno=_file_of(thread, file)) as its:
            its.bind((ANY, port))
    except OSError as error:
        return ANSWER.pack(asked, 0, -(error.errno or 1), 0)
    return ANSWER.pack(asked, 0, 0, 0)


def _file_of(thread: int, file: int) -> int:
    """Return a copy of a file that a thread has open."""
    lines = Path(f"/proc/{thread}/status").read_text().splitlines()
    (process,) = (line.split()[1] for line in lines if line.startswith("Tgid:"))
    known = os.pidfd_open(int(process))
    try:
        return _made(_libc.syscall(PIDFD_GETFD, known, file, 0))
    finally:
        os.close(known)


def main(folder: str, *command: str) -> None:
    """Become a program with what is played, while a child of this process answers its filter."""
    furnish(Path(folder))
    ours, childs = socket.socketpair()
    if os.fork() == 0:
        _, (listener,), _, _ = socket.recv_fds(childs, 1, 1)
        ours.close()
        answer(listener)
        os._exit(0)
    listener = filtered()
    socket.send_fds(ours, [b"."], [listener])
    os.close(listener)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
