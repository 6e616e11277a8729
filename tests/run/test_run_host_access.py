"""A study passes nothing on to a host unseen, and nothing dangerous unless a user allows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from run.run_driving import tare
from tare.run.catalog import build_catalog
from tare.run.preflight.host_access import lines_for_plan, list_host_access, require_allowed
from tare.study.reading.load import load_study
from tare.study.reading.shipped import shipped_studies

STUDY = """\
study: foreign
baseline: bare
blocks: {least: 2, most: 2}
arms:
  bare: {platform: bare}
  tcg:
    platform: qemu
    extra-args: [-rtc, clock=vm, -incoming, "exec:id > RAN"]
  free: {platform: qemu, confined: false}
workloads:
  mine:
    workload: command
    argv: [/opt/probe, --fast]
    toolbox: {files: {/opt/probe: PROBE}}
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # What other tests found out about doubles is not remembered of this computer.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # Runs go to the current directory; the repository's may hold runs of its user.
    monkeypatch.chdir(tmp_path)
    probe = tmp_path / "probe"
    probe.write_text("#!/bin/sh\n")
    probe.chmod(0o755)
    file = tmp_path / "foreign.yaml"
    file.write_text(STUDY.replace("RAN", str(tmp_path / "ran")).replace("PROBE", str(probe)))
    return file


@pytest.mark.parametrize("words", [("run",), ("plan", "--probe")])
def test_settings_that_reach_the_host_are_refused_with_line_and_key_first(
    study: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    result = tare(*words, str(study))
    assert (result.returncode, result.stdout) == (2, ""), result
    assert f"{study}:8:" in result.stderr and "arms.tcg.extra-args" in result.stderr
    assert "-incoming exec:id" in result.stderr and "clock=vm" not in result.stderr
    assert f"{study}:9:" in result.stderr and "arms.free.confined" in result.stderr
    assert "--allow-host-access" in result.stderr
    assert not (tmp_path / "ran").exists() and not (tmp_path / "runs").exists()


def test_a_plan_lists_all_that_a_study_hands_to_hosts(study: Path, tmp_path: Path) -> None:
    result = tare("plan", str(study))
    assert result.returncode == 0, result.stderr
    assert "arms.tcg.extra-args: `-incoming exec:id" in result.stdout
    assert "(a run needs --allow-host-access)" in result.stdout
    assert "workloads.mine: `/opt/probe --fast` is run in every machine" in result.stdout
    assert f"`{tmp_path / 'probe'}` is copied into the machines as /opt/probe" in result.stdout


def test_the_command_line_allows_what_a_study_cannot(study: Path) -> None:
    loaded = load_study(study, build_catalog())
    require_allowed(loaded, study, allowed=True)
    asking = [each.keys for each in list_host_access(loaded) if each.restricted]
    assert asking == [("arms", "tcg", "extra-args"), ("arms", "free", "confined")]


@pytest.mark.parametrize("name", shipped_studies())
def test_no_study_that_comes_with_tare_asks_for_anything(name: str) -> None:
    path = shipped_studies()[name]
    study = load_study(path, build_catalog())
    require_allowed(study, path, allowed=False)
    assert lines_for_plan(study, path) == ()
