"""Faults of hosts and of the cluster in a shared run."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from tare.errors import TareError
from tare.fleet.wire import Ended
from tare.run.lifecycle.versions import run_versions

COMPARED = ("tare", "distributed")
"""Programs whose version must equal the controller's: for the meaning of values, and for messages.

Versions of Python and libraries may differ between hosts: each `host_joined` event has them.
"""


class PartFailed(TareError):
    """A host could not run its part."""


class HostTaken(PartFailed):
    """Another run has locked a host: somebody else's, or the rest of a killed worker's run."""


class PartRefused(PartFailed):
    """A host cannot take part in this run, and trying again does not help."""


class HostGone(TareError):
    """The worker of an attempt is gone; its unfinished cells are measured again."""


class ClusterGone(TareError):
    """The scheduler no longer answers."""


class StaysAway(TareError):
    """A host has no worker for too long."""


def fault_of(ended: Ended) -> PartFailed:
    """Return the fault that ended a host's part."""
    kind = PartRefused if ended.final else HostTaken if ended.taken else PartFailed
    return kind(ended.reason, ended.hint)


def fleet_versions() -> dict[str, str]:
    """Return the versions of a run, with that of Dask."""
    return {**run_versions(), "distributed": version("distributed")}


def require_versions(host: str, theirs: Mapping[str, str]) -> None:
    """Check that a host's worker has this version of Tare and of Dask.

    Args:
        host: Its name.
        theirs: The versions of its worker.

    Raises:
        PartRefused: They differ, so its values may have another meaning.
    """
    ours = fleet_versions()
    for name in COMPARED:
        has = theirs.get(name, "of unknown version")
        if has != ours[name]:
            raise PartRefused(
                f"the worker has {name} {has}, and the controller {ours[name]}",
                f"install the same version on {host}'s worker",
            )
