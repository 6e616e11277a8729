"""Files that a study names: they are not sent to workers, and lie at the same path there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tare.errors import InputError

LAB_FILES = ("xen", "kernel", "qemu")
MOST_NAMED = 5


class FilesMissing(InputError):
    """A worker's computer lacks files that the study names."""


def files_booted(stored: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the kernels, hypervisors and emulators that a stored study names by their paths.

    Args:
        stored: The study, as in a run's events.
    """
    lab = stored.get("lab") or {}
    arms = stored.get("arms", {}).values()
    named = [stored.get("kernel"), *(arm.get("kernel") for arm in arms)]
    if isinstance(lab, Mapping):
        named += [lab.get(each) for each in LAB_FILES]
    for each in named:
        if isinstance(each, str) and "/" in each:
            yield Path(each)


def require_here(files: Iterable[Path]) -> None:
    """See that files of a study are on this computer.

    Raises:
        FilesMissing: Some are not.
    """
    missing = [str(path) for path in dict.fromkeys(files) if not path.exists()]
    if missing:
        more = len(missing) - MOST_NAMED
        said = ", ".join(missing[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        raise FilesMissing(
            f"the study names files that the worker's computer lacks: {said}",
            "put them at the same paths there; they are not sent",
        )
