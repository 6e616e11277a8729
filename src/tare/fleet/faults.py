"""Why a host does not carry its part of a run out."""

from __future__ import annotations

from collections.abc import Mapping

from tare.errors import TareError
from tare.run.versions import run_versions

COMPARED = ("tare",)
"""Versions that must be the controller's own."""


class PartFailed(TareError):
    """A host could not carry its part out."""


class PartRefused(PartFailed):
    """A host's part is of no use to this run, however often it is tried."""


class StaysAway(TareError):
    """Nobody stands for a host."""


def require_versions(host: str, theirs: Mapping[str, str]) -> None:
    """See that a host carries its part out with this version of Tare.

    Args:
        host: Its name.
        theirs: What its worker runs.

    Raises:
        PartFailed: It does not, and its values might mean something else.
    """
    ours = run_versions()
    for name in COMPARED:
        if theirs.get(name) != ours[name]:
            raise PartFailed(
                f"the worker has {name} {theirs.get(name)}, and the controller {ours[name]}",
                f"install the same version on {host}'s worker",
            )
