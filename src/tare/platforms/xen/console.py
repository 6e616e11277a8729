"""The agent's channel where it shares Xen's console with the guest's kernel."""

from __future__ import annotations

from tare.agent.channel import StreamChannel

ATTENTION = b"\x0f"
"""On its own console Linux takes the key after this byte for a command to itself (SysRq), such as
to crash or to reboot; twice, it stands for itself (drivers/tty/hvc/hvc_console.c, __hvc_poll)."""


class ConsoleChannel(StreamChannel):
    """A channel to an agent over the console of its kernel."""

    async def send(self, data: bytes) -> None:
        """Send all of ``data`` so that the kernel hands it on as it is.

        Raises:
            OSError: The other end is gone.
        """
        await super().send(data.replace(ATTENTION, 2 * ATTENTION))
