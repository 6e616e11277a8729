"""What is asked of Xen's toolstack, by a program of its name that notes what it was asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.errors import MachineFault
from tare.hosts import LocalHost
from tare.platforms.xen.toolstack import unpause


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "asked"
    programs = tmp_path / "bin"
    programs.mkdir()
    refusal = 'echo "libxl: error: Domain $2:No such domain" >&2; exit 1'
    for name, then in (("xl", f'[ "$2" = 5 ] || {{ {refusal}; }}'), ("sleep", "")):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {file}\n{then}\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return file


async def test_a_domain_is_let_go(asked: Path, agent_program: Path) -> None:
    await unpause(LocalHost(agent_program), 5)
    assert asked.read_text() == "xl unpause 5\n"


async def test_end_of_counted_time_is_known_once_the_guest_has_booted(
    asked: Path, agent_program: Path
) -> None:
    await unpause(LocalHost(agent_program), 5, counted_by=agent_program)
    assert asked.read_text() == "xl unpause 5\nsleep 10\n"


@pytest.mark.parametrize("counted", [False, True])
async def test_refusal_is_reported_in_xens_words(
    asked: Path, agent_program: Path, counted: bool
) -> None:
    with pytest.raises(MachineFault, match="No such domain"):
        await unpause(LocalHost(agent_program), 7, counted_by=agent_program if counted else None)
    assert asked.read_text() == "xl unpause 7\n"
