"""The interface of a host: a computer that runs commands, holds files and opens streams."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tare.plaintext import plain
from tare.study.planning.host_cpus import HostCpus

STREAM_LIMIT = 1 << 20
"""The number of bytes that a stream's reader buffers before the other end has to wait."""


@dataclass(frozen=True)
class Completed:
    """The result of a finished command: exit status (negative for a signal) and output."""

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def ok(self) -> bool:
        """Whether the command reported success."""
        return self.returncode == 0

    def words(self) -> str:
        """Return the last lines of the command's errors, or of its output if there are none."""
        output = self.stderr.strip() or self.stdout.strip()
        return plain(output.decode(errors="replace"))


class Process(ABC):
    """A running command on a host; it ends with Tare."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """The process id on its host."""

    @property
    @abstractmethod
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""

    @property
    @abstractmethod
    def stdin(self) -> asyncio.StreamWriter:
        """The stream that the process reads."""

    @property
    @abstractmethod
    def stdout(self) -> asyncio.StreamReader:
        """The stream that the process writes."""

    @abstractmethod
    async def wait(self) -> int:
        """Return the exit status once the process has ended."""

    @abstractmethod
    async def terminate(self) -> None:
        """Ask the process to end (SIGTERM); nothing happens if it already has."""

    @abstractmethod
    async def kill(self) -> None:
        """End the process at once (SIGKILL) and reap it; nothing happens if it already ended."""


_ENDS_S = 30.0
# The shell expands the pattern, because it is unquoted.
_FIRST_LINES = 'for p; do set -- "$@" $p; shift; done; exec grep -a -m 1 -sH "" "$@"'


class Host(ABC):
    """A computer that a hypervisor runs on, reached locally or over SSH."""

    name: str
    """The host's name in reports and ledgers; the same for the same computer."""
    local: bool = False
    """Whether it is the computer that Tare itself runs on, so that its files are Tare's own too."""
    _arranging: Callable[[HostCpus], HostCpus] | None = None
    _arranged: tuple[HostCpus, HostCpus] | None = None

    def arrange(self, arranging: Callable[[HostCpus], HostCpus]) -> None:
        """Set which of the host's CPUs machines use.

        Args:
            arranging: A function that takes the CPUs that were found, and returns them arranged. It
                is called again after a boot.
        """
        self._arranging, self._arranged = arranging, None

    def _as_arranged(self, cpus: HostCpus) -> HostCpus:
        if self._arranging is None:
            return cpus
        if self._arranged is None or self._arranged[0] is not cpus:
            self._arranged = cpus, self._arranging(cpus)
        return self._arranged[1]

    @cached_property
    def read_copies(self) -> set[str]:
        """The SHA-256 of copies of files on the host that were read since it was connected."""
        return set()

    @property
    def agent(self) -> Path | None:
        """The path of the host's copy of the agent; None if it is the same as on this computer."""
        return None

    @abstractmethod
    async def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run a command to its end.

        Args:
            argv: The command and its arguments; no shell is involved.
            input: Bytes for its standard input; empty by default.
            timeout_s: Time limit in seconds, after which it is killed.
            env: Variables added to the few that programs get to see; see
                :func:`tare.hosts.local.environment_for`.

        Returns:
            Exit status and output; a status other than 0 is not an error here.

        Raises:
            MachineFault: It did not end in time, or the host cannot be reached.
            InputError: There is no such command.
        """

    @abstractmethod
    async def start(
        self,
        argv: Sequence[str],
        *,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        cpus: Sequence[int] | None = None,
    ) -> Process:
        """Start a command in the background; it ends with Tare, however Tare ends.

        Args:
            argv: The command and its arguments; no shell is involved.
            log: A file that standard error is appended to; discarded by default.
            env: Variables added to the few that programs get to see; see
                :func:`tare.hosts.local.environment_for`.
            cpus: The host CPUs that it may use; all by default.

        Returns:
            The running process with its standard input and output as streams.
        """

    @abstractmethod
    async def read(self, path: str | Path) -> bytes:
        """Return a file's content; raises OSError."""

    async def first_lines(self, patterns: Sequence[str]) -> dict[str, str]:
        """Return the first line of each file that matches a shell pattern, by its path.

        Args:
            patterns: Absolute patterns without spaces or colons, such as ``/proc/1/task/*/comm``.

        Returns:
            The lines of files that could be read, except empty ones.
        """
        done = await self.run(["sh", "-c", _FIRST_LINES, "sh", *patterns], timeout_s=10)
        lines: dict[str, str] = {}
        for line in done.stdout.decode(errors="replace").split("\n"):
            path, colon, text = line.partition(":")
            if colon:
                lines.setdefault(path, text)
        return lines

    async def ends(self, folder: Path, name: str, most: int) -> dict[Path, bytes]:
        """Return the last bytes of each file of a folder, in the order of their names.

        Args:
            folder: The folder; it need not exist.
            name: A pattern of names such as ``*.log``.
            most: The largest number of bytes of each file.

        Raises:
            MachineFault: The host does not answer.
        """
        search = ["find", str(folder), "-maxdepth", "1", "-name", name, "-type", "f"]
        found = await self.run(search, timeout_s=_ENDS_S)
        ends = {}
        for path in sorted(map(Path, found.stdout.decode(errors="replace").splitlines())):
            end = await self.run(["tail", "-c", str(most), "--", str(path)], timeout_s=_ENDS_S)
            ends[path] = end.stdout
        return ends

    @abstractmethod
    async def write(self, path: str | Path, data: bytes) -> None:
        """Write a file (or a setting under /proc or /sys) in one piece; raises OSError."""

    @abstractmethod
    async def exists(self, path: str | Path) -> bool:
        """Return whether there is a file or directory at ``path``."""

    @abstractmethod
    async def remove(self, path: str | Path) -> None:
        """Remove a file or a whole directory; nothing happens if it is not there."""

    @abstractmethod
    async def connect_unix(
        self, path: str | Path
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a stream to a listening UNIX socket; raises OSError."""

    @abstractmethod
    async def open_terminal(
        self, path: str | Path
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a terminal, such as a guest's console, in raw mode; raises OSError.

        The reader reaches its end once the terminal's other side is closed.
        """

    @abstractmethod
    def boot_id(self) -> str:
        """Return the id of the host's boot; empty if the kernel gives none."""

    @abstractmethod
    def topology(self) -> HostCpus:
        """Return the CPUs that this process may use on the host, as found or arranged."""

    async def look_again(self) -> None:
        """Read the host's CPUs again, after they changed.

        Raises:
            MachineFault: The host cannot be reached, or lists no CPU.
        """
        self._arranged = None

    async def usable_cpus(self) -> tuple[int, ...]:
        """Return the CPUs that this process may use now, ascending, without reading anything else.

        Raises:
            MachineFault: The host cannot be reached, or does not list them.
        """
        return self.topology().online
