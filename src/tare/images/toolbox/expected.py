"""Run every program of a new toolbox once: it must start, and what it writes is remembered.

Whoever runs an application later compares what it writes with that. The same program on the same
input writes the same bytes on every x86-64 processor, so that a difference is a fault.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.hosts import Host
from tare.images.toolbox.recipe import PROGRAMS, Kind
from tare.workloads import WORKLOADS
from tare.workloads.applications.programs import PROGRAMS as APPLICATIONS

_RUN_S = 600.0
_HINT = (
    "its programs run in a root of their own, for which root or user name spaces are needed; else "
    "run `apt-get update` as root, then `tare image build`"
)
# What each program needs is resolved by the loader, which runs nothing of it.
_RESOLVE = (
    'for program; do program=$(readlink -f "$program"); '
    'said=$(/lib64/ld-linux-x86-64.so.2 --list "$program" 2>&1) || '
    'case $said in *"not a dynamic executable"*|*"invalid ELF header"*) ;; '
    '*) echo "$program: $said" >&2; exit 1;; esac; '
    'case $said in *"not found"*) echo "$program: $said" >&2; exit 1;; esac; done'
)


async def expected_outputs(
    host: Host, agent: Path, tree: Path, kind: Kind, scimark: bool
) -> Mapping[str, str]:
    """Return the SHA-256 of what each application writes, by its name.

    Args:
        host: The computer that builds.
        agent: The agent, which runs them as it will later.
        tree: The toolbox's tree, with what it says of itself.
        kind: Which toolbox it is.
        scimark: Whether SciMark is in it.

    Raises:
        InputError: A program does not start, or fails.
    """
    paths = [program.path for program in PROGRAMS[kind].values()]
    await require_libraries(host, agent, tree, paths)
    names = [application.name for application in APPLICATIONS]
    names += ["openssl-aes", *(["scimark"] if scimark else [])]
    found: dict[str, str] = {}
    for name in names:
        workload = WORKLOADS[name]
        short = {"runs": 1} | ({"duration": 0.001} if name == "scimark" else {})
        request = workload.request(workload.parameters.model_validate(short))
        value = await run_inside(host, agent, tree, name, request)
        found[name] = value["checks"][0]["sha256"]
    return found


async def require_libraries(
    host: Host, agent: Path, tree: Path, paths: Sequence[str], hint: str = _HINT
) -> None:
    """See that the loader finds the libraries of programs.

    Args:
        host: The computer that builds.
        agent: The agent.
        tree: The toolbox's tree, with what it says of itself.
        paths: The programs, as they are named in it.
        hint: What to do where one is missing.

    Raises:
        InputError: A library is missing.
    """
    resolve = {"argv": ["sh", "-c", _RESOLVE, "sh", *paths]}
    await run_inside(host, agent, tree, "the loader", {"steps": [resolve]}, hint)


async def run_inside(
    host: Host,
    agent: Path,
    tree: Path,
    name: str,
    request: Mapping[str, Any],
    hint: str = _HINT,
    *,
    scratch: Path | None = None,
    apart: Sequence[str] = (),
) -> dict[str, Any]:
    """Run programs in a tree as its root, and return what the agent reports about them.

    Args:
        host: The computer that builds.
        agent: The agent.
        tree: The toolbox's tree, with what it says of itself.
        name: What is run, for the words of a fault.
        request: What the agent's workload ``program`` is asked.
        hint: What to do where it fails.
        scratch: What they have as ``/scratch``; otherwise they have none.
        apart: A command that runs the agent, whose command line is appended to it.

    Raises:
        InputError: A program does not start, or fails.
    """
    own = {"TARE_TOOLBOX": str(tree)} | ({} if scratch is None else {"TARE_SCRATCH": str(scratch)})
    done = await host.run(
        [*apart, str(agent), "run", "program", json.dumps(request)], timeout_s=_RUN_S, env=own
    )
    if not done.ok:
        lines = done.words().splitlines()
        raise InputError(
            f"the new toolbox does not work: {name}: {lines[-1] if lines else 'no reason given'}",
            hint,
        )
    value: dict[str, Any] = json.loads(done.stdout)["value"]
    return value
