"""Where commands print: styled and wrapped on a terminal; what is piped, its reader wraps.

What draws on terminals is loaded only where there is one: it took a third of a command's start.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

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
        print(line, flush=True)
        return
    from rich.text import Text

    console = piped_or_terminal()
    console.print(Text(line, style), soft_wrap=None if wrapped else True)


def piped_or_terminal() -> Console:
    """Return where commands print what is more than lines."""
    from rich.console import Console

    console = cleaning(Console(highlight=False))
    console.soft_wrap = not console.is_terminal
    return console


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
