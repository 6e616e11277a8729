"""A guest's firmware, for simulators that boot nothing: it starts an agent that connects back.

As a real guest does, it finds the image labelled TARE-CFG among those attached to the virtual
machine, and starts the agent with that configuration. So create → dial back → measure → destroy is
one path.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tare.platforms.vendors.configuration import read_configuration


class LocalGuest:
    """A process of this computer in place of a guest.

    Args:
        agent: The agent's program.
        around: Words to put before the command, such as those that enter a network namespace.
        environment: Variables in addition to this process's own.
    """

    def __init__(
        self,
        agent: Path,
        around: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._agent = agent
        self._around = around
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def runs(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.returncode is None

    async def boot(self, images: Iterable[bytes]) -> None:
        """Start the agent with the configuration on one of the attached images.

        Raises:
            LookupError: No image is labelled TARE-CFG: a real guest would wait forever.
        """
        found = [known for image in images if (known := read_configuration(image)) is not None]
        if not found:
            raise LookupError("no image labelled TARE-CFG is attached: the guest does nothing")
        self._folder = tempfile.TemporaryDirectory(prefix="tare-guest-")
        # The machine's name is in no argument, because searches for its remains must not find it.
        file = Path(self._folder.name) / "configuration.json"
        file.touch(0o600)
        file.write_text(json.dumps(found[0]))
        self._process = await asyncio.create_subprocess_exec(
            *self._around,
            str(self._agent),
            "dial",
            str(file),
            stdin=asyncio.subprocess.DEVNULL,
            env=self._environment,
        )

    async def wait(self) -> None:
        """Wait until the process has ended by itself."""
        if self._process is not None:
            await self._process.wait()

    async def end(self) -> None:
        """Kill the process at once, as a power failure would; may be called again."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, 9)
            await self._process.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
