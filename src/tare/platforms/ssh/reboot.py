"""A fresh boot of a machine that exists."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from tare.errors import InputError, MachineFault

if TYPE_CHECKING:
    from tare.hosts.ssh.host import SshHost

ASK_S = 30.0
TRY_EVERY_S = 1.0


async def reboot(host: SshHost, patience_s: float) -> None:
    """Reboot a machine, and wait until it answers again.

    Args:
        host: The machine; it is connected to the new boot afterwards, with a new copy of the agent.
        patience_s: Seconds that it may take.

    Raises:
        InputError: It refuses.
        MachineFault: It did not come back, or did not reboot, in that time.
    """
    before = host.boot_id()
    deadline = time.monotonic() + patience_s
    # The connection may break before the answer comes.
    with contextlib.suppress(MachineFault, OSError):
        await host.run(["sync"], timeout_s=ASK_S)
        asked = await host.run(["reboot"], timeout_s=ASK_S)
        if not asked.ok:
            raise InputError(
                f"{host.name} refuses to reboot: {asked.words()}",
                "leave `reboot` out, or let its user reboot it",
            )
    last = "it still runs the previous boot"
    while time.monotonic() < deadline:
        await asyncio.sleep(TRY_EVERY_S)
        # A machine that comes up refuses connections, and then logins, for a while.
        try:
            async with asyncio.timeout(max(1.0, deadline - time.monotonic())):
                await host.run(["true"])
        except (MachineFault, InputError, OSError, TimeoutError) as error:
            last = str(error) or "it did not answer"
            continue
        if host.boot_id() != before:
            return
    raise MachineFault(
        f"{host.name} did not come back from its reboot within {patience_s:g} s: {last}",
        "give it more time: `reboot-patience`",
        transient=True,
    )
