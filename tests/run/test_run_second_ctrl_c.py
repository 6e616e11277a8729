"""The second Ctrl-C ends a run within five seconds, whatever it waits for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deadlines import patient
from tare.run.lifecycle.interrupt import _LastResort

HANGS = {
    "never ending clean-up": "await asyncio.sleep(3600)",
    "a blocked event loop": "time.sleep(3600)",
    "a clean-up that ignores being cancelled": (
        "\n            while True:\n                try: await asyncio.sleep(3600)"
        "\n                except asyncio.CancelledError: pass"
    ),
}
RUN = """
import asyncio, sys, time
from pathlib import Path
from tare.run.lifecycle.interrupt import StopRequest, listening

async def run():
    stop = StopRequest(asyncio.current_task(), lambda *_: None, lambda: None)
    with listening(stop, Path(sys.argv[1]), "tare resume my-run"):
        try:
            print("ready", flush=True)
            await asyncio.sleep(3600)
        finally:
            {hang}

asyncio.run(run())
"""
CLEARS = """
import asyncio, sys, time
from pathlib import Path
from tare.run.lifecycle.interrupt import StopRequest, listening

async def run():
    stop = StopRequest(asyncio.current_task(), lambda *_: None, lambda: None)
    with listening(stop, Path(sys.argv[1]), "tare resume my-run"):
        try:
            print("ready", flush=True)
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

asyncio.run(run())
time.sleep(6)
print("the report is written")
"""


def await_text(path: Path, text: str, limit_s: float = 30) -> None:
    deadline = time.monotonic() + patient(limit_s)
    while not (path.exists() and path.read_text().endswith(text)):
        assert time.monotonic() < deadline, path.read_text() if path.exists() else "nothing"
        time.sleep(0.1)


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
def test_a_second_ctrl_c_ends_what_hangs(
    hang: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with subprocess.Popen(
        [sys.executable, "-c", RUN.format(hang=hang), tmp_path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as run:  # fmt: skip
        assert run.stdout is not None and run.stdout.readline() == "ready\n"
        run.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert run.poll() is None
        began = time.monotonic()
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=20)
        assert time.monotonic() - began < 5
    assert run.returncode == 130
    assert f"see {tmp_path}/clean.log" in errors and "tare resume my-run" in errors
    await_text(tmp_path / "clean.log", "clean\n")


def test_a_folder_that_cannot_be_written_leaves_the_rest_to_the_user(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    _LastResort(None, tmp_path / "gone", "tare resume my-run")._give_up()
    output = capfd.readouterr().err
    assert ended == [130] and "tare clean" in output and "tare resume my-run" in output


def test_a_run_that_cleaned_up_in_time_finishes_its_report(tmp_path: Path) -> None:
    words = [sys.executable, "-c", CLEARS, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stdout.readline() == "ready\n"
        for _ in range(2):
            run.send_signal(signal.SIGINT)
            time.sleep(0.2)
        output, _ = run.communicate(timeout=20)
    assert run.returncode == 0 and "the report is written" in output
