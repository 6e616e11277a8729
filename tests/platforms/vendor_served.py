"""What tests share of drivers whose server is a test's own: the cases, a login, the messages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from platforms.loopback_cases import LoopbackCases
from platforms.vendor_guests import Guests
from run.run_driving import TARE
from tare.platforms.contract import Context, MachineSpec, Platform, PlatformOptions, Shape
from tare.platforms.vendors.machine import VendorMachine
from tare.platforms.vendors.own_disk import scratch_configuration
from tare.run.lifecycle.session import agent_path
from tare.testing.hosts import SecondHost
from tare.testing.machines import Machines, RunningMachine

NO_DISK = (
    "the server has made the disk; a local agent plays the guest, and a process sees no disk of a "
    "server's (tests/platforms/test_vendor_disks.py has one that does)"
)
MIB = 1 << 20
RUN_S = 300.0


def login(folder: Path, user: str, password: str) -> Path:
    """Write a file of credentials."""
    file = folder / "credentials"
    file.touch(0o600)
    file.write_text(f"user={user}\npassword={password}\n")
    return file


def reached(server: Any, user: str, password: str) -> dict[str, object]:
    """Return the options by which an arm reaches a server on loopback."""
    return {
        "address": "127.0.0.1",
        "port": server.port,
        "ca": str(server.ca),
        "credentials": str(login(server.ca.parent, user, password)),
    }


def spec_of(folder: Path, cpus: tuple[int, ...] = (), vcpus: int = 2) -> MachineSpec:
    """Return a machine to be made."""
    return MachineSpec("tare-t-1-subject", Shape(vcpus, 256 * MIB), cpus, folder / "w", False)


async def started(
    platform: Platform[Any], context: Context, options: PlatformOptions, spec: MachineSpec
) -> VendorMachine:
    """Make a machine as a run does."""
    prepared = await platform.prepare(context, options, spec.shape, False)
    machine = await platform.start(context, options, prepared, spec)
    assert isinstance(machine, VendorMachine)
    return machine


async def messages_of(work: Callable[[], Awaitable[Any]]) -> str:
    """Return all messages of some work, whether it ends well or not."""
    try:
        return repr(await work())
    except Exception as error:
        return f"{error!r} {error} {getattr(error, 'hint', '')} {error.__cause__!r}"


async def tare(*words: str, **variables: str) -> tuple[int, str]:
    """Run the command; return its status and all of its output."""
    return await tare_within(RUN_S, *words, **variables)


async def tare_within(patience_s: float, /, *words: str, **variables: str) -> tuple[int, str]:
    """Run the command for so many seconds at most; return its status and all of its output."""
    process = await asyncio.create_subprocess_exec(
        TARE,
        *words,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), patience_s)
    return process.returncode or 0, output.decode()


class ServedCases(LoopbackCases):
    """The cases that every platform passes, with a server that boots nothing."""

    chosen: ClassVar[dict[str, object]] = {}
    server: ClassVar[Any]
    guests: ClassVar[Guests]

    @classmethod
    def begun(cls, folder: Path) -> tuple[Any, dict[str, object]]:
        """Return a server that was not started yet, and the options by which it is reached."""
        raise NotImplementedError

    @classmethod
    def number_of(cls, name: str) -> Any:
        """Return the number or reference of the VM of that name."""
        raise NotImplementedError

    @classmethod
    def disk_of(cls, name: str) -> tuple[str, int]:
        """Return on what bus the VM of that name has its own disk, and the disk's bytes."""
        raise NotImplementedError

    bus: ClassVar[str]
    """On what bus the server is to attach that disk, in its own words."""

    @classmethod
    def require_nothing_left(cls) -> None:
        """See that what was there before is all that is there now."""
        raise NotImplementedError

    async def test_disk(self, machines: Machines, shape: Shape) -> None:
        """The server creates it as requested, and the agent gets what it may format."""
        running = await machines.subject()
        assert shape.disk and self.disk_of(running.spec.name) == (self.bus, shape.disk)
        scratch = self.guests.configurations[running.spec.name]["scratch"]
        assert scratch == scratch_configuration(shape.disk)["scratch"]
        assert "ext4" in scratch["format"] and await running.machine.forget_disk()
        pytest.skip(NO_DISK)

    @pytest_asyncio.fixture(scope="class", loop_scope="module", autouse=True)
    @classmethod
    async def served(cls, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[None]:
        server, way = cls.begun(tmp_path_factory.mktemp("served"))
        guests = Guests(agent_path(), server.powered_off)
        server.plug, server.unplug = guests.plug, guests.unplug
        cls.server, cls.guests = server, guests
        cls.options = cls.platform.options.model_validate({**way, **cls.chosen})
        server.start()
        try:
            yield
            cls.require_nothing_left()
        finally:
            await guests.close()
            server.stop()

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def elsewhere(cls, context: Context) -> AsyncIterator[SecondHost | None]:
        yield None

    async def kill(self, running: RunningMachine) -> None:
        """End the guest as a crash of it does."""
        await self.guests.end(self.number_of(running.spec.name))
