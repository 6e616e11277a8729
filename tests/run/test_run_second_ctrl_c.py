"""The second Ctrl-C ends a run within five seconds, whatever it waits for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

HANGS = {
    "never ending clean-up": "await asyncio.sleep(3600)",
    "a blocked event loop": "time.sleep(3600)",
    "a clean-up that ignores being cancelled": (
        "\n            while True:\n                try: await asyncio.sleep(3600)"
        "\n                except asyncio.CancelledError: pass"
    ),
}
RUN = """
import asyncio, time
from tare.run.interrupt import StopRequest, listening

async def run():
    stop = StopRequest(asyncio.current_task(), lambda *_: None, lambda: None)
    with listening(stop):
        try:
            print("ready", flush=True)
            await asyncio.sleep(3600)
        finally:
            {hang}

asyncio.run(run())
"""
CLEARS = """
import asyncio, time
from tare.run.interrupt import StopRequest, listening

async def run():
    stop = StopRequest(asyncio.current_task(), lambda *_: None, lambda: None)
    with listening(stop):
        try:
            print("ready", flush=True)
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

asyncio.run(run())
time.sleep(6)
print("the report is written")
"""


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
def test_a_second_ctrl_c_ends_what_hangs(hang: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN.format(hang=hang)],
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
    assert run.returncode == 130 and "tare clean" in errors


def test_what_has_cleared_up_in_time_takes_its_time_for_the_report() -> None:
    with subprocess.Popen([sys.executable, "-c", CLEARS], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stdout.readline() == "ready\n"
        for _ in range(2):
            run.send_signal(signal.SIGINT)
            time.sleep(0.2)
        said, _ = run.communicate(timeout=20)
    assert run.returncode == 0 and "the report is written" in said
