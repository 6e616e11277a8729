"""An endless load that an agent runs, as whoever started it holds it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tare.agent.answers import Outcome
from tare.agent.connection import Request, reason_of

StopLoad = Callable[[float], Awaitable[Outcome]]
"""Asks a load to end, within so many seconds; see :meth:`LoadHandle.stop`."""


class LoadHandle:
    """An endless load under way.

    Args:
        request: What it was started by; answered when it ends.
        stop: Asks it to end.
    """

    def __init__(self, request: Request, stop: StopLoad) -> None:
        self._request = request
        self._stop = stop

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself, which loads should not."""
        return self._request.answer.done()

    @property
    def failure(self) -> str:
        """Why it failed, in the agent's words; empty where it did not, or its agent is lost."""
        answer = self._request.answer
        if not answer.done() or answer.cancelled() or answer.exception() is not None:
            return ""
        return reason_of(answer.result()) if answer.result()["type"] == "error" else ""

    def on_end(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` when it ends, by itself or because it was asked to."""
        self._request.answer.add_done_callback(lambda _: tell())

    async def stop(self, timeout_s: float = 30.0) -> Outcome:
        """Ask it to end, and return what it did.

        Raises:
            MachineFault: The agent is lost, or does not answer within ``timeout_s`` seconds.
            WorkloadFault: The load had failed.
        """
        return await self._stop(timeout_s)
