"""The handle of an endless load that an agent runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tare.agent.answers import Outcome
from tare.agent.connection import Request, reason_of

StopLoad = Callable[[float], Awaitable[Outcome]]
"""Stops a load within so many seconds; see :meth:`LoadHandle.stop`."""


class LoadHandle:
    """A running endless load.

    Args:
        request: The request that started it; answered when it ends.
        stop: Stops it.
    """

    def __init__(self, request: Request, stop: StopLoad) -> None:
        self._request = request
        self._stop = stop

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself, which is a failure."""
        return self._request.answer.done()

    @property
    def failure(self) -> str:
        """The agent's reason for its failure; empty if it did not fail, or its agent is lost."""
        answer = self._request.answer
        if not answer.done() or answer.cancelled() or answer.exception() is not None:
            return ""
        return reason_of(answer.result()) if answer.result()["type"] == "error" else ""

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when it ends, by itself or because it was stopped."""
        self._request.answer.add_done_callback(lambda _: callback())

    async def stop(self, timeout_s: float = 30.0) -> Outcome:
        """Stop it, and return its result.

        Raises:
            MachineFault: The agent is lost, or does not answer within ``timeout_s`` seconds.
            WorkloadFault: The load had failed.
        """
        return await self._stop(timeout_s)
