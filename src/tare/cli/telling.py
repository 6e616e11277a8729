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
    if not sys.stdout.isatty() and not any(map(os.environ.get, ASKS_FOR_STYLE)):
        print(plain(line), flush=True)
        return
    from rich.text import Text

    console = piped_or_terminal()
    console.print(Text(line, style), soft_wrap=None if wrapped else True)


def piped_or_terminal() -> Console:
    """Return where commands print what is more than lines."""
    from rich.console import Console

    console = Console(highlight=False)
    console.soft_wrap = not console.is_terminal
    return console
