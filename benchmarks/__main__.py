"""Run the benchmarks: ``python -m benchmarks [NAME...]``, all of them when none is named."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks import _published
from benchmarks._results import kept_goals

PACKAGE = Path(__file__).parent
SHORT: dict[str, tuple[str, ...]] = {
    "boot_time": ("--only", "cloud"),
    "tick_loop": ("--seconds", "1"),
    "harness_overhead": ("--blocks", "2"),
    "analysis_speed": ("--times", "3"),
    "http_generator": ("--rounds", "6", "--seconds", "1", "--endurance", "0"),
    "command_start": (),
    "placement_scale": (),
    "scaling": ("--most", "1000", "--times", "1", "--skip-run"),
}
"""The benchmarks of ``make bench-short`` with their options: at most 15 minutes on two CPUs."""


def names() -> list[str]:
    """Return the names of all benchmarks: the modules that begin with no underscore."""
    found = (module.name for module in pkgutil.iter_modules([str(PACKAGE)]))
    return sorted(name for name in found if not name.startswith("_"))


def run(name: str, options: Sequence[str] = ()) -> int:
    """Run one benchmark with options of its own; return its exit status, 1 when it broke."""
    print(f"== {name}", *options, flush=True)
    try:
        main = importlib.import_module(f"benchmarks.{name}").main
        return int(main(list(options)))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except Exception:
        traceback.print_exc()
        return 1


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks that ``argv`` names.

    Returns:
        0 when every goal was met, 1 when one was missed or a benchmark broke.
    """
    known = names()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures Tare against its peers in the same run; exits with 1 when a goal "
        "is missed. For a benchmark's own options: python -m benchmarks.NAME --help",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"out of: {', '.join(known)}")
    parser.add_argument("--short", action="store_true", help=f"the short run: {', '.join(SHORT)}")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="measure nothing; put the kept results of NAME... into benchmarks/published and docs",
    )
    parser.add_argument(
        "--page", action="store_true", help="measure nothing; fill the table of docs again"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="measure nothing; fail where docs present a stale result as current",
    )
    wanted = parser.parse_args(argv)
    if unknown := [name for name in wanted.names if name not in known]:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    if wanted.check:
        faults = _published.check()
        print(*faults, sep="\n", end="\n" if faults else "")
        return int(bool(faults))
    if wanted.publish or wanted.page:
        for name in wanted.names if wanted.publish else ():
            print(_published.publish(name))
        page = _published.PAGE
        page.write_text(_published.fill(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(page)
        return 0
    began = time.time()
    options = SHORT if wanted.short else {}
    statuses = {name: run(name, options.get(name, ())) for name in wanted.names or options or known}
    print()
    for name, status in statuses.items():
        print(f"{'ok    ' if status == 0 else 'MISSED'} {name}")
        for line in kept_goals(name, began):
            print(f"    {line}")
    return int(any(statuses.values()))


if __name__ == "__main__":
    sys.exit(main())
