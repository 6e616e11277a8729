"""The report names where the other end of the network was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from references.references_run import SCENARIOS, write_realtime_run
from tare.analysis import load_run
from tare.analysis.data.rundata import RunData
from tare.report.sections.provenance import run_facts

NAME = "network’s other end"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    folder: Path = tmp_path_factory.mktemp("run")
    return load_run(write_realtime_run(folder, {"alone": SCENARIOS["one-to-all"]}))


def peer_words(run: RunData, peer: dict[str, Any] | None, workload: str = "net-stream") -> str:
    alone = {
        **SCENARIOS["one-to-all"],
        **({"machines": {"peer": peer}} if peer is not None else {}),
    }
    study = {
        **run.study,
        "scenarios": {"alone": alone},
        "workloads": {"switch": {"workload": workload}},
    }
    return dict(run_facts([replace(run, study=study)])).get(NAME, "")


def test_a_process_of_the_host_is_named_as_such(run: RunData) -> None:
    assert peer_words(run, None) == "a process on the machine’s own host (alone)"


def test_a_machine_is_named_with_its_host(run: RunData) -> None:
    assert peer_words(run, {"on": "other"}) == "a machine on other (alone)"
    assert peer_words(run, {}) == "a machine on the same host (alone)"


def test_missing_isolation_is_reported_only_for_the_arms_concerned(run: RunData) -> None:
    first = run.arms[0]
    machines = tuple(
        replace(each, placement={**each.placement, "network": {"way": "given"}})
        if each.arm == first
        else each
        for each in run.machines
    )
    given = peer_words(replace(run, machines=machines), None)
    assert "over a network that Tare did not make" in given and "others share it" in given
    # The other arms have a peer as ever.
    assert "a process on the machine’s own host (alone)" in given
    assert "did not make" not in peer_words(replace(run, machines=machines), {})


def test_without_a_network_no_peer_is_reported(run: RunData) -> None:
    assert peer_words(run, None, "switch") == ""
