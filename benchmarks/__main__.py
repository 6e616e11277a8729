"""Run the benchmarks: ``python -m benchmarks [NAME...]``, all of them when none is named."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import traceback
from pathlib import Path

from benchmarks import _results

PACKAGE = Path(__file__).parent


def names() -> list[str]:
    """Return the names of all benchmarks: the modules that begin with no underscore."""
    found = (module.name for module in pkgutil.iter_modules([str(PACKAGE)]))
    return sorted(name for name in found if not name.startswith("_"))


def run(name: str) -> int:
    """Run one benchmark; return its exit status, 1 when it broke."""
    print(f"== {name}", flush=True)
    try:
        main = importlib.import_module(f"benchmarks.{name}").main
        return int(main([]))
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
    parser.add_argument(
        "--markdown", action="store_true", help="measure nothing; show the kept results as a table"
    )
    wanted = parser.parse_args(argv)
    if wanted.markdown:
        print(_results.markdown())
        return 0
    if unknown := [name for name in wanted.names if name not in known]:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    statuses = {name: run(name) for name in wanted.names or known}
    print()
    for name, status in statuses.items():
        print(f"{'ok    ' if status == 0 else 'MISSED'} {name}")
    return int(any(statuses.values()))


if __name__ == "__main__":
    sys.exit(main())
