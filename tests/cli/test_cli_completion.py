"""A shell completes names of the study on the command line, and `man tare` is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from tare.cli import completing
from tare.cli.main import app

ROOT = Path(__file__).parents[2]
STUDY = """\
study: s
baseline: bare
arms:
  bare: {platform: bare}
  kvm: {platform: qemu, accelerator: kvm}
  kvm-emulated: {platform: qemu, accelerator: kvm, devices: emulated}
scenarios: {pinned: {subject: {cpus: pinned}}, loaded: {}}
workloads: {tick: {}, switches: {workload: switch, threads: [2, 4]}}
"""


@pytest.fixture
def context(tmp_path: Path) -> typer.Context:
    (tmp_path / "s.yaml").write_text(STUDY)
    made = typer.Context(get_command(app))
    made.params["study"] = tmp_path / "s.yaml"
    return made


def test_names_of_the_study_are_completed(context: typer.Context) -> None:
    assert completing.arms(context, "k") == ["kvm", "kvm-emulated"]
    assert completing.arms(context, "kvm,k") == ["kvm,kvm-emulated"]
    assert completing.workloads(context, "") == ["tick", "switches"]
    assert completing.workloads(context, "tick,s") == ["tick,switches"]
    assert completing.scenarios(context, "p") == ["pinned"]


def test_keys_are_completed_level_by_level(context: typer.Context) -> None:
    assert completing.values(context, "sh") == ["shape."]
    assert "shape.memory=" in completing.values(context, "shape.")
    assert completing.values(context, "blocks.prec") == ["blocks.precision="]
    assert completing.values(context, "arms.k") == ["arms.kvm.", "arms.kvm-emulated."]
    assert "arms.kvm.hugepages=" in completing.values(context, "arms.kvm.")
    assert completing.values(context, "workloads.switches.thr") == ["workloads.switches.threads="]
    assert completing.values(context, "shape.memory=1") == []


def test_a_study_that_cannot_be_read_completes_nothing(
    context: typer.Context, tmp_path: Path
) -> None:
    for text in ("", "study: [", "arms: 3"):
        (tmp_path / "s.yaml").write_text(text)
        assert completing.arms(context, "") == []
    context.params["study"] = None
    assert completing.arms(context, "") == []


def test_bash_gets_them(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STUDY)
    for option, typed, expected in (("--arm", "kvm-", "kvm-emulated"), ("--workload", "t", "tick")):
        words = f"tare run {tmp_path}/s.yaml {option} {typed}"
        done = subprocess.run(
            [sys.executable, str(Path(sys.executable).with_name("tare"))],
            env={
                **os.environ,
                "_TARE_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": "4",
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [expected]


def test_man_finds_the_page_wherever_the_command_is_found(tmp_path: Path) -> None:
    if shutil.which("man") is None:
        pytest.skip("there is no man: apt-get install man-db")
    (tmp_path / "bin").mkdir()
    page = tmp_path / "share/man/man1"
    page.mkdir(parents=True)
    (page / "tare.1").symlink_to(ROOT / "wheel/data/share/man/man1/tare.1")
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    environment = {key: value for key, value in os.environ.items() if key != "MANPATH"}
    done = subprocess.run(
        ["man", "-w", "tare"],
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "tare.1" in done.stdout


def test_set_up_links_the_manual_page_next_to_the_command(tmp_path: Path) -> None:
    (tmp_path / "wheel").symlink_to(ROOT / "wheel")
    script = f". {ROOT}/scripts/setup quick; cd {tmp_path} && link_manual"
    subprocess.run(["bash", "-c", script], check=True)
    assert (tmp_path / ".venv/share/man/man1/tare.1").read_text().startswith(".TH TARE")
