"""One lab for the tests of a module: what they work with in it."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tare.errors import HostFroze
from tare.hosts import Host, Ledger, LocalHost
from tare.images.cache import default_cache
from tare.lab.background import login
from tare.lab.emulator import emulator_in
from tare.lab.heartbeat import STAT, cpu_times, stopped
from tare.lab.host import Lab, lab_up
from tare.lab.options import LabOptions
from tare.platforms.contract import Context, MachineSpec, Shape

SHAPE = Shape(vcpus=1, memory=192 << 20)
PATIENCE_S = 300.0
_APART_S = 20
"""Seconds between two checks of a lab's CPUs."""
_LOOK_S = 120
"""Seconds after which a lab that does not answer has failed."""
QEMU = "qemu-system-x86_64"
OWN = 1
"""The lab's CPU that guests are pinned to; its first one is left to everything else."""


def require_hardware_guests() -> None:
    """Skip where no PVH or HVM guest of Xen comes up, for the QEMU that emulates labs here."""
    output = subprocess.run([QEMU, "--version"], capture_output=True, text=True, check=False)
    version = emulator_in(output.stdout).version
    if version.startswith("10.0."):
        pytest.skip(f"QEMU {version} emulates no computer on which Xen's PVH or HVM guests come up")


@dataclass
class Inside:
    """A lab that is up.

    Args:
        lab: The lab.
        context: Where platforms work in it.
        here: Where they work on this computer.
        numbers: Makes names unique.
    """

    lab: Lab
    context: Context
    here: Context
    numbers: itertools.count[int]

    @property
    def host(self) -> Host:
        """The way into it."""
        return self.context.host

    async def sh(self, script: str) -> str:
        """Run a script in it, which must succeed; return what it printed."""
        done = await self.host.run(["sh", "-c", script], timeout_s=PATIENCE_S)
        assert done.ok, done.words()
        return done.stdout.decode()

    def spec(self, role: str = "subject", shape: Shape = SHAPE, cpu: int = OWN) -> MachineSpec:
        """Return a machine that is pinned to a CPU, by default the one for guests."""
        name = f"tare-test-{next(self.numbers)}-{role}"
        return MachineSpec(name, shape, (cpu,), Path("/tmp") / name, True, role)


_UP: list[Lab] = []


@contextmanager
def noted(lab: Lab) -> Iterator[None]:
    """Have a lab looked at when a test fails, while it is up."""
    _UP.append(lab)
    try:
        yield
    finally:
        _UP.remove(lab)


def emulation_failed() -> str:
    """Return how the emulation of a lab that is up failed; empty: all of them run.

    Labs are asked by a program of its own, as the event loop of a test that failed may be closed.
    """
    return next((words for lab in _UP if (words := _failed(lab))), "")


def _failed(lab: Lab) -> str:
    if lab.died.done():
        fault = lab.died.result()
        failed = isinstance(fault, HostFroze) or "panicked" in fault.message
        return fault.message if failed else ""
    look = f"cat {STAT}; echo ==; sleep {_APART_S}; cat {STAT}"
    try:
        output = subprocess.run(
            login(lab.places, lab.port, [look]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LOOK_S,
            check=True,
        ).stdout
    except subprocess.TimeoutExpired:
        return f"{lab.name} lets nobody in within {_LOOK_S:g} s"
    except subprocess.CalledProcessError:
        # Its QEMU may just have been killed by the test.
        return ""
    before, _, after = output.partition("==")
    still = stopped(cpu_times(before), cpu_times(after))
    return f"CPU {still} of {lab.name} no longer takes interrupts" if still else ""


@asynccontextmanager
async def inside(
    options: LabOptions, folder: Path, agent: Path, kernel: str
) -> AsyncIterator[Inside]:
    """Boot a lab; afterwards check that both ledgers are empty, and that the lab is gone."""
    here = LocalHost(agent)
    local = Context(here, Ledger(folder / "here"), default_cache(), agent, kernel)
    # Anywhere: two labs at once would share the CPU for guests, and leave the other one idle.
    up = await lab_up(local, options, folder / "tare-lab", tell=print, cpus=())
    async with AsyncExitStack() as ending:
        lab = await ending.enter_async_context(up)
        ending.enter_context(noted(lab))
        ledger = Ledger(folder / "there", host=lab.host.name, boot=lab.host.boot_id)
        context = replace(
            local, host=lab.host, here=here, ledger=ledger, counted=options.deterministic
        )
        yield Inside(lab, context, local, itertools.count(1))
        # What was in a lab that failed ended with it, and nothing there could be asked to end.
        assert lab.died.done() or not ledger.open_entries()
        ledger.close()
    assert not lab.places.folder.exists()
    assert not local.ledger.open_entries()
    local.ledger.close()
