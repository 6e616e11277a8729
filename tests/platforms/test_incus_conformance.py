"""Incus's driver passes every platform's cases, with LXD or Incus of Debian and real machines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

import pytest
import pytest_asyncio

from platforms.incus_daemon import asked, killed_words, left_in, served, way_of
from tare.platforms.contract import Context
from tare.platforms.incus.instance import project_of
from tare.platforms.incus.options import IncusOptions
from tare.platforms.incus.platform import Incus
from tare.testing.conformance import PlatformCases
from tare.testing.hosts import SecondHost
from tare.testing.machines import RunningMachine


class Containers(PlatformCases):
    chosen: ClassVar[dict[str, object]] = {}
    way: ClassVar[dict[str, object]]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def server(cls) -> Iterator[None]:
        with served() as folder:
            cls.way, cls.killed_words = way_of(folder), killed_words()
            settings = {"type": "container", "socket": cls.way["socket"], **cls.chosen}
            cls.options = IncusOptions.model_validate(settings)
            yield
            assert left_in(folder) == []

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def elsewhere(cls, context: Context) -> AsyncIterator[SecondHost | None]:
        yield None

    async def kill(self, running: RunningMachine) -> None:
        """End the container from outside, as its owner does."""
        name = running.spec.name
        path = f"/1.0/instances/{name}/state?project={project_of(name)}"
        body = {"action": "stop", "timeout": 10, "force": True}
        await asyncio.to_thread(asked, dict(self.way), "PUT", path, body)


@pytest.mark.acceptance
class TestIncusContainers(Containers):
    platform = Incus()


@pytest.mark.acceptance
class TestIncusContainersCapped(Containers):
    platform = Incus()
    chosen: ClassVar[dict[str, object]] = {"privileged": True, "scheduling": {"cap": 0.5}}
