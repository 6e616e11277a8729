"""Basic commands: versions, help, lists, and impossible values."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from run.run_driving import TARE, tare
from tare.cli.manual import PAGE, manual
from tare.registry import installed

ROOT = Path(__file__).parents[2]


def test_the_version_option_prints_what_the_command_prints() -> None:
    done = tare("--version")
    assert (done.returncode, done.stdout) == (0, tare("version").stdout)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", done.stdout)


def test_the_package_is_the_command_too() -> None:
    argv = [sys.executable, "-m", "tare", "--version"]
    assert subprocess.check_output(argv, text=True) == tare("--version").stdout


@pytest.mark.parametrize("words", [["-h"], ["run", "-h"], ["lab", "-h"], ["image", "list", "-h"]])
def test_help_has_its_short_form(words: list[str]) -> None:
    done = tare(*words)
    assert done.returncode == 0 and done.stdout == tare(*words[:-1], "--help").stdout


def test_shells_can_complete() -> None:
    assert "--install-completion" in tare("--help").stdout


def test_workloads_and_platforms_are_listed() -> None:
    done = tare("workloads")
    listed = dict(line.split("\t") for line in done.stdout.splitlines())
    assert set(listed) == set(installed().workloads) and all(listed.values())
    done = tare("platforms")
    listed = dict(line.split("\t") for line in done.stdout.splitlines())
    assert {name.split()[0] for name in listed} == set(installed().platforms)


def test_a_strangers_study_is_shown_without_what_steers_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text("study: \x1b[31mred\x1b[0m\u202e\n\tarms: {}\n", encoding="utf-8")
    assert tare("studies", path).stdout == "study: red\N{REPLACEMENT CHARACTER}\n\tarms: {}\n"


def test_a_line_is_not_broken_where_no_terminal_is(tmp_path: Path) -> None:
    name = "n" * 300
    message = tare("run", tmp_path / f"{name[:200]}.yaml").stderr
    assert name[:200] in message


def test_the_doctor_reports_which_agent_is_installed() -> None:
    reported = json.loads(tare("doctor", "--json").stdout)["agent"]
    program = (TARE.parent / "tare-agent").read_bytes()
    assert reported["sha256"] == hashlib.sha256(program).hexdigest()
    assert re.fullmatch(r"tare-agent \S+, built by rustc \d+\.\d+\.\d+ .*", reported["said"])


def completed(shell: str, typed: str) -> str:
    asked = {
        "bash": {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))},
        "zsh": {"_TYPER_COMPLETE_ARGS": typed},
        "fish": {"_TYPER_COMPLETE_ARGS": typed, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    done = subprocess.run(
        [TARE],
        env={**os.environ, "_TARE_COMPLETE": f"complete_{shell}", **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_studies(shell: str) -> None:
    assert set(re.findall(r"\b(?:resume|report|run)\b", completed(shell, "tare re"))) == {
        "resume",
        "report",
    }
    names = set(re.findall(r"\brealtime(?:-short)?\b|\bquick\b", completed(shell, "tare run real")))
    assert names == {"realtime", "realtime-short"}


def test_the_manual_page_is_as_the_commands_are_now() -> None:
    page = manual()
    assert (ROOT / PAGE).read_text() == page, "run `make docs`"
    for name in ("run", "resume", "studies", "lab up", "image build"):
        assert re.search(rf"^\.SS tare {name}\b", page, re.MULTILINE)
    assert r"\-\-strict" in page and "130" in page


@pytest.mark.skipif(shutil.which("man") is None, reason="no man here")
def test_the_manual_page_can_be_read() -> None:
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", ROOT / PAGE],
        env={**os.environ, "MANWIDTH": "100", "MANPAGER": "cat"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "tare resume [OPTIONS]" in done.stdout
    assert "warning" not in done.stderr


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_seed_that_no_study_takes_is_refused(command: str) -> None:
    done = tare(command, "studies/quick.yaml", "--seed", "-5")
    assert done.returncode == 2 and "a whole number from 0 on, not -5" in done.stderr
