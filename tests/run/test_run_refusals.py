"""An impossible request is refused with the reason and the correction."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tare.errors import InputError, MachineFault
from tare.hosts.contract import Completed
from tare.run.catalog import build_catalog
from tare.run.lifecycle.session import agent_path
from tare.run.preflight.toolbox import study_toolbox
from tare.run.topologies.proxied_setup import direct_path
from tare.study.reading.load import load_study
from tare.workloads import WORKLOADS

TWO_TOOLBOXES = """
study: two
baseline: bare
arms: {bare: {platform: bare}}
scenarios: {alone: {}, cluster: {cluster: {slaves: 1}}}
workloads: {kernel-compile: {}, wordcount: {}}
"""


def test_missing_agent_is_reported_with_both_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=f"neither {tmp_path}/tare-agent nor") as refused:
        agent_path()
    assert "install Tare's package again" in refused.value.hint
    assert "make setup" in refused.value.hint


async def test_a_study_that_needs_two_toolboxes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO_TOOLBOXES)
    setup: Any = SimpleNamespace(workloads=WORKLOADS)
    with pytest.raises(InputError, match="are in two toolboxes") as refused:
        await study_toolbox(setup, load_study(file, build_catalog()))
    assert "one with kernel-compile" in refused.value.hint


async def test_refused_network_path_is_reported_with_its_purpose() -> None:
    async def run(*_: object, **__: object) -> Completed:
        return Completed(2, b"", b"RTNETLINK answers: Operation not permitted\n")

    host: Any = SimpleNamespace(run=run)
    link = SimpleNamespace(interface="inside")
    network: Any = SimpleNamespace(links={"origin": link}, around_peer=("outside",))
    with pytest.raises(MachineFault, match="past the load balancer: `ip -n outside") as fault:
        await direct_path(host, network, "origin", 1500)
    assert fault.value.message.endswith(": RTNETLINK answers: Operation not permitted")
