"""Draw figures: Vega-Lite to SVG for page and file, and from that PNG and PDF where asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tare.report.figures.frame import Figure
from tare.report.painter import EXTENSIONS, SVG, Job, paint
from tare.report.svg import inline_svg

WORTH_HELP = 5
"""A helper process is worth its start for so many figures."""


@dataclass(frozen=True)
class Drawn:
    """A figure as the page holds it: ``wide`` and, where it differs, ``narrow`` inline SVG."""

    figure: Figure
    wide: str
    narrow: str | None
    files: tuple[str, ...]


@dataclass(frozen=True)
class Noted:
    """A drawn figure with what is said below it."""

    drawn: Drawn
    note: str = ""


class Studio:
    """Draws figures into a folder, with a helper process on each other CPU where that saves time.

    Use it as a context manager: hand figures over as they become known with :meth:`add`, and ask
    for all of them at the end with :meth:`drawn`. Helpers draw from the first figure on, this
    process from the last one backwards, once asked.

    Args:
        folder: Where the files go; it exists.
        formats: What each figure is drawn as, out of `EXTENSIONS`; SVG always.
    """

    def __init__(self, folder: Path, formats: Sequence[str] = (SVG,)) -> None:
        self._folder = folder
        self._formats = tuple(each for each in EXTENSIONS if each == SVG or each in formats)
        self._figures: dict[str, Figure] = {}
        self._waiting: deque[str] = deque()
        self._painted: dict[str, list[str]] = {}
        self._helpers: list[tuple[subprocess.Popen[bytes], threading.Thread]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._waiting.clear()
        if kind is not None:
            for helper, _ in self._helpers:
                helper.kill()
        self._join()

    def add(self, figures: Sequence[Figure]) -> None:
        """Hand over ``figures``, whose names must be unique in the folder."""
        for figure in figures:
            self._figures[figure.name] = figure
            self._waiting.append(figure.name)
        if not self._helpers:
            spare = (os.cpu_count() or 1) - 1
            for _ in range(min(spare, len(self._waiting) // WORTH_HELP)):
                self._start_helper()

    def drawn(self) -> dict[str, Drawn]:
        """Draw what is left, wait for the helper, and return all figures in order of handing over.

        Raises:
            OSError: A file cannot be written.
            ValueError: A figure cannot be drawn.
        """
        while (name := _taken(self._waiting.pop)) is not None:
            self._painted[name] = paint(self._job(name))
        self._join()
        for name in self._figures:
            # What a helper that died had in hand is drawn here, where a fault can be told.
            if name not in self._painted:
                self._painted[name] = paint(self._job(name))
        return {name: self._finish(name) for name in self._figures}

    def _start_helper(self) -> None:
        try:
            helper = subprocess.Popen(
                [sys.executable, "-m", "tare.report.painter"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return
        feeder = threading.Thread(target=self._feed, args=(helper,), daemon=True)
        feeder.start()
        self._helpers.append((helper, feeder))

    def _feed(self, helper: subprocess.Popen[bytes]) -> None:
        assert helper.stdin is not None and helper.stdout is not None
        try:
            while (name := _taken(self._waiting.popleft)) is not None:
                helper.stdin.write(json.dumps(self._job(name)).encode() + b"\n")
                helper.stdin.flush()
                answer = helper.stdout.readline()
                if not answer.endswith(b"\n"):
                    break
                self._painted[name] = json.loads(answer)
        except OSError:
            pass  # the helper is gone; what it had in hand is drawn by this process

    def _join(self) -> None:
        helpers, self._helpers = self._helpers, []
        for helper, feeder in helpers:
            feeder.join()
            helper.kill()
            helper.wait()
            for pipe in (helper.stdin, helper.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def _job(self, name: str) -> Job:
        figure = self._figures[name]
        stem = str(self._folder / figure.name)
        return Job(
            stem=stem, spec=figure.spec, narrow=figure.narrow, extensions=list(self._formats)
        )

    def _finish(self, name: str) -> Drawn:
        figure = self._figures[name]
        dresses = [
            inline_svg(svg, name=id_, title=figure.title, description=figure.description)
            for svg, id_ in zip(self._painted[name], (name, f"{name}-narrow"), strict=False)
        ]
        return Drawn(
            figure=figure,
            wide=dresses[0],
            narrow=dresses[1] if len(dresses) > 1 else None,
            files=tuple(f"figures/{name}.{extension}" for extension in self._formats),
        )


def _taken(take: Callable[[], str]) -> str | None:
    """Take one from the queue that two threads share; None when it is empty."""
    try:
        return take()
    except IndexError:
        return None


def draw(
    figures: Sequence[Figure], folder: Path, formats: Sequence[str] = (SVG,)
) -> dict[str, Drawn]:
    """Draw all ``figures``, and write NAME.svg and so on into ``folder``.

    Args:
        figures: What to draw; names must be unique.
        folder: Exists already.
        formats: What each is drawn as, out of `EXTENSIONS`; SVG always.

    Returns:
        The drawn figures by name.
    """
    with Studio(folder, formats) as studio:
        studio.add(figures)
        return studio.drawn()
