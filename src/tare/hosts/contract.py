"""What a host is: a computer that runs commands, holds files and opens streams."""

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
"""Bytes that a stream's reader holds before the other end has to wait."""


@dataclass(frozen=True)
class Completed:
    """What a finished command left: its exit status (negative: the signal) and its output."""

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def ok(self) -> bool:
        """Whether the command reported success."""
        return self.returncode == 0

    def words(self) -> str:
        """Return the last lines of the command's errors, or of its output if there are none."""
        said = self.stderr.strip() or self.stdout.strip()
        return plain(said.decode(errors="replace"))


class Process(ABC):
    """A running command on a host; it dies with Tare."""

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
# Unquoted, a pattern is replaced by what it names.
_FIRST_LINES = 'for p; do set -- "$@" $p; shift; done; exec grep -a -m 1 -sH "" "$@"'


class Host(ABC):
    """A computer that a hypervisor runs on, reached locally or over SSH."""

    name: str
    """How reports and ledgers call it; the same for the same computer."""
    local: bool = False
    """Whether it is the computer that Tare itself runs on, whose files are Tare's own too."""
    _arranging: Callable[[HostCpus], HostCpus] | None = None
    _arranged: tuple[HostCpus, HostCpus] | None = None

    def arrange(self, arranging: Callable[[HostCpus], HostCpus]) -> None:
        """Say which of the host's CPUs are for machines.

        Args:
            arranging: Returns the CPUs that were found, arranged; it is asked again after a boot.
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
        """The SHA-256 of copies of files on the host that were read since it was reached."""
        return set()

    @property
    def agent(self) -> Path | None:
        """Where the host has its own copy of the agent; None: where this computer has it."""
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
            input: Bytes for its standard input, which is empty otherwise.
            timeout_s: Seconds after which it is killed.
            env: Variables added to the few that programs get to see; see
                :func:`tare.hosts.local.environment_for`.

        Returns:
            Exit status and output; a status other than 0 is not an error here.

        Raises:
            MachineFault: It did not end in time; or the host cannot be reached.
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
        """Start a command that lives on, and that dies with Tare whatever ends Tare.

        Args:
            argv: The command and its arguments; no shell is involved.
            log: A file that standard error is appended to; thrown away otherwise.
            env: Variables added to the few that programs get to see; see
                :func:`tare.hosts.local.environment_for`.
            cpus: The host CPUs that it may use; all otherwise.

        Returns:
            The running process with its standard input and output as streams.
        """

    @abstractmethod
    async def read(self, path: str | Path) -> bytes:
        """Return a file's content; raises OSError."""

    async def first_lines(self, patterns: Sequence[str]) -> dict[str, str]:
        """Return the first line of each file that a pattern of the shell names, by its path.

        Args:
            patterns: Absolute, without spaces or colons, such as ``/proc/1/task/*/comm``.

        Returns:
            What could be read; files that vanish meanwhile, or are empty, are left out.
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
            folder: The folder; nothing is found where it is not there.
            name: A pattern of names such as ``*.log``.
            most: How many bytes of each, at the most.

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
        """Open a terminal, such as a guest's console, for all byte values; raises OSError.

        Its reader is at its end once the terminal's other side is closed.
        """

    @abstractmethod
    def boot_id(self) -> str:
        """Return the id that the host's kernel gave its boot; empty where it gives none."""

    @abstractmethod
    def topology(self) -> HostCpus:
        """Return the CPUs this process may use on the host, as they were found or arranged."""

    async def look_again(self) -> None:
        """Read the host's CPUs again, after they changed.

        Raises:
            MachineFault: The host cannot be reached, or names no CPU.
        """
        self._arranged = None

    async def usable_cpus(self) -> tuple[int, ...]:
        """Return the CPUs that this process may use now, ascending; asks for no more than that.

        Raises:
            MachineFault: The host cannot be reached, or does not say.
        """
        return self.topology().online
