"""The index of parts that bundles brought into the cache: found by name, and never expired."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tare.errors import InputError

INDEX = "imported.json"
_AGAIN = "import it again (`tare image import FILE`), or use the distribution's packages: rm "


class Index(BaseModel):
    """The imported kernels and toolboxes.

    Args:
        kernels: Maps a kernel's name to its key in the cache.
        toolboxes: Maps a toolbox's kind to its key in the cache and its recipe.
        installed: Maps each imported bundle of an installed package (its file) to the size and
            time that the file had.
    """

    model_config = ConfigDict(frozen=True)

    kernels: dict[str, str] = {}
    toolboxes: dict[str, tuple[str, str]] = {}
    installed: dict[str, str] = {}

    @property
    def keys(self) -> frozenset[str]:
        """The cache keys of all imported kernels and toolboxes."""
        return frozenset(self.kernels.values()) | {key for key, _ in self.toolboxes.values()}


def read_index(cache: Path) -> Index:
    """Return a cache's index; it is empty if nothing was imported, or if it cannot be read."""
    try:
        return Index.model_validate_json((cache / INDEX).read_bytes())
    except (OSError, ValidationError):
        return Index()


def damaged(cache: Path, what: str) -> InputError:
    """Return the error for an imported part that the cache no longer holds intact."""
    return InputError(
        f"the imported {what} in the cache is damaged or was removed", f"{_AGAIN}{cache / INDEX}"
    )
