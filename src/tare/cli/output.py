"""Output of commands: styled and wrapped on a terminal, plain when piped.

Terminal libraries are loaded only for terminals: they took a third of a command's start.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from tare.plaintext import plain

if TYPE_CHECKING:
    from rich.console import Console

ASKS_FOR_STYLE = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables that make a pipe count as a terminal."""


_SPELLED = {
    letter: spelled
    for letters, spelled in (
        ("\u2713", "+"), ("\u2717\u00d7", "x"), ("\u2013\u2014\u2500\u2212", "-"),
        ("\u2026", "..."), ("\u00b5", "u"), ("\u00b1", "+/-"), ("\u2265", ">="),
        ("\u2264", "<="), ("\u2192", "->"), ("\u2501", "="), ("\u2502", "|"), ("\u2022", "*"),
        ("\u2018\u2019", "'"), ("\u201c\u201d", '"'),
    )
    for letter in letters
}  # fmt: skip
"""Replacements of characters that a locale lacks; a question mark replaces all others."""
_REPLACING = "tare-spelled"


def prepare_streams() -> None:
    """Make the standard streams writable, however Tare was started, and in any locale.

    A closed stream is opened on /dev/null; otherwise the next file would get its number. Characters
    that the locale lacks are replaced. Failed writes to standard error are ignored.
    """
    codecs.register_error(_REPLACING, _replaced)
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
    # Python sets these to None if the descriptor was closed at the start.
    sys.stdin = sys.stdin or os.fdopen(0, "r", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_REPLACING)
    sys.stderr = cast(TextIO, _Forgiving(sys.stderr))


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_SPELLED.get(letter, "?") for letter in text), error.end


class _Forgiving:
    """A stream that survives failures: a full disk, a lost terminal, a reader that has ended.

    After the first failure, output is discarded; standard error reports that once.
    """

    def __init__(self, stream: TextIO, warning: str = "") -> None:
        self._stream = stream
        self._warning = warning

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or discard it."""
        with self._forgiven():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or discard the buffer."""
        with self._forgiven():
            self._stream.flush()

    @contextmanager
    def _forgiven(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            # ValueError means that it is closed.
            _go_nowhere(self._stream)
            if self._warning and not isinstance(error, BrokenPipeError):
                sys.stderr.write(f"tare: {self._warning}: {error}\n")
            self._warning = ""


@contextmanager
def lasting_output() -> Iterator[None]:
    """Keep a run going even if standard output fails."""
    before = sys.stdout
    sys.stdout = cast(TextIO, _Forgiving(before, "the output cannot be written, and is discarded"))
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = before


def is_piped() -> bool:
    """Return whether standard output takes plain lines, which need no terminal library."""
    return not sys.stdout.isatty() and not any(map(os.environ.get, ASKS_FOR_STYLE))


def print_line(line: str, style: str = "", *, wrapped: bool = True) -> None:
    """Print one line to standard output.

    Args:
        line: The line, without its end.
        style: Its style on a terminal.
        wrapped: Whether a terminal wraps it between words.
    """
    line = plain(line)
    if is_piped():
        try:
            print(line, flush=True)
        except BrokenPipeError:
            _go_nowhere(sys.stdout)
        return
    from rich.text import Text

    console = piped_or_terminal()
    console.print(Text(line, style), soft_wrap=None if wrapped else True)


def piped_or_terminal() -> Console:
    """Return the console for output other than single lines."""
    console = lasting()
    console.soft_wrap = not console.is_terminal
    return console


def lasting() -> Console:
    """Return a console that cleans its output and keeps going when its reader ends.

    In that case Rich's own console exits with status 1. That would stop a run in the middle of its
    event loop, and fail a gate that holds.
    """
    from rich.console import Console

    class Lasting(Console):
        def on_broken_pipe(self) -> None:
            self.quiet = True
            _go_nowhere(self.file)

    return cleaning(Lasting(highlight=False))


def _go_nowhere(file: IO[str]) -> None:
    """Discard all further output, because its reader has ended."""
    with suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), file.fileno())


def cleaning(console: Console) -> Console:
    """Make a console remove terminal control sequences from all output, and return it.

    Titles, notes and names come from studies and folders that others made.
    """
    from rich.console import ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
    from rich.segment import Segment

    class Clean:
        def __init__(self, inner: ConsoleRenderable) -> None:
            self._inner = inner

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for segment in console.render(self._inner, options):
                text, style, control = segment
                yield segment if control else Segment(plain(text), style)

    class Hook(RenderHook):
        def process_renderables(
            self, renderables: list[ConsoleRenderable]
        ) -> list[ConsoleRenderable]:
            return [Clean(each) for each in renderables]

    console.push_render_hook(Hook())
    return console
