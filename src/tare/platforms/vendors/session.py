"""Sessions with a vendor's API: calls in threads, one new login after expiry, and typed faults."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Generic, TypeVar

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.vendors.credentials import Secret, scrubbed


def load_library(module: str, extra: str, product: str) -> ModuleType:
    """Return a vendor's module.

    Args:
        module: Its name.
        extra: The extra of Tare's that brings it.
        product: What it is for, in words.

    Raises:
        InputError: It is not installed; the hint is the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(extra, product, str(error)) from None


def require(extra: str, product: str, *modules: str) -> None:
    """Check that a vendor's modules are installed, without importing them.

    Args:
        extra: The extra of Tare's that brings them.
        product: What they are for, in words.
        modules: Their names.

    Raises:
        InputError: One is not installed; the hint is the command that installs it.
    """
    for module in modules:
        if find_spec(module) is None:
            raise _missing(extra, product, f"no module named {module!r}")


def _missing(extra: str, product: str, why: str) -> InputError:
    return InputError(
        f"the library that speaks with {product} is not there: {why}",
        f"pip install 'hypertare[{extra}]'",
    )


class Expired(MachineFault):
    """The session has ended: logging in again may help."""


class Missing(MachineFault):
    """There is no such object, or the account may not see it."""


class Refused(MachineFault):
    """The product refuses what was asked: its licence, the account's rights, a wrong state."""


def named(error: TareError, machine: str) -> MachineFault:
    """Return an error as a fault of one machine, with its name in front where it is not told."""
    told = error.message if machine in error.message else f"{machine}: {error.message}"
    if isinstance(error, MachineFault):
        return type(error)(told, error.hint, transient=error.transient)
    return MachineFault(told, error.hint)


CALL_S = 120.0
C = TypeVar("C")
T = TypeVar("T")


class Session(ABC, Generic[C]):
    """A connection of a vendor's library.

    Its methods that are abstract run in threads, one at a time.

    Args:
        name: How messages name the server.
        secrets: What must be in no message.
    """

    def __init__(self, name: str, *secrets: Secret) -> None:
        self.name = name
        self._secrets = list(secrets)
        self._client: C | None = None
        self._one = asyncio.Lock()

    @abstractmethod
    def log_in(self) -> C:
        """Connect, and return the library's own connection."""

    @abstractmethod
    def log_out(self, client: C) -> None:
        """End the connection."""

    @abstractmethod
    def fault(self, error: Exception) -> TareError:
        """Return what an error of the library means.

        :class:`~tare.platforms.vendors.session.Expired` where logging in again may help. Its words
        are scrubbed of secrets afterwards.
        """

    def hide(self, secret: Secret) -> None:
        """Keep one more secret out of messages, such as the session's own id."""
        self._secrets.append(secret)

    def clean(self, text: str) -> str:
        """Return a text without secrets."""
        return scrubbed(text, self._secrets)

    async def open(self) -> None:
        """Log in.

        Raises:
            TareError: The server does not answer, its certificate is not trusted, or the login
                is wrong.
        """
        async with self._one:
            await self._ensure()

    async def close(self) -> None:
        """Log out; nothing happens where nobody is logged in, or the server is gone."""
        async with self._one:
            client, self._client = self._client, None
            if client is not None:
                with contextlib.suppress(TareError):
                    await self._threaded(self.log_out, client)

    async def call(self, work: Callable[[C], T]) -> T:
        """Do some work with the library's connection; once more where the session had expired.

        Args:
            work: Runs in a thread. It is called twice at most, and the second time only where the
                first was refused for its session.

        Raises:
            TareError: What the library's error means.
        """
        async with self._one:
            client = await self._ensure()
            try:
                return await self._threaded(work, client)
            except Expired:
                self._client = None
                with contextlib.suppress(TareError):
                    await self._threaded(self.log_out, client)
                client = await self._ensure()
                return await self._threaded(work, client)

    async def _ensure(self) -> C:
        if self._client is None:
            self._client = await self._threaded(self.log_in)
        return self._client

    async def _threaded(self, work: Callable[..., T], *client: C) -> T:
        try:
            async with asyncio.timeout(CALL_S):
                return await asyncio.to_thread(work, *client)
        except TimeoutError:
            raise MachineFault(f"{self.name} did not answer within {CALL_S:g} s") from None
        except TareError as error:
            raise self._scrubbed(error) from None
        except Exception as error:
            # The library's own error may repeat what it sent: it is told in clean words alone.
            raise self._scrubbed(self.fault(error)) from None

    def _scrubbed(self, error: TareError) -> TareError:
        error.message, error.hint = self.clean(error.message), self.clean(error.hint)
        error.args = (error.message,)
        return error


S = TypeVar("S", bound=Session[Any])


@contextlib.asynccontextmanager
async def opened(session: S) -> AsyncIterator[S]:
    """Hold a session open; raises as :meth:`Session.open` does."""
    await session.open()
    try:
        yield session
    finally:
        await session.close()
