"""A fault of the clean-up does not replace the interruption that caused the clean-up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from tare.errors import MachineFault
from tare.run.lifecycle.interrupt import interruptible


async def work_whose_cleanup_fails(fault: Exception, *, interrupted: bool) -> None:
    try:
        if interrupted:
            signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0.01)
    finally:
        raise fault


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Take SIGINT as a command does; tests may have been started where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("fault", [MachineFault("does not answer"), OSError(5, "the terminal")])
def test_an_interrupted_command_ends_as_such_although_its_cleanup_fails(fault: Exception) -> None:
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interruptible(work_whose_cleanup_fails(fault, interrupted=True)))


def test_a_fault_without_an_interruption_is_reported() -> None:
    fault = MachineFault("does not answer")
    with pytest.raises(MachineFault, match="does not answer"):
        asyncio.run(interruptible(work_whose_cleanup_fails(fault, interrupted=False)))
