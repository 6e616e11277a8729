"""The probes of a cell: their order, their end, and faults of other packages' probes."""

from __future__ import annotations

import asyncio
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from run.run_hostile import honest, run_twisted
from tare.agent.client import Outcome
from tare.agent.series import Series
from tare.errors import MachineFault, WorkloadFault
from tare.hosts import LocalHost
from tare.probes import Probe, ProbedCell, ProbeKind
from tare.run.cells.liveness import ANSWER_S, REMOVED_S
from tare.run.probes import stack as probing_module
from tare.run.probes.stack import ProbeStack, added_probes, probing

DONE = Outcome({})
CELL = cast(ProbedCell, SimpleNamespace())


class Noting(Probe):
    """Notes each of its moments, and fails in the one that is named."""

    def __init__(self, name: str, log: list[str], fails: str = "", fault: Any = None) -> None:
        self.name, self.log, self.fails = name, log, fails
        self.fault = fault or MachineFault(f"{name} failed")
        self.limit_s = 0.0

    def _note(self, moment: str) -> None:
        self.log.append(f"{moment} {self.name}")
        if moment == self.fails:
            raise self.fault

    async def open(self) -> None:
        self._note("open")

    async def begin(self) -> None:
        self._note("begin")

    async def end(self, outcome: Outcome) -> None:
        self._note("end")

    async def close(self) -> None:
        self._note("close")
        self.facts = {self.name: 1}
        self.doubt = f"{self.name} doubts"

    async def abandon(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._note("abandon")


async def through(stack: ProbeStack) -> None:
    await stack.begin()
    await stack.end(DONE)
    await stack.close()


async def test_probes_end_in_the_reverse_order_in_which_they_begin() -> None:
    log: list[str] = []
    async with probing([Noting("a", log), Noting("b", log)]) as stack:
        await through(stack)
    assert log == [f"{what} {who}" for what in ("open", "begin") for who in "ab"] + [
        f"{what} {who}" for what in ("end", "close") for who in "ba"
    ]
    assert stack.facts == {"a": 1, "b": 1}
    assert stack.doubts == ["a doubts", "b doubts"]


@pytest.mark.parametrize("moment", ["open", "begin", "end", "close"])
async def test_a_fault_at_any_moment_abandons_all_that_were_opened(moment: str) -> None:
    log: list[str] = []
    probes = [Noting("a", log), Noting("b", log, moment), Noting("c", log)]
    with pytest.raises(MachineFault, match="b failed"):
        async with probing(probes) as stack:
            await through(stack)
    opened = "ba" if moment == "open" else "cba"
    assert log[-len(opened) :] == [f"abandon {who}" for who in opened]
    assert probes[0].limit_s == ANSWER_S


@pytest.mark.parametrize("fault", [MachineFault("lost"), OSError("lost"), RuntimeError("wrong")])
async def test_a_probe_that_cannot_be_abandoned_keeps_no_other_from_it(fault: Exception) -> None:
    log: list[str] = []
    probes = [Noting("a", log), Noting("b", log, "abandon", fault), Noting("c", log)]
    expected = RuntimeError if isinstance(fault, RuntimeError) else WorkloadFault
    with pytest.raises(expected):
        async with probing(probes):
            raise WorkloadFault("the work failed")
    assert log[-3:] == ["abandon c", "abandon b", "abandon a"]


async def test_a_cancelled_cell_abandons_its_probes_without_waiting_for_machines() -> None:
    log: list[str] = []
    probe = Noting("a", log)
    opened = asyncio.Event()

    async def cell() -> None:
        async with probing([probe]):
            opened.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(cell())
    await opened.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["open a", "abandon a"]
    assert probe.limit_s == REMOVED_S


class Added(ProbeKind):
    """The kind of a probe of another package, which a test makes."""

    name = "theirs"

    def __init__(self, probe: Any) -> None:
        self.made = probe

    def probe(self, cell: ProbedCell) -> Probe | None:
        if isinstance(self.made, Exception):
            raise self.made
        return cast("Probe | None", self.made)


async def facts_of(*made: Any) -> Any:
    async with probing(added_probes([Added(each) for each in made], CELL)) as stack:
        await through(stack)
    return stack.facts


async def test_the_facts_of_a_foreign_probe_are_kept_under_its_name() -> None:
    assert await facts_of(Noting("a", [])) == {"probes": {"theirs": {"a": 1}}}
    assert await facts_of(None) == {}


async def test_two_foreign_probes_keep_their_facts() -> None:
    class Other(Added):
        name = "others"

    kinds = [Added(Noting("a", [])), Other(Noting("b", []))]
    async with probing(added_probes(kinds, CELL)) as stack:
        await through(stack)
    assert stack.facts == {"probes": {"theirs": {"a": 1}, "others": {"b": 1}}}
    assert stack.doubts == ["theirs: a doubts", "others: b doubts"]


@pytest.mark.parametrize("moment", ["open", "begin", "end", "close"])
@pytest.mark.parametrize(
    "fault", [MachineFault("boom"), ZeroDivisionError("boom"), KeyError("boom")]
)
async def test_a_fault_of_a_foreign_probe_costs_only_its_facts(
    moment: str, fault: Exception
) -> None:
    log: list[str] = []
    found = await facts_of(Noting("a", log, moment, fault))
    assert "boom" in found["probes"]["theirs"]["missing"]
    assert log[-1] == "abandon a"


class Hanging(Noting):
    """Never ends."""

    async def end(self, outcome: Outcome) -> None:
        await asyncio.Event().wait()


class Wordy(Noting):
    """Has facts that no JSON holds."""

    async def close(self) -> None:
        self.facts = {"rate": float("nan")}


class Uneven(Noting):
    """Has a series whose columns differ in length."""

    async def close(self) -> None:
        columns = {"a": np.zeros(2), "b": np.zeros(3)}
        self.doubt, self.series = "a doubt", [("host", Series("watts", columns))]


async def test_facts_that_an_added_probe_cannot_record_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing_module, "PATIENCE_S", 0.05)
    for kind in (Hanging, Wordy, Uneven):
        async with probing(added_probes([Added(kind("a", []))], CELL)) as stack:
            await through(stack)
        assert stack.facts["probes"]["theirs"]["missing"]
        assert not stack.doubts and not stack.series


async def test_a_foreign_kind_that_makes_no_probe_says_why() -> None:
    assert await facts_of(ValueError("no sensor")) == {
        "probes": {"theirs": {"missing": "no sensor"}}
    }


EXAMPLE = Path(__file__).parents[2] / "examples" / "tare-pressure" / "tare_pressure.py"


def example() -> Any:
    spec = spec_from_file_location("tare_pressure", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_example_observes_every_cell_of_a_run(
    tmp_path: Path, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = iter(range(0, 10**9, 10**6))

    async def read(host: LocalHost, path: str) -> bytes:
        if not path.startswith("/proc/pressure/"):
            return Path(path).read_bytes()
        return f"some avg10=0.00 avg60=0.00 avg300=0.00 total={next(waited)}\nfull ...".encode()

    monkeypatch.setattr(LocalHost, "read", read)
    kinds = (example().Pressure(),)
    fold = await run_twisted(honest, tmp_path / "run", agent_program, probe_kinds=kinds)
    results = fold.cell_results()
    assert {result.status for result in results} == {"ok"}
    for result in results:
        assert result.facts["probes"] == {"pressure": {"cpu_s": 3.0, "memory_s": 3.0, "io_s": 3.0}}


async def test_the_example_says_what_a_host_without_such_figures_lacks(
    tmp_path: Path, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = example()
    monkeypatch.setattr(module, "RESOURCES", ("nothing-of-the-kind",))
    kinds = (module.Pressure(),)
    fold = await run_twisted(honest, tmp_path / "run", agent_program, probe_kinds=kinds)
    for result in fold.cell_results():
        assert result.status == "ok"
        assert "nothing-of-the-kind" in result.facts["probes"]["pressure"]["missing"]
