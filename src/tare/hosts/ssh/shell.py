"""Run commands on a host over SSH, even if its login shell prints text of its own.

An SSH server passes every command to the user's login shell. Its start-up files may print a
greeting, on either stream, before the command runs; a forced command may print more after it. A
random mark on a line of its own therefore precedes and follows the command's output. The command
line uses only syntax that sh, csh and fish share: single quotes, no ``!`` and no line breaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import asyncssh

from tare.errors import MachineFault
from tare.hosts.ssh.options import SshOptions
from tare.plaintext import plain_line

LONGEST_NOISE = 1 << 20
"""Bytes of other text to read before a mark; a shell that prints more is considered endless."""
_SHOWN = 300
_PIECE = 1 << 16
_BEFORE = 'printf "\\n%s\\n" {mark}; printf "\\n%s\\n" {mark} >&2; '
_AFTER = '; printf "\\n%s %s\\n" {mark} $?; printf "\\n%s\\n" {mark} >&2'

ByteProcess = asyncssh.SSHClientProcess[bytes]


class NotRun(Exception):
    """The login shell did not run a command.

    Args:
        shown: The text that the shell printed instead.
        status: The shell's exit status; None if a signal ended it, or it still runs.
        endless: Whether the shell printed more than any start-up file does.
    """

    def __init__(
        self, shown: bytes | bytearray, status: int | None, *, endless: bool = False
    ) -> None:
        self.shown = plain_line(shown.decode(errors="replace"), _SHOWN)
        self.status = status
        self.endless = endless
        super().__init__(self.shown)

    def fault(self, options: SshOptions) -> MachineFault:
        """Return the error for the user, with the command that reproduces it."""
        shown = f": {self.shown}" if self.shown else " and prints nothing"
        if self.endless:
            return MachineFault(
                f"the login shell of {options.name} prints without end{shown}",
                f"correct its start-up files (such as .bashrc); try: {options.login}",
            )
        if self.status:
            return MachineFault(
                f"the login shell of {options.name} runs no commands: it ends with status "
                f"{self.status}{shown}",
                "give the user a shell that runs commands, such as `chsh -s /bin/sh` there, or "
                f"name another user; try: {options.login}",
            )
        return MachineFault(
            f"{options.name} runs something other than the commands it is sent{shown}",
            "look for ForceCommand in its sshd_config, command= in its authorized_keys, and exit "
            f"or exec in the login shell's start-up files; try: {options.login}",
        )


@dataclass(frozen=True)
class Finished:
    """The result of a command, without the login shell's own output."""

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def words(self) -> str:
        """The command's standard error as text."""
        return self.stderr.decode(errors="replace").strip()


async def run_script(
    connection: asyncssh.SSHClientConnection, script: str, *words: str, input: bytes = b""
) -> Finished:
    """Run a POSIX shell script to its end.

    Args:
        connection: The connection to the host.
        script: One line, without ``!``.
        words: The script's arguments.
        input: The script's standard input.

    Raises:
        NotRun: The login shell ran something else, or nothing.
        asyncssh.Error, OSError: The connection broke.
    """
    mark = _new_mark()
    framed = f"{_BEFORE.format(mark=mark)}( {script} ){_AFTER.format(mark=mark)}"
    process = await connection.create_process(_sh(framed, words), encoding=None)
    try:
        feeding = asyncio.ensure_future(_feed(process, input))
        out, err = await asyncio.gather(
            _upto_end(process.stdout, mark), _upto_end(process.stderr, mark)
        )
        feeding.cancel()
        inside = _parse_marked(out, mark)
        if inside is None:
            await process.wait_closed()
            raise NotRun(out.strip() or err.strip(), process.returncode)
        content, status = inside
        return Finished(status, content, (_parse_marked(err, mark) or (err, 0))[0])
    finally:
        process.close()


async def start_program(
    connection: asyncssh.SSHClientConnection, argv: Sequence[str]
) -> tuple[ByteProcess, ProgramOutput]:
    """Start a program whose streams carry bytes of any value.

    Returns:
        The process, and an object that finds the start of its own output.
    """
    mark = _new_mark()
    framed = _BEFORE.format(mark=mark) + 'exec "$@"'
    process = await connection.create_process(_sh(framed, argv), encoding=None)
    return process, ProgramOutput(process, mark)


class ProgramOutput:
    """A program's own output, without the login shell's output before it.

    Args:
        process: The process that runs the program.
        mark: The mark that precedes the program's output.
    """

    def __init__(self, process: ByteProcess, mark: str) -> None:
        self._process = process
        self._line = _line(mark)
        self._errors = bytearray(b"\n")
        # Unread errors would fill the window that both streams share.
        self._listening = asyncio.ensure_future(self._listen())

    async def first(self) -> bytes:
        """Return the first bytes that the program itself wrote, if any.

        Raises:
            NotRun: The login shell ran something else, or nothing.
        """
        seen = bytearray(b"\n")
        while (at := seen.find(self._line)) < 0:
            piece = await self._process.stdout.read(_PIECE)
            if len(seen) > LONGEST_NOISE:
                raise NotRun(bytes(seen[:_PIECE]), None, endless=True)
            if not piece:
                await asyncio.wait({self._listening})
                await self._process.wait_closed()
                raise NotRun(seen.strip() or self._errors, self._process.returncode)
            seen += piece
        own = bytes(seen[at + len(self._line) :])
        return own or await self._process.stdout.read(_PIECE)

    async def errors(self) -> str:
        """Return the program's standard error."""
        await asyncio.wait({self._listening})
        return self._errors.rpartition(self._line)[2].decode(errors="replace").strip()

    async def _listen(self) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            while piece := await self._process.stderr.read(_PIECE):
                self._errors += piece
                del self._errors[:-LONGEST_NOISE]


def _new_mark() -> str:
    return f"tare-{secrets.token_hex(16)}"


def _line(mark: str) -> bytes:
    return f"\n{mark}\n".encode()


def _sh(script: str, words: Sequence[str]) -> str:
    return shlex.join(["sh", "-c", script, "sh", *words])


async def _feed(process: ByteProcess, input: bytes) -> None:
    # A command need not read all input; its exit status is more informative than a broken pipe.
    with contextlib.suppress(OSError, asyncssh.Error):
        process.stdin.write(input)
        await process.stdin.drain()
        process.stdin.write_eof()


async def _upto_end(stream: asyncssh.SSHReader[bytes], mark: str) -> bytes:
    """Read up to the mark after a command's output, or to the end of the stream."""
    seen = bytearray(b"\n")
    last = re.compile(rb"\n%s( [0-9]+)?\n" % mark.encode())
    while len(last.findall(seen)) < 2 and (piece := await stream.read(_PIECE)):
        seen += piece
        if len(seen) > LONGEST_NOISE:
            raise NotRun(seen[:_PIECE], None, endless=True)
    return bytes(seen)


def _parse_marked(seen: bytes, mark: str) -> tuple[bytes, int] | None:
    """Return the bytes between two marks and the status after the second; None without marks."""
    _, begun, rest = seen.partition(_line(mark))
    found = re.search(rb"\n%s(?: ([0-9]+))?\n" % mark.encode(), rest)
    if not begun or found is None:
        return None
    return rest[: found.start()], int(found[1] or 0)
