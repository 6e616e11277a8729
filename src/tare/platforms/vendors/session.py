"""Sessions with a vendor's API: calls in threads, one new login after expiry, and typed faults."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.vendors.credentials import Secret, credentials, scrubbed
from tare.platforms.vendors.tls import verifying

CALL_S = 120.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
"""The shortest and longest pause between two looks at a task, in seconds; pauses grow."""
TRIES = 5
C = TypeVar("C")
T = TypeVar("T")


def load_library(module: str, extra: str, product: str, built_with: str = "") -> ModuleType:
    """Return a module of a vendor's library.

    Args:
        module: The module's name.
        extra: The extra of Tare that installs it.
        product: The product that the library is for, for the message.
        built_with: The Debian packages needed to build the library; empty if it is not built.

    Raises:
        InputError: The library is not installed; the hint is the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _not_installed(extra, product, built_with, str(error)) from None


def require(extra: str, product: str, built_with: str, *modules: str) -> None:
    """Check that a vendor's modules are installed, without importing them.

    Args:
        extra: The extra of Tare that installs them.
        product: The product that they are for, for the message.
        built_with: The Debian packages needed to build them; empty if they are not built.
        modules: The modules' names.

    Raises:
        InputError: A module is not installed; the hint is the command that installs it.
    """
    for module in modules:
        if find_spec(module) is None:
            raise _not_installed(extra, product, built_with, f"no module named {module!r}")


def _not_installed(extra: str, product: str, built_with: str, why: str) -> InputError:
    hint = f"pip install 'hypertare[{extra}]'"
    if built_with:
        hint += f" (it is built with: apt-get install --no-remove {built_with})"
    return InputError(f"the library for {product} is not installed: {why}", hint)


class Expired(MachineFault):
    """The session has ended; a new login may help."""


class NoSuchObject(MachineFault):
    """There is no such object, or the account may not see it."""


class RequestRefused(MachineFault):
    """The product refuses a request: because of its licence, the account's rights or a state."""


def as_machine_fault(error: TareError, machine: str) -> MachineFault:
    """Convert an error to a fault of one machine; the message contains the machine's name."""
    message = error.message if machine in error.message else f"{machine}: {error.message}"
    if isinstance(error, MachineFault):
        return type(error)(message, error.hint, transient=error.transient)
    return MachineFault(message, error.hint)


async def wait_for(look: Callable[[], Awaitable[T | None]], late: str, limit_s: float) -> T:
    """Look repeatedly until there is a result, such as the end of a task, and return it.

    Args:
        look: Returns the result; None: there is no result yet.
        late: The message of the fault if there is none in time.
        limit_s: The longest wait, in seconds.

    Raises:
        MachineFault: There was no result in time.
    """
    deadline, pause = time.monotonic() + limit_s, FIRST_PAUSE_S
    while (result := await look()) is None:
        if time.monotonic() > deadline:
            raise MachineFault(late)
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE_S, pause * 1.5)
    return result


async def ask_again(look: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a request; repeat it if the connection breaks, which ends no task.

    Raises:
        MachineFault: The server refuses, or the connection broke :data:`TRIES` times.
    """
    for left in reversed(range(TRIES)):
        try:
            return await look()
        except MachineFault as fault:
            if not left or isinstance(fault, NoSuchObject | RequestRefused):
                raise
            await asyncio.sleep(0.2)
    raise AssertionError("unreachable")


class Session(ABC, Generic[C]):
    """A connection of a vendor's library.

    Its abstract methods run in threads, one at a time.

    Args:
        name: The server's name in messages.
        secrets: Secrets that no message may contain.
    """

    def __init__(self, name: str, *secrets: Secret) -> None:
        self.name = name
        self._secrets = list(secrets)
        self._client: C | None = None
        self._one = asyncio.Lock()

    @classmethod
    def require_library(cls) -> None:
        """Check that the vendor's library is installed; raises as :func:`require`."""

    @abstractmethod
    def log_in(self) -> C:
        """Connect, and return the library's own connection."""

    @abstractmethod
    def log_out(self, client: C) -> None:
        """End the connection."""

    @abstractmethod
    def fault(self, error: Exception) -> TareError:
        """Translate an error of the library.

        Return :class:`~tare.platforms.vendors.session.Expired` where logging in again may help. The
        caller removes secrets from the error's text.
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
        """Log out; do nothing if there is no login or the server is gone."""
        async with self._one:
            client, self._client = self._client, None
            if client is not None:
                with contextlib.suppress(TareError):
                    await self._threaded(self.log_out, client)

    async def call(self, work: Callable[[C], T]) -> T:
        """Run a function with the library's connection; repeat it if the session had expired.

        Args:
            work: The function, which runs in a thread. It is called a second time only if the first
                call was refused because of its session.

        Raises:
            TareError: The translation of the library's error.
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
            raise self.scrub(error) from None
        except Exception as error:
            # The library's own error may repeat the data that it sent, so it is not chained.
            raise self.scrub(self.fault(error)) from None

    def scrub(self, error: TareError) -> TareError:
        """Return an error after removing secrets from its message and hint."""
        error.message, error.hint = self.clean(error.message), self.clean(error.hint)
        error.args = (error.message,)
        return error


class AccountSession(Session[C]):
    """A session of an account that is authenticated by a password or a token.

    Args:
        connection: As :meth:`tare.platforms.vendors.options.VendorOptions.connection` returns it.

    Raises:
        InputError: The library is not installed, or the credentials or certificates are missing.
    """

    product: ClassVar[str]
    """The product's name in messages."""
    extra: ClassVar[str]
    """The extra of Tare that installs its library."""
    built_with: ClassVar[str] = ""
    """The Debian packages needed to build the library."""
    prefix: ClassVar[str]
    """The prefix of the environment variables that contain the credentials."""
    modules: ClassVar[tuple[str, ...]]
    """The library's modules, in the order in which they are imported."""
    port: ClassVar[int]
    """The TCP port that is used if the connection names none."""

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.loaded = self.load()
        self.account = credentials(self.prefix, connection["credentials"])
        self.tls = verifying(connection["ca"])
        """The TLS context that verifies the server's certificate."""
        self.ca = None if connection["ca"] is None else str(Path(connection["ca"]).expanduser())
        self.address = str(connection["address"])
        self.tcp_port = int(connection["port"] or self.port)
        super().__init__(self.address, self.account.password)

    @classmethod
    def require_library(cls) -> None:
        """Check that the library's packages are installed; raises as :func:`require`."""
        packages = dict.fromkeys(module.partition(".")[0] for module in cls.modules)
        require(cls.extra, cls.product, cls.built_with, *packages)

    @classmethod
    def load(cls) -> tuple[Any, ...]:
        """Import the library's modules; raises as :func:`load_library`."""
        return tuple(
            load_library(module, cls.extra, cls.product, cls.built_with) for module in cls.modules
        )

    def untrusted(self, hint: str = "name its CA's certificate, or its own, by `ca`") -> InputError:
        """Return the fault of a server whose certificate is not trusted."""
        return InputError(f"the certificate of {self.name} is not trusted", hint)

    def rejected(self, hint: str = "") -> InputError:
        """Return the fault of a rejected login."""
        return InputError(
            f"{self.name} does not let {self.account.user} in",
            hint
            or f"check {self.prefix}_USER and {self.prefix}_PASSWORD, or the file of `credentials`",
        )

    def broken(self, error: Exception) -> MachineFault:
        """Return the fault of a broken connection, without the library's own message."""
        return MachineFault(f"the connection to {self.name} broke: {type(error).__name__}")


S = TypeVar("S", bound=Session[Any])


@contextlib.asynccontextmanager
async def opened(session: S) -> AsyncIterator[S]:
    """Hold a session open; raises as :meth:`Session.open` does."""
    await session.open()
    try:
        yield session
    finally:
        await session.close()
