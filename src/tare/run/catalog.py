"""The catalog of all platforms and workloads there are, by which studies are typed."""

from __future__ import annotations

import inspect

from tare.platforms import PLATFORMS
from tare.study.model import Catalog
from tare.workloads import WORKLOADS


def build_catalog() -> Catalog:
    """Return what a study may name: every platform's options and workload's parameters."""
    summaries = {f"workload/{name}": workload.summary for name, workload in WORKLOADS.items()}
    summaries |= {
        f"platform/{name}": _first_paragraph(type(platform)) for name, platform in PLATFORMS.items()
    }
    return Catalog(
        platforms={name: platform.options for name, platform in PLATFORMS.items()},
        workloads={name: workload.parameters for name, workload in WORKLOADS.items()},
        summaries=summaries,
        neighbours_only=frozenset(
            name for name, kind in WORKLOADS.items() if getattr(kind, "neighbour_only", False)
        ),
    )


def _first_paragraph(model: type) -> str:
    text = inspect.cleandoc(model.__doc__ or "")
    return " ".join(text.partition("\n\n")[0].split())
