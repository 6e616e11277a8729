"""Figures that a disk contradicts are withheld with a reason, for subject and neighbour."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run.run_driving import of_type, tare
from tare.agent.client import Outcome
from tare.platforms.contract import Machine
from tare.run.cells.neighbours import Loads, Neighbour
from tare.run.cells.plausibility import unmoved, without_unmoved
from tare.workloads import WORKLOADS, MachineFacts
from tare.workloads.contract import NO_CLAIM, DiskClaim
from tare.workloads.disk.filebench import PERSONALITIES
from workloads.workloads_results import result_of

MB = 1e6


class DiskNeighbour:
    """A neighbour whose disk moved so much while its load ran."""

    def __init__(self, moved: float) -> None:
        self.inner_cpus, self._counts = (0,), [0.0, moved]

    async def disk_moved(self) -> dict[str, float]:
        count = self._counts.pop(0)
        return {"read": count, "written": count}


class Ended:
    """A load that has ended and reported."""

    ended = False

    def __init__(self, phases: tuple[str, ...] = ()) -> None:
        done = {"seconds": 1.0, "threads": 1, "bytes": 400 * MB, "bytes_per_s": 400 * MB}
        listed = [{"name": each, "begin_s": 0.0, "end_s": 1.0, "result": done} for each in phases]
        self._told = {**done, "warnings": [], "phases": listed}

    async def stop(self) -> Outcome:
        return Outcome(self._told)


@pytest.mark.parametrize("phases", [(), ("disk-load",), ("memory-load", "disk-load")])
@pytest.mark.parametrize(("moved", "believed"), [(200 * MB, True), (1 * MB, False)])
async def test_a_disk_load_that_never_reached_its_disk_is_withheld(
    moved: float, believed: bool, phases: tuple[str, ...]
) -> None:
    machine = DiskNeighbour(moved)
    load, asked = ("phased-load", {"phases": phases}) if phases else ("disk-load", {})
    one = Neighbour("neighbour-1", cast(Machine, machine), load, asked)
    loads = Loads((one,), WORKLOADS, MachineFacts())
    loads._moved[one.role] = await machine.disk_moved()
    loads._under_way[one.role] = cast(Any, Ended(phases))
    loads._began = time.monotonic() - 1.0
    (report,) = await loads.end()
    if believed:
        assert report.doubt == ""
    else:
        assert report.doubt.startswith("neighbour-1: it reported")
        assert "a cache was measured and not the disk" in report.doubt


def test_writes_that_never_reached_the_disk_are_reported_with_a_remedy() -> None:
    claim = DiskClaim(written=24_000 * MB, instead="write `direct: true`")
    inside = {"disk": {"seconds": 1.0, "read_bytes_per_s": 0.0, "write_bytes_per_s": 54 * MB}}
    reason = str(unmoved(claim, inside, {}, 1.0))
    assert reason.startswith("it reported 22.35 GiB/s written, but its disk moved 51.5 MiB/s")
    assert reason.endswith("write `direct: true`")
    # A sandbox whose own kernel counts no disk: what the host counted says it.
    assert unmoved(DiskClaim(written=500 * MB), {"disk": None}, {"written": 0.0}, 2.0)
    assert unmoved(DiskClaim(read=500 * MB), {}, {"read": 1 * MB}, 2.0)
    # What the guest's kernel gave to a disk, and a cache of the host's took.
    inside["disk"]["write_bytes_per_s"] = 500 * MB
    found = unmoved(DiskClaim(written=500 * MB), inside, {"written": float(1 << 20)}, 2.0)
    assert "its disk moved 512 KiB/s" in found.written


def test_as_little_as_one_large_transfer_says_nothing() -> None:
    nothing, small = {"written": 0.0}, float(4 << 20)
    assert not unmoved(DiskClaim(written=small), {}, nothing, 1.0)
    assert unmoved(DiskClaim(written=small + 1), {}, nothing, 1.0)


@given(
    claimed=st.floats(0, 1e12),
    more=st.floats(1.0, 50.0),
    seconds=st.floats(0.1, 100),
    host=st.booleans(),
)
def test_a_disk_that_moved_as_much_or_more_is_believed(
    claimed: float, more: float, seconds: float, host: bool
) -> None:
    rate = claimed * more / seconds
    inside = {"disk": {"seconds": seconds, "read_bytes_per_s": rate, "write_bytes_per_s": rate}}
    counted = {"read": claimed * more, "written": claimed * more}
    result = {} if host else inside
    assert not unmoved(DiskClaim(claimed, claimed), result, counted if host else {}, seconds)
    assert not unmoved(DiskClaim(None, None), result, {"read": 0.0, "written": 0.0}, seconds)
    # Without any counts there is no finding.
    assert not unmoved(DiskClaim(claimed, claimed), {}, {}, seconds)


@pytest.mark.parametrize(
    ("name", "given", "claims"),
    [
        ("fio", {}, True),
        ("fio", {"direct": False}, True),
        ("fio", {"direct": False, "cached": True}, False),
        ("filebench", {"work": "sequential-write"}, True),
        ("filebench", {"work": "sequential-write", "cached": True}, False),
        ("filebench", {"work": "varmail"}, True),
        ("filebench", {"work": "fileserver"}, False),
        ("bonnie", {}, True),
        ("bonnie", {"direct": True, "chars": False}, True),
        ("bonnie", {"cached": True}, False),
        ("disk-load", {}, True),
        # Hadoop's own files are of many machines, and read through their page caches by design.
        ("dfsio", {}, False),
    ],
)
def test_workloads_that_claim_disk_traffic_are_checked_against_the_disk(
    name: str, given: dict[str, Any], claims: bool
) -> None:
    workload = WORKLOADS[name]
    parameters = workload.parameters.model_validate(given)
    result = {**result_of(name, 3.0), "seconds": 1.0, "bytes": 9.0}
    assert (workload.disk_claim(parameters, result).written is not None) == claims


def test_the_description_of_personalities_says_why_the_disk_is_not_checked() -> None:
    filebench = WORKLOADS["filebench"].parameters
    reason = str(filebench.model_fields["work"].description)
    unheld = [
        work
        for work in PERSONALITIES
        if WORKLOADS["filebench"].disk_claim(
            filebench.model_validate({"work": work}), {**result_of("filebench", 3.0), "seconds": 1}
        )
        == NO_CLAIM
    ]
    assert unheld == ["fileserver", "webserver"]
    assert f"{' and '.join(f'`{work}`' for work in unheld)} do not sync" in reason
    assert "not compared with the disk's counters" in reason


def test_figures_of_bonnie_from_the_cache_are_withheld() -> None:
    bonnie = WORKLOADS["bonnie"]
    result = result_of("bonnie", 3.0)

    def doubt(moved: float, **given: Any) -> str:
        parameters = bonnie.parameters.model_validate({"size": 1 << 30, **given})
        claim = bonnie.disk_claim(parameters, result)
        return str(unmoved(claim, {}, {"read": moved, "written": moved}, 10.0))

    assert "write `direct: true` and `chars: false`" in doubt(64 * MB)
    assert doubt(1.2e9) == ""
    assert doubt(1.2e9, direct=True, chars=False)
    assert doubt(2.2e9, direct=True, chars=False) == ""
    assert doubt(0.0, cached=True) == ""


def test_reads_from_a_cache_do_not_withhold_writes_that_reached_the_disk() -> None:
    """Bonnie++ with `direct: true` read 128 of 256 MiB from its disk, and wrote all of them."""
    bonnie = WORKLOADS["bonnie"]
    parameters = bonnie.parameters.model_validate({"size": 1 << 28, "direct": True, "chars": False})
    result = result_of("bonnie", 3.0)
    claim = bonnie.disk_claim(parameters, result)
    found = unmoved(claim, {}, {"read": 128.0 * (1 << 20), "written": 2.0 * (1 << 28)}, 10.0)
    assert found.read and not found.written
    assert "`direct` does not reach the disk here" in found.read
    assert "write `direct: true`" not in found.read
    values = bonnie.observe(parameters, result)
    headlines = [metric.name for metric in bonnie.metrics if metric.headline]
    left, why = without_unmoved(claim, found, values, headlines)
    assert "put-block" in left and "get-block" not in left and "rewrite-latency" not in left
    assert why.startswith("without ") and "get-block" in why and why.endswith(found.read)
    # Where neither reads nor writes reached the disk, no headline is left: the cell is withheld.
    nothing = unmoved(claim, {}, {"read": 0.0, "written": 0.0}, 10.0)
    assert without_unmoved(claim, nothing, values, headlines) == (values, "")
    # A workload that does not state what follows from which is withheld as a whole.
    whole = DiskClaim(claim.read, claim.written)
    assert without_unmoved(whole, found, values, headlines) == (values, "")


def test_microbenchmarks_bypass_the_page_cache_by_default() -> None:
    filebench = WORKLOADS["filebench"]

    def direct(**given: Any) -> bool:
        parameters = filebench.parameters.model_validate(given)
        return bool(filebench.request(parameters)["direct"])

    assert direct(work="sequential-write")
    assert direct(work="random-read", io_size=8192)
    assert not direct(work="random-read", io_size=1000)
    assert not direct(work="random-read", direct=False)
    assert not direct(work="random-read", cached=True)
    assert not direct(work="fileserver")


STUDY = """
study: files
baseline: bare
blocks: {least: 2, most: 2}
shape: {disk: 128MiB}
arms:
  bare: {platform: bare}
workloads:
  flushed: {workload: filebench, work: sequential-write, total: 9MiB, duration: 0.3s, direct: false}
  kept: {workload: filebench, work: sequential-read, total: 9MiB, duration: 0.3s, direct: false}
  stated: {workload: filebench, work: sequential-read, total: 9MiB, duration: 0.3s, cached: true}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own needs a loop device")
def test_figures_of_the_page_cache_are_withheld_unless_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "study.yaml").write_text(STUDY)
    folder = tmp_path / "run"
    done = tare("run", tmp_path / "study.yaml", "--out", folder)
    ended = of_type(folder, "cell_finished")
    if not all("disk_moved_bytes" in cell["facts"] for cell in ended):
        pytest.skip("no loop device can be had here")
    found = {cell["cell"].split("/")[3].split("[")[0]: cell for cell in ended}
    assert {name: cell["status"] for name, cell in found.items()} == {
        "flushed": "ok",
        "kept": "withheld",
        "stated": "ok",
    }, done.stdout
    assert "a cache was measured and not the disk" in found["kept"]["reason"]
    kept = [machine["placement"]["memory"] for machine in of_type(folder, "machine_ready")]
    assert [each["kept_to"] for each in kept] == [256 << 20] * 2, kept
    assert not [each["group"] for each in kept if Path(each["group"]).exists()]
