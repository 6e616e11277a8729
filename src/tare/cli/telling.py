"""Where commands print: styled and wrapped on a terminal; what is piped, its reader wraps.

What draws on terminals is loaded only where there is one: it took a third of a command's start.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tare.plaintext import plain

if TYPE_CHECKING:
    from rich.console import Console

ASKS_FOR_STYLE = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables by which users have a pipe taken for a terminal."""


def tell(line: str, style: str = "", *, wrapped: bool = True) -> None:
    """Print one line to standard output.

    Args:
        line: It, without its end.
        style: How it looks on a terminal.
        wrapped: Whether a terminal breaks it between words.
    """
    line = plain(line)
    if not sys.stdout.isatty() and not any(map(os.environ.get, ASKS_FOR_STYLE)):
        try:
            print(line, flush=True)
        except BrokenPipeError:
            _go_nowhere(sys.stdout)
        return
    from rich.text import Text

    console = piped_or_terminal()
    console.print(Text(line, style), soft_wrap=None if wrapped else True)


def piped_or_terminal() -> Console:
    """Return where commands print what is more than lines."""
    console = lasting()
    console.soft_wrap = not console.is_terminal
    return console


def lasting() -> Console:
    """Return a console that cleans what it prints, and goes on where nobody reads it any more.

    Rich's own ends the program there, with status 1, whatever came out: a run would be broken off
    in the middle of its event loop, and a gate that holds would fail.
    """
    from rich.console import Console

    class Lasting(Console):
        def on_broken_pipe(self) -> None:
            self.quiet = True
            _go_nowhere(self.file)

    return cleaning(Lasting(highlight=False))


def _go_nowhere(file: IO[str]) -> None:
    """Let all that is printed from now on go nowhere: whoever read it has ended."""
    with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), file.fileno())


def cleaning(console: Console) -> Console:
    """Have a console take out of all that it prints what would steer a terminal; return it.

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
