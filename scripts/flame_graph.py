"""Draw where the CPU time of ``tare run`` goes before it starts the first machine.

usage: python -m scripts.flame_graph record STUDY STACKS
       python -m scripts.flame_graph draw SVG TITLE=STACKS...

``record`` runs a study in this process, and takes the stack of the running thread at each tick of
its CPU time (ITIMER_PROF), so that a busy computer does not change the picture. It ends when the
run is about to start a machine; the machine is never started. Several recordings into one file are
averaged. To record another version of Tare, set PYTHONPATH to its ``src``. ``draw`` draws
recordings one below the other, on one scale.
"""

from __future__ import annotations

import html
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import FrameType

EVERY_S = 0.001
RUN = "# one recording"
WAITING = {"select", "wait", "_worker"}
"""Functions in which a thread waits: their CPU time belongs to another thread."""
ROW, WIDTH, LEFT, FONT = 15, 1160, 10, 11
LEAST_PX = 4.0
DEEPEST = 26
COLOURS = ("#fbd38d", "#f6ad55", "#faf089", "#fc8181", "#f6e05e", "#feb2b2")
OWN_COLOURS = ("#90cdf4", "#63b3ed", "#9ae6b4", "#81e6d9")


@dataclass
class Node:
    """One function on a stack, with all that it calls."""

    name: str
    seconds: float = 0.0
    children: dict[str, Node] = field(default_factory=dict)

    def add(self, stack: Sequence[str], seconds: float) -> None:
        """Add the CPU time of a stack below this function."""
        self.seconds += seconds
        if stack:
            first, *rest = stack
            self.children.setdefault(first, Node(first)).add(rest, seconds)


def record(study: str, stacks: Path) -> None:
    """Run a study up to its first machine, and write the stacks with their samples."""
    found: Counter[str] = Counter()

    def sample(number: int, interrupted: FrameType | None) -> None:
        del number
        running = interrupted
        if running is not None and running.f_code.co_name in WAITING:
            here = threading.get_ident()
            others = (frame for key, frame in sys._current_frames().items() if key != here)
            running = next((f for f in others if f.f_code.co_name not in WAITING), running)
        found[";".join(_names(running))] += 1

    def end() -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        # A tick of the kernel is longer than EVERY_S, so samples share the CPU time that was used.
        each_s = time.process_time() / found.total()
        with stacks.open("a") as file:
            file.write(f"{RUN}\n")
            file.writelines(f"{stack} {count * each_s:.6f}\n" for stack, count in found.items())
        # End at once, because the rest of the run is not recorded.
        os._exit(0)

    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
    with tempfile.TemporaryDirectory(prefix="tare-flame-") as folder:
        sys.argv = ["tare", "run", study, "--out", str(Path(folder, "run"))]
        command = import_module("tare.__main__")
        from tare.events import Event, EventLog, Record

        append = EventLog.append

        def until_machine(log: EventLog, event: Event) -> Record:
            if event.type == "machine_starting":
                end()
            return append(log, event)

        EventLog.append = until_machine  # type: ignore[method-assign,assignment]
        try:
            command.main()
        finally:
            # Only reached if no machine was started, for example because another run has the host.
            signal.setitimer(signal.ITIMER_PROF, 0)


def _names(frame: FrameType | None) -> list[str]:
    """Return the names on a stack, the outermost first, without the import machinery."""
    names: list[str] = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(("importlib._bootstrap", "scripts.", "__main__")):
            name = frame.f_code.co_name
            names.append(f"import {module}" if name == "<module>" else f"{module}.{name}")
        frame = frame.f_back
    return names[::-1]


def _read(stacks: Path) -> Node:
    root, lines = Node("all"), stacks.read_text().splitlines()
    runs = lines.count(RUN)
    for line in lines:
        if line != RUN:
            stack, _, seconds = line.rpartition(" ")
            root.add(stack.split(";")[:DEEPEST], float(seconds) / runs)
    return root


def _depth(node: Node) -> int:
    return 1 + max((_depth(child) for child in node.children.values()), default=0)


def _boxes(node: Node, x: float, row: int, scale: float, top: int) -> Iterator[str]:
    width = node.seconds * scale
    if width < LEAST_PX:
        return
    own = "tare" in node.name
    colours = OWN_COLOURS if own else COLOURS
    y, colour = top + row * ROW, colours[sum(map(ord, node.name)) % len(colours)]
    share = html.escape(f"{node.name}: {node.seconds:.3f} s of CPU time")
    letters = int(width / (FONT * 0.56))
    words = node.name if len(node.name) <= letters else node.name[: max(0, letters - 1)] + "…"
    text = f'<text x="{x + 2:.1f}" y="{y + 11}">{html.escape(words)}</text>' if letters > 3 else ""
    yield (
        f'<g><title>{share}</title><rect x="{x:.1f}" y="{y}" width="{max(width - 0.3, 0.2):.1f}" '
        f'height="{ROW - 1}" fill="{colour}"/>{text}</g>'
    )
    for child in sorted(node.children.values(), key=lambda each: each.name):
        yield from _boxes(child, x, row + 1, scale, top)
        x += child.seconds * scale


def draw(recordings: Sequence[tuple[str, Path]]) -> str:
    """Return an SVG of recordings, one below the other, on one scale."""
    roots = [(title, _read(path)) for title, path in recordings]
    scale = WIDTH / max(root.seconds for _, root in roots)
    parts, top = [], 10
    for title, root in roots:
        words = html.escape(f"{title}: {root.seconds:.2f} s of CPU time")
        parts.append(f'<text x="{LEFT}" y="{top + 13}" font-weight="bold">{words}</text>')
        parts += _boxes(root, LEFT, 0, scale, top + 20)
        top += 20 + _depth(root) * ROW + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 2 * LEFT}" height="{top}" '
        f'viewBox="0 0 {WIDTH + 2 * LEFT} {top}" font-family="sans-serif" font-size="{FONT}">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def main(argv: Sequence[str]) -> int:
    """Record or draw; see the module's docstring."""
    match argv:
        case ["record", study, stacks]:
            record(study, Path(stacks).resolve())
        case ["draw", picture, *given] if given:
            recordings = [
                (title, Path(path)) for title, _, path in (g.partition("=") for g in given)
            ]
            Path(picture).write_text(draw(recordings), encoding="utf-8")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
