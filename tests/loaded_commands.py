"""`tare` commands that start fast: a process that has loaded Tare forks one for each.

Loading takes most of a short command's time. A forked command is a process of its own, with its
own arguments, environment, folder, files and exit status. What a fork would not pass on (see
:func:`_can_fork`) runs as the installed program instead. Tests of start-up, of signals and of
commands under way start the installed program themselves.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

TARE = Path(sys.executable).parent / "tare"
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC", "OPENBLAS", "PATH", "TZ")
"""Beginnings of variables that an interpreter, a library or a module reads only as it starts."""
OWN_STATE = ("XDG_STATE_HOME", "XDG_CACHE_HOME")
"""Variables by which tests find the processes of their commands; the server has none of them."""
LENGTH = struct.Struct("!I")


class Commands:
    """Runs commands one at a time through its server, which starts with the first of them."""

    def __init__(self) -> None:
        self._one = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._began_with: dict[str, str] = {}

    def run(self, *words: str, limit_s: float) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, as :func:`subprocess.run` does, and return its output.

        Raises:
            subprocess.TimeoutExpired: It took longer than ``limit_s``; it was killed.
        """
        if not self._one.acquire(blocking=False):
            return _installed(words, limit_s)
        try:
            there = self._started()
            if not _can_fork(self._began_with, os.environ):
                return _installed(words, limit_s)
            return self._forked(there, words, limit_s)
        finally:
            self._one.release()

    def _started(self) -> socket.socket:
        if self._server is None or self._socket is None or self._server.poll() is not None:
            ours, theirs = socket.socketpair()
            environment = {k: v for k, v in os.environ.items() if k not in OWN_STATE}
            with theirs:
                self._server = subprocess.Popen(
                    [sys.executable, __file__, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    # Streams are set up for pipes, which the commands' are.
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environment,
                )
            self._socket, self._began_with = ours, environment
            atexit.register(self._end, self._server, ours)
        return self._socket

    @staticmethod
    def _end(server: subprocess.Popen[bytes], there: socket.socket) -> None:
        there.close()
        server.wait()

    def _forked(
        self, there: socket.socket, words: tuple[str, ...], limit_s: float
    ) -> subprocess.CompletedProcess[str]:
        umask = os.umask(0)
        os.umask(umask)
        request = {
            "words": words,
            "environment": dict(os.environ),
            "folder": str(Path.cwd()),
            "umask": umask,
            "cpus": sorted(os.sched_getaffinity(0)),
        }
        body = json.dumps(request).encode("utf-8", "surrogatepass")
        ends = [os.pipe(), os.pipe()]
        files = array.array("i", [writing for _, writing in ends])
        there.sendmsg(
            [LENGTH.pack(len(body))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files.tobytes())]
        )
        there.sendall(body)
        for writing in files:
            os.close(writing)
        (pid,) = LENGTH.unpack(_exactly(there, LENGTH.size))
        texts, in_time = _read([reading for reading, _ in ends], limit_s)
        if not in_time:
            os.kill(pid, signal.SIGKILL)
        (status,) = LENGTH.unpack(_exactly(there, LENGTH.size))
        call = [str(TARE), *words]
        if not in_time:
            raise subprocess.TimeoutExpired(call, limit_s, *texts)
        return subprocess.CompletedProcess(call, os.waitstatus_to_exitcode(status), *texts)


def _read(files: Sequence[int], limit_s: float) -> tuple[list[str], bool]:
    """Read pipes until both are closed, and close them; return whether that was in time."""
    deadline = time.monotonic() + limit_s
    found = dict.fromkeys(files, b"")
    with selectors.DefaultSelector() as open_ends:
        for file in files:
            open_ends.register(file, selectors.EVENT_READ)
        while open_ends.get_map() and (left_s := deadline - time.monotonic()) > 0:
            for key, _ in open_ends.select(left_s):
                if more := os.read(key.fd, 1 << 16):
                    found[key.fd] += more
                else:
                    open_ends.unregister(key.fd)
        in_time = not open_ends.get_map()
    for file in files:
        os.close(file)
    texts = [each.decode().replace("\r\n", "\n").replace("\r", "\n") for each in found.values()]
    return texts, in_time


def _can_fork(began_with: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether two environments differ only in variables that a command reads as it runs."""

    def read_at_start(variables: Mapping[str, str]) -> dict[str, str]:
        return {k: v for k, v in variables.items() if k.startswith(AT_START)}

    return read_at_start(now) == read_at_start(began_with)


def _installed(words: tuple[str, ...], limit_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TARE, *words], capture_output=True, text=True, timeout=limit_s, check=False
    )


def _exactly(there: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (more := there.recv(size - len(found))):
            raise EOFError("the server of commands has ended")
        found += more
    return found


COMMANDS = Commands()


# What follows runs in the server.


def _load() -> None:
    """Load all of Tare but polars: its threads would not survive a fork."""
    import tare

    sys.modules["polars"] = None  # type: ignore[assignment]
    for found in pkgutil.walk_packages(tare.__path__, "tare."):
        if not found.name.startswith("tare.testing") and not found.name.endswith("__main__"):
            # Some modules need a library that is not installed, and some polars.
            with contextlib.suppress(ImportError):
                importlib.import_module(found.name)
    del sys.modules["polars"]
    gc.collect()
    gc.freeze()


def _serve(there: socket.socket) -> None:
    """Fork a command for each request, until the tests have ended; return in a command only."""
    while True:
        start, files, _, _ = socket.recv_fds(there, LENGTH.size, 2)
        if not start:
            os._exit(0)
        (size,) = LENGTH.unpack(start + _exactly(there, LENGTH.size - len(start)))
        request = json.loads(_exactly(there, size).decode("utf-8", "surrogatepass"))
        pid = os.fork()
        if not pid:
            there.close()
            _become(request, files)
            return
        for file in files:
            os.close(file)
        there.sendall(LENGTH.pack(pid))
        there.sendall(LENGTH.pack(os.waitpid(pid, 0)[1]))


def _become(request: dict[str, object], files: list[int]) -> None:
    """Take over the state that a new process of the tests would have."""
    for wanted, file in enumerate(files, 1):
        os.dup2(file, wanted)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    os.chdir(request["folder"])  # type: ignore[arg-type]
    os.umask(request["umask"])  # type: ignore[arg-type]
    os.sched_setaffinity(0, request["cpus"])  # type: ignore[arg-type]
    sys.argv = [str(TARE), *request["words"]]  # type: ignore[misc]


def _status() -> int:
    """Run the command, and return its exit status as an interpreter would."""
    import tare.__main__  # noqa: F401 - it sets up signals and the collection of garbage
    from tare.cli.main import main

    try:
        return main()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1


def _end_as_a_process(status: int) -> NoReturn:
    """Do what an interpreter does at its end, except freeing memory, which took 0.1 s."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    # A script's own folder is the first place for modules; the command is in another one.
    sys.path[0] = str(TARE.parent)
    _load()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    _end_as_a_process(_status())
