"""How much an agent may say in a while: reading costs the host time that others measure in."""

from __future__ import annotations

import time
from collections.abc import Callable

from tare.agent.message import Nonsense

BURST_BYTES = 32 << 20
BYTES_PER_S = 1 << 20
BURST_MESSAGES = 20_000
MESSAGES_PER_S = 200
"""An agent tells of its progress about once a second, and answers what it is asked."""


class Talk:
    """Counts messages against an allowance that grows with time.

    Args:
        clock: Seconds since any moment.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bytes, self._messages = float(BURST_BYTES), float(BURST_MESSAGES)
        self._then = clock()

    def hear(self, size: int) -> None:
        """Account for a message of ``size`` bytes.

        Raises:
            Nonsense: It is one too many.
        """
        now = self._clock()
        passed_s, self._then = now - self._then, now
        self._bytes = min(self._bytes + passed_s * BYTES_PER_S, BURST_BYTES) - size
        self._messages = min(self._messages + passed_s * MESSAGES_PER_S, BURST_MESSAGES) - 1
        if self._bytes < 0 or self._messages < 0:
            raise Nonsense("so many messages that they are none")
