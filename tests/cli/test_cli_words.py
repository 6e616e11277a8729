"""What a person meets first: versions, help, lists, and values that cannot be."""

from __future__ import annotations

import re

import pytest

from run.run_driving import tare
from tare.registry import installed


def test_the_version_is_told_as_elsewhere() -> None:
    told = tare("--version")
    assert (told.returncode, told.stdout) == (0, tare("version").stdout)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", told.stdout)


@pytest.mark.parametrize("words", [["-h"], ["run", "-h"], ["lab", "-h"], ["image", "list", "-h"]])
def test_help_has_its_short_form(words: list[str]) -> None:
    told = tare(*words)
    assert told.returncode == 0 and told.stdout == tare(*words[:-1], "--help").stdout


def test_shells_can_complete() -> None:
    assert "--install-completion" in tare("--help").stdout


def test_what_a_study_may_name_is_listed() -> None:
    told = tare("workloads")
    listed = dict(line.split("\t") for line in told.stdout.splitlines())
    assert set(listed) == set(installed().workloads) and all(listed.values())
    told = tare("platforms")
    listed = dict(line.split("\t") for line in told.stdout.splitlines())
    assert {name.split()[0] for name in listed} == set(installed().platforms)


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_seed_that_no_study_takes_is_refused(command: str) -> None:
    told = tare(command, "studies/quick.yaml", "--seed", "-5")
    assert told.returncode == 2 and "a whole number from 0 on, not -5" in told.stderr
