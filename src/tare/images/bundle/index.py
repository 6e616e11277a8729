"""What bundles brought into the cache: found by name, and kept for any time."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tare.errors import InputError

INDEX = "imported.json"
_AGAIN = "import it again (`tare image import FILE`), or use the distribution's packages: rm "


class Index(BaseModel):
    """What was imported.

    Args:
        kernels: Name to key.
        toolboxes: Kind to key and recipe.
        installed: The bundles of installed packages: file, size and time, as imported.
    """

    model_config = ConfigDict(frozen=True)

    kernels: dict[str, str] = {}
    toolboxes: dict[str, tuple[str, str]] = {}
    installed: dict[str, str] = {}

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all that was imported."""
        return frozenset(self.kernels.values()) | {key for key, _ in self.toolboxes.values()}


def read_index(cache: Path) -> Index:
    """Return what was imported into a cache; nothing where nothing was."""
    try:
        return Index.model_validate_json((cache / INDEX).read_bytes())
    except (OSError, ValidationError):
        return Index()


def damaged(cache: Path, what: str) -> InputError:
    """Return the error for an imported part that the cache no longer holds intact."""
    return InputError(
        f"the imported {what} in the cache is damaged or was removed", f"{_AGAIN}{cache / INDEX}"
    )
