"""Write the reference of the study file: ``python -m tare.run.reference [DIR]``."""

from __future__ import annotations

import sys
from pathlib import Path

from tare.run.catalog import build_catalog
from tare.study.reference import render
from tare.workloads import WORKLOADS


def generated() -> dict[str, str]:
    """Return the generated files of ``docs/`` by name."""
    metrics = {name: workload.metrics for name, workload in WORKLOADS.items()}
    return render(build_catalog(), metrics)


def main(folder: Path) -> None:
    """Write the generated files into ``folder``."""
    for name, text in generated().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs"))
