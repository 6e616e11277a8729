"""A forked command does what the installed program does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from loaded_commands import COMMANDS, TARE, _can_fork

LIMIT_S = 120.0


def outcomes(*words: str) -> tuple[tuple[int, str, str], tuple[int, str, str]]:
    """Return the status and the output of a forked command and of the installed program."""
    forked = COMMANDS.run(*words, limit_s=LIMIT_S)
    installed = subprocess.run([TARE, *words], capture_output=True, text=True, check=False)
    return (
        (forked.returncode, forked.stdout, forked.stderr),
        (installed.returncode, installed.stdout, installed.stderr),
    )


@pytest.mark.parametrize("words", [["--version"], ["nonsense"], ["plan", "missing.yaml"]], ids=str)
def test_status_and_output_are_those_of_the_program(words: list[str]) -> None:
    forked, installed = outcomes(*words)
    assert forked == installed
    assert forked[0] == (0 if words == ["--version"] else 2)


def test_forked_command_has_the_folder_and_the_environment_of_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here.yaml").write_text("study: here\nno-such-key: 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    forked, installed = outcomes("plan", "here.yaml")
    assert forked == installed
    assert "no-such-key" in forked[2]
    forked, installed = outcomes("history", "never-run")
    assert forked == installed


def test_a_command_that_takes_too_long_is_killed_and_the_next_one_runs() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        COMMANDS.run("plan", "quick", limit_s=0.001)
    assert COMMANDS.run("--version", limit_s=LIMIT_S).returncode == 0


def test_settings_read_at_interpreter_start_are_not_inherited_by_a_fork() -> None:
    began_with = {"HOME": "/root", "LC_ALL": "C.UTF-8", "PATH": "/bin"}
    changed = {"HOME": "/elsewhere", "COLUMNS": "60"}
    assert _can_fork(began_with, began_with | changed)
    for name in ("LC_ALL", "PYTHONUTF8", "PATH", "OPENBLAS_NUM_THREADS"):
        assert not _can_fork(began_with, began_with | {name: "another"})
