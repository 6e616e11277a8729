"""The command `tare clean`: remove what runs left behind."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli.output import print_line

if TYPE_CHECKING:
    from tare.hosts.ledger.ledger import Entry

EXIT_LEFT = 1
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
"""Seconds between checks whether the host is free. The pauses grow so that they do not disturb its
run."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(clean)


def clean(
    find: Annotated[
        bool,
        typer.Option(
            "--find",
            help="Also search this computer for resources that no ledger lists, for example after "
            "the state folder was lost. They are listed, and removed if you agree.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --find: remove what is found without asking.")
    ] = False,
    within: Annotated[
        str,
        typer.Option(
            "--within",
            metavar="TIME",
            help="If a run is in progress, wait until it ends; give up after this time, such as "
            "10m.",
        ),
    ] = "",
) -> None:
    """Remove everything that a killed run left behind, as listed in its ledger."""
    import asyncio

    from tare.hosts.ledger.cleanup import Leftover, clean_all, undo_unlisted
    from tare.hosts.ledger.finding import unlisted
    from tare.hosts.local import LocalHost
    from tare.run.lifecycle.session import agent_path, reach
    from tare.run.lifecycle.undoers import all_undoers

    host = LocalHost(agent_path())
    with _only_cleaner(within):
        done = asyncio.run(clean_all(host, all_undoers, reach))
        for sentence in done:
            print_line(sentence, wrapped=False)
        if find and (found := unlisted()):
            if _agreed(found, yes=yes):
                more = asyncio.run(undo_unlisted(host, found))
                for sentence in more:
                    print_line(sentence, wrapped=False)
            else:
                more = [Leftover(each.kind) for each in found]
            done += more
    left = sum(isinstance(sentence, Leftover) for sentence in done)
    removed = sum(type(sentence) is str for sentence in done)
    if not left:
        print_line(f"clean: {removed} removed" if removed else "clean")
        return
    print_line(f"{removed} removed, {left} left: see above", "bold red")
    raise typer.Exit(EXIT_LEFT)


def _agreed(found: Sequence[Entry], *, yes: bool) -> bool:
    """List resources that no ledger has, and return whether to remove them."""
    from tare.hosts.ledger.finding import words_of

    print_line("not in any ledger, but named as Tare names its resources:", "bold")
    for entry in found:
        print_line(f"  {words_of(entry)}", wrapped=False)
    if yes:
        return True
    if not sys.stdin.isatty():
        print_line("none of these was removed: add --yes to remove them")
        return False
    return typer.confirm(f"remove these {len(found)}?", default=False)


@contextmanager
def _only_cleaner(within: str) -> Iterator[None]:
    """Hold the host's lock; with a time limit, wait for it, and end the process at the limit.

    Raises:
        HostHeld: A run holds the host, and still holds it at the time limit.
        InputError: The time limit cannot be read.
    """
    from tare.errors import InputError
    from tare.hosts.lock import HostHeld, host_lock
    from tare.units import parse_duration

    ends, pause_s = time.monotonic(), _FIRST_PAUSE_S
    with ExitStack() as held:
        if within:
            try:
                limit_s = parse_duration(within)
            except ValueError as error:
                raise InputError(f"--within: {error}") from error
            ends += limit_s
            # This uses a separate thread, because a hanging call may ignore signals.
            timer = threading.Timer(limit_s, _give_up, [within])
            timer.daemon = True
            timer.start()
            held.callback(timer.cancel)
        while True:
            try:
                held.enter_context(host_lock("clean"))
                break
            except HostHeld:
                if time.monotonic() >= ends:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        yield


def _give_up(within: str) -> None:
    print(f"gave up after {within}; to remove what is left, run: tare clean", flush=True)
    os._exit(EXIT_LEFT)
