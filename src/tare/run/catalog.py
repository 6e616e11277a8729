"""The catalog of all platforms and workloads there are, by which studies are typed."""

from __future__ import annotations

import inspect

from tare.registry import installed
from tare.study.model.study import Catalog


def build_catalog() -> Catalog:
    """Return what a study may name: every platform's options and workload's parameters."""
    parts = installed()
    summaries = {f"workload/{name}": workload.summary for name, workload in parts.workloads.items()}
    summaries |= {
        f"platform/{name}": _first_paragraph(type(platform))
        for name, platform in parts.platforms.items()
    }
    return Catalog(
        platforms={name: platform.options for name, platform in parts.platforms.items()},
        workloads={name: workload.parameters for name, workload in parts.workloads.items()},
        summaries=summaries,
        roles=frozenset(role for kind in parts.workloads.values() for role in kind.roles),
        neighbours_only=frozenset(
            name for name, kind in parts.workloads.items() if kind.neighbour_only
        ),
        products={
            name: platform.product for name, platform in parts.platforms.items() if platform.product
        },
        known_as={
            word: ", ".join(filter(None, (name, besides)))
            for name, platform in parts.platforms.items()
            for word, besides in platform.known_as.items()
        },
        left_out={f"{part.kind}/{part.name}": part.because for part in parts.broken},
    )


def _first_paragraph(model: type) -> str:
    text = inspect.cleandoc(model.__doc__ or "")
    return " ".join(text.partition("\n\n")[0].split())
