"""Write the generated parts of the documentation: ``python -m tare.run.reference [DIR]``."""

from __future__ import annotations

import sys
from pathlib import Path

from tare.platforms import reference
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.study_cells import study_table
from tare.study.reference.pages import render_markdown, render_schema
from tare.workloads.contract import Metric


def study_reference() -> str:
    """Return the reference of the study file, with all that is installed here, as Markdown."""
    return render_markdown(build_catalog(), _metrics())


def _metrics() -> dict[str, tuple[Metric, ...]]:
    return {name: workload.metrics for name, workload in installed().workloads.items()}


def study_schema() -> str:
    """Return the JSON Schema of study files, with all that is installed here."""
    return render_schema(build_catalog())


def platform_tables() -> str:
    """Return the tables of the offers and needs of each platform, as Markdown."""
    return reference.render(installed().platforms, studies=study_table())


def generated() -> dict[str, str]:
    """Return the generated files of ``docs/reference/`` by name."""
    return {"study.md": study_reference(), reference.PAGE: platform_tables()}


def main(folder: Path) -> None:
    """Write the generated files into ``folder``."""
    for name, text in generated().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/reference"))
