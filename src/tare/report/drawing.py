"""Draw figures: Vega-Lite to SVG for page and file, and from that PNG and PDF."""

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
from tare.report.painter import EXTENSIONS, Job, paint
from tare.report.svg import inline_svg

WORTH_HELP = 5
"""Fewer figures than this are drawn sooner without a helper process."""


@dataclass(frozen=True)
class Drawn:
    """A figure as the page holds it: ``wide`` and, where it differs, ``narrow`` inline SVG."""

    figure: Figure
    wide: str
    narrow: str | None
    files: tuple[str, ...]


class Studio:
    """Draws figures into a folder, with a helper process where that saves time.

    Use it as a context manager: hand figures over as they become known with :meth:`add`, and ask
    for all of them at the end with :meth:`drawn`. The helper draws from the first figure on,
    this process from the last one backwards, once asked.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._figures: dict[str, Figure] = {}
        self._waiting: deque[str] = deque()
        self._painted: dict[str, list[str]] = {}
        self._helper: subprocess.Popen[bytes] | None = None
        self._feeder: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._waiting.clear()
        if self._helper is not None and kind is not None:
            self._helper.kill()
        self._join()

    def add(self, figures: Sequence[Figure]) -> None:
        """Hand over ``figures``, whose names must be unique in the folder."""
        for figure in figures:
            self._figures[figure.name] = figure
            self._waiting.append(figure.name)
        if self._helper is None and len(self._waiting) >= WORTH_HELP and (os.cpu_count() or 1) > 1:
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
            self._helper = subprocess.Popen(
                [sys.executable, "-m", "tare.report.painter"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return
        self._feeder = threading.Thread(target=self._feed, args=(self._helper,), daemon=True)
        self._feeder.start()

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
        if self._feeder is not None:
            self._feeder.join()
            self._feeder = None
        if self._helper is not None:
            helper, self._helper = self._helper, None
            helper.kill()
            helper.wait()
            for pipe in (helper.stdin, helper.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def _job(self, name: str) -> Job:
        figure = self._figures[name]
        stem = str(self._folder / figure.name)
        return Job(stem=stem, spec=figure.spec, narrow=figure.narrow)

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
            files=tuple(f"figures/{name}.{extension}" for extension in EXTENSIONS),
        )


def _taken(take: Callable[[], str]) -> str | None:
    """Take one from the queue that two threads share; None when it is empty."""
    try:
        return take()
    except IndexError:
        return None


def draw(figures: Sequence[Figure], folder: Path) -> dict[str, Drawn]:
    """Draw all ``figures``, write NAME.svg, NAME.png and NAME.pdf into ``folder``.

    Args:
        figures: What to draw; names must be unique.
        folder: Exists already.

    Returns:
        The drawn figures by name.
    """
    with Studio(folder) as studio:
        studio.add(figures)
        return studio.drawn()
