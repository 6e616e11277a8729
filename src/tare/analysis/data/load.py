"""Fold the events of a run's folder into `RunData`; nothing but the events is read.

The study and the placement of machines are JSON of any form, and a run's folder may come from
anyone. So the models here check the keys of both that the analysis reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tare.analysis.data.rundata import RunData
from tare.analysis.data.verify import series_doubts
from tare.errors import InputError
from tare.events import Fold, RunStarted, read_fold
from tare.events.cell_facts import Amount, Whole, fitting
from tare.events.results import MachineResult
from tare.study.reading.former_options import present_options, with_present_names
from tare.units import Confidence

_Object = dict[str, Any]
_Pair = Annotated[list[str], Field(min_length=2)]
_Nobody = Annotated[list[str], Field(max_length=0)]


class _Recorded(BaseModel):
    model_config = ConfigDict(extra="allow", defer_build=True)


class _Neighbours(_Recorded):
    load: str | None = None
    parameters: _Object | None = None


class _Scenario(_Recorded):
    summary: str | None = None
    neighbours: list[_Neighbours] | None = None
    machines: _Object | None = None


class _Blocks(_Recorded):
    least: Whole = 0
    most: Whole | None = None
    method: str | None = None


class _Boot(_Recorded):
    takes: Amount = 0.0


class _Sessions(_Recorded):
    computer: str
    boots: dict[str, _Boot] = Field(default_factory=dict)


class _Study(_Recorded):
    study: str = ""
    title: str | None = None
    description: str | None = None
    baseline: str
    aa: _Pair | _Nobody | None = None
    confidence: Confidence | None = None
    margin: Amount = 0.0
    blocks: _Blocks | None = None
    floors: dict[str, Amount] | None = None
    own_baselines: dict[str, str] | None = None
    arms: dict[str, _Object] = Field(default_factory=dict)
    scenarios: dict[str, _Scenario] | None = None
    workloads: _Object | None = None
    shape: _Object | None = None
    sessions: _Sessions | None = None


_PLACEMENT: Mapping[str, Any] = {
    "cpus": list[Whole],
    "host": str,
    "keeps_to": list[Whole],
    "memory": _Object,
    "network": _Object,
    "nic": _Object,
    "role": str,
    "sees_host_cpus": bool,
}


def known_placement(recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return how a machine was placed, without parts of an unknown form."""
    return fitting(recorded, _PLACEMENT)


def require_study(recorded: Mapping[str, Any], where: str) -> None:
    """Check that the study in a run's first event can be read.

    Args:
        recorded: The study as the run's events hold it.
        where: The run's folder, for the message.

    Raises:
        InputError: The study cannot be read; the message names the key.
    """
    try:
        _Study.model_validate(recorded)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(
            f"{where}: the study in its first event is not as Tare writes one, at `{place}`",
            "restore the folder from where it was made, or start a new run",
        ) from None


_LAST_DAY = 253402300799.0
"""The end of the year 9999, beyond which there is no date."""


def load_run(folder: Path) -> RunData:
    """Read one run's folder.

    Only finished cells count. If a cell was started more than once (a crash, a retry),
    only what was observed between its last start and its end counts.

    Args:
        folder: The folder that ``tare run`` wrote; it may hold an unfinished run.

    Raises:
        InputError: It holds no run, or its events cannot be read; the message says where.
    """
    path = folder / "events.jsonl"
    if not path.is_file():
        raise InputError(
            f"{folder} holds no run (there is no {path.name})",
            "name a folder that `tare run` wrote",
        )
    return run_data(folder, read_fold(path))


def load_runs(folders: Sequence[Path]) -> tuple[RunData, ...]:
    """Read several folders, for a comparison over all of them.

    Raises:
        InputError: A folder cannot be read, or two of them hold the same run.
    """
    runs: dict[str, RunData] = {}
    for folder in folders:
        run = load_run(folder)
        if run.run in runs:
            raise InputError(
                f"{folder} and {runs[run.run].folder} hold the same run, {run.run}",
                "name each run once: its blocks must not count twice",
            )
        runs[run.run] = run
    return tuple(runs.values())


def run_data(folder: Path, fold: Fold) -> RunData:
    """Build a run's data from the fold of its events.

    Args:
        folder: The folder that the paths of series are relative to.
        fold: The fold of all events.

    Raises:
        InputError: The stream does not begin with the start of a run.
    """
    started = fold.started
    if started is None:
        raise InputError(
            f"{folder}: the events do not begin with the start of a run",
            "the file is incomplete; restore it, or start a new run",
        )
    require_study(started.study, str(folder))
    study = with_present_names(started.study)
    ended = fold.ended
    return RunData(
        folder=folder,
        run=started.run,
        study=study,
        study_path=started.study_path,
        study_sha256=started.study_sha256,
        seed=started.seed,
        host=_hosts(started, fold),
        versions=started.versions,
        started_at=min(max(fold.started_at, 0.0), _LAST_DAY),
        resumed=fold.resumed,
        checks=fold.checks,
        were_bad=tuple(fold.unfit),
        calibrated=tuple(fold.calibrated.values()),
        noise=tuple(fold.noise.values()),
        sessions=tuple(fold.sessions.begun.values()),
        platforms=tuple(
            replace(each, options=present_options(study, each.arm, each.platform, each.options))
            for each in fold.platform_results()
        ),
        skipped=tuple(fold.skipped),
        images=tuple(fold.images.values()),
        machines=tuple(map(_placed, fold.machine_results())),
        cells=fold.cell_results(),
        counted=fold.counted_cells(),
        series=fold.series(folder),
        blocks_finished=tuple(fold.block.finished),
        decisions=tuple((each.block, each.go_on, each.reason) for each in fold.decisions),
        adapted=fold.notes,
        arms_ended=tuple(fold.arms_ended),
        changes=started.changes,
        breaks=tuple(fold.breaks),
        cpu_changes=tuple(fold.cpu_changes),
        freezes=tuple(fold.freezes),
        block_hosts=fold.block.hosts,
        doubts=(*fold.doubts, *series_doubts(folder, fold)),
        complete=ended is not None and ended.status == "complete",
        ended=None if ended is None else ended.status,
        end_reason="" if ended is None else ended.reason,
        wall_s=ended.wall_s if ended is not None and ended.wall_s else fold.wall_s,
        booting_s=ended.booting_s if ended is not None and ended.booting_s else fold.booting_s,
        measuring_s=(
            ended.measuring_s if ended is not None and ended.measuring_s else fold.measuring_s
        ),
    )


def _placed(machine: MachineResult) -> MachineResult:
    placement = known_placement(machine.placement)
    return machine if placement is machine.placement else replace(machine, placement=placement)


def _hosts(started: RunStarted, fold: Fold) -> Mapping[str, Any]:
    """Return the facts that identify the host, or each host that shares the run."""
    joined = {
        name: {**_mapping(started.host.get(name)), **each.facts}
        for name, each in fold.joined.items()
    }
    return {**started.host, **joined, **_boot_identities(fold)}


def _mapping(recorded: object) -> Mapping[str, Any]:
    return recorded if isinstance(recorded, Mapping) else {}


def _boot_identities(fold: Fold) -> Mapping[str, Any]:
    """Return the facts that identify each host in each boot of a study in sessions."""
    found: dict[str, Any] = {}
    for boot, facts in fold.sessions.hosts.items():
        several = bool(facts) and all(isinstance(each, Mapping) for each in facts.values())
        named = {f"{boot}, {name}": each for name, each in facts.items()} if several else {}
        found |= named or {boot: facts}
    return found
