"""Why a host does not carry its part of a run out."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from tare.errors import TareError
from tare.fleet.wire import Ended
from tare.run.lifecycle.versions import run_versions

COMPARED = ("tare", "distributed")
"""Versions that must be the controller's own: what values mean, and what carries messages.

Python's and the libraries' may differ from host to host: each host's are in its `host_joined`.
"""


class PartFailed(TareError):
    """A host could not carry its part out."""


class HostTaken(PartFailed):
    """Another run holds a host: one that somebody else began, or what a killed worker left."""


class PartRefused(PartFailed):
    """A host's part is of no use to this run, however often it is tried."""


class HostGone(TareError):
    """The worker of an attempt is gone; what it had not finished is measured again."""


class ClusterGone(TareError):
    """The scheduler does not answer any more."""


class StaysAway(TareError):
    """Nobody stands for a host."""


def fault_of(ended: Ended) -> PartFailed:
    """Return why a host's part is over, where it is for a reason."""
    kind = PartRefused if ended.final else HostTaken if ended.taken else PartFailed
    return kind(ended.reason, ended.hint)


def fleet_versions() -> dict[str, str]:
    """Return the versions of a run, and that of Dask."""
    return {**run_versions(), "distributed": version("distributed")}


def require_versions(host: str, theirs: Mapping[str, str]) -> None:
    """See that a host carries its part out with this version of Tare, and of Dask.

    Args:
        host: Its name.
        theirs: What its worker runs.

    Raises:
        PartRefused: It does not, and its values might mean something else; trying again
            changes nothing.
    """
    ours = fleet_versions()
    for name in COMPARED:
        has = theirs.get(name, "of unknown version")
        if has != ours[name]:
            raise PartRefused(
                f"the worker has {name} {has}, and the controller {ours[name]}",
                f"install the same version on {host}'s worker",
            )
