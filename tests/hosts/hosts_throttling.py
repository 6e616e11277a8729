"""This computer, with a test's own setting of real-time throttling.

It is one setting of the whole computer: whatever else measures here changes it meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from tare.hosts import LocalHost
from tare.hosts.realtime import FAIR_SERVERS, RT_RUNTIME

USUAL = "950000\n"


class OwnThrottling(LocalHost):
    """This computer with a setting for real-time throttling of its own; it has no fair server.

    Args:
        agent: The agent's program.
        setting: The file that holds it; made here where it is missing.
    """

    def __init__(self, agent: Path, setting: Path) -> None:
        super().__init__(agent)
        self.setting = setting
        if not setting.exists():
            setting.write_text(USUAL)

    async def read(self, path: str | Path) -> bytes:
        return await super().read(self._own(path))

    async def write(self, path: str | Path, data: bytes) -> None:
        await super().write(self._own(path), data)

    async def exists(self, path: str | Path) -> bool:
        return await super().exists(self._own(path))

    def _own(self, path: str | Path) -> Path:
        if Path(path) == RT_RUNTIME:
            return self.setting
        if Path(path).is_relative_to(FAIR_SERVERS):
            return self.setting.with_name("no-fair-server")
        return Path(path)
