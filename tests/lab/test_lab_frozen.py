"""A lab whose emulation stops: how that is detected and reported, and what its test does."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

import pytest

from tare.errors import HostFroze, MachineFault
from tare.hosts.ssh.connect import log_in
from tare.lab.command import LabPaths
from tare.lab.heartbeat import cpu_times, stopped, stopped_cpus
from tare.lab.host import ssh_options
from tare.lab.host_files import make_keys

TESTS = Path(__file__).resolve().parents[1]
STAT = """\
cpu  300 0 30 2000 5 0 0 0 0 0
cpu0 100 0 20 1000 5 0 0 0 0 0
cpu1 200 0 10 1000 0 0 0 0 0 0
intr 4711 0 3
ctxt 99
"""


def looks(*stats: str) -> Callable[[], Coroutine[None, None, str]]:
    """Return what shows each of some contents in turn, and the last one from then on."""
    left = list(stats)

    async def look() -> str:
        return left.pop(0) if len(left) > 1 else left[0]

    return look


def test_a_cpu_that_neither_idles_nor_works_is_stopped() -> None:
    before = cpu_times(STAT)
    assert cpu_times(f"\n{STAT}\n\n") == before
    assert before == {"cpu0": 1125, "cpu1": 1210}
    # One worked, or one was idle: either is a sign of life.
    assert stopped(before, cpu_times(STAT.replace("cpu0 100", "cpu0 101"))) == [1]
    assert stopped(before, cpu_times(STAT.replace("cpu1 200 0 10 1000", "cpu1 200 0 10 1003"))) == [
        0
    ]
    # One that went offline meanwhile is not judged.
    assert stopped(before, cpu_times(STAT.replace("cpu1 ", "gone "))) == [0]


async def test_each_cpu_is_given_time_to_show_a_sign_of_life() -> None:
    one = STAT.replace("cpu0 100", "cpu0 101")
    both = one.replace("cpu1 200", "cpu1 201")
    assert await stopped_cpus(looks(STAT, STAT, one, both), patience_s=30.0) == []
    assert await stopped_cpus(looks(STAT, one), patience_s=0.1) == [1]


async def test_a_message_about_a_lab_never_asks_to_log_in(tmp_path: Path) -> None:
    places = LabPaths(tmp_path)
    places.known_hosts.write_text("")
    # A connection that is taken and never answered, as by an emulated host that froze.
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        options = replace(ssh_options(places, port), connect_s=0.3)
        places.key.write_bytes(make_keys().client.export_private_key("openssh"))
        with pytest.raises(HostFroze) as fault:
            await log_in(options)
        assert str(fault.value) == ("the emulated host froze: it did not let Tare in within 0.3 s")
        assert fault.value.transient
        # A real host is another matter.
        with pytest.raises(MachineFault, match="did not let Tare in") as real:
            await log_in(replace(options, emulated=False))
        assert not isinstance(real.value, HostFroze)
        assert "ssh" in real.value.hint


SUITE = """
import pytest
from lab.conftest import *
from lab import conftest
from tare.errors import HostFroze

conftest.emulation_failed = lambda: ""
made = []

@pytest.fixture(scope="module")
def lab():
    made.append(1)
    yield len(made)

def test_before(lab):
    assert lab == 1

def test_frozen(lab):
    if lab <= {freezes}:
        try:
            raise HostFroze("the emulated host froze")
        except HostFroze as error:
            raise AssertionError("it did not answer") from error

def test_after(lab):
    assert lab == {freezes} + 1

def test_wrong(lab):
    assert {sound}
"""


@pytest.mark.parametrize(
    ("freezes", "sound", "passed", "failed"),
    [(0, True, 4, 0), (1, True, 4, 0), (2, True, 2, 2), (0, False, 3, 1)],
)
def test_a_test_is_run_again_where_its_lab_froze_once_and_fails_where_it_froze_twice(
    tmp_path: Path, freezes: int, sound: bool, passed: int, failed: int
) -> None:
    (tmp_path / "conftest.py").write_text("from lab.conftest import *\n")
    body = SUITE.format(freezes=freezes, sound=sound)
    (tmp_path / "test_one.py").write_text(body.replace("from lab.conftest import *\n", ""))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = done.stdout.splitlines()[-1]
    assert f"{passed} passed" in found, done.stdout
    assert (f"{failed} failed" in found) == (failed > 0), done.stdout
    # A fixture that others share is made again with the lab, once.
    assert "error" not in found, done.stdout
