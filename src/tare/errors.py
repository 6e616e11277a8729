"""The errors Tare tells its users about; each says what is wrong and what to do."""

from __future__ import annotations

from tare.plaintext import plain


class TareError(Exception):
    """Something a user must be told, in one message, with a hint that can be acted on."""

    def __init__(self, message: str, hint: str = "") -> None:
        # Much of it was said by programs, devices and guests.
        self.message = plain(message)
        self.hint = plain(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class InputError(TareError):
    """What the user gave cannot be used: nothing was started; exit code 2."""


class NotAvailable(InputError):
    """What is asked for is right, but this computer cannot get it: a package, say, or a network."""


class MachineFault(TareError):
    """A machine did not start, died, or stopped answering."""

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        console_tail: tuple[str, ...] = (),
        transient: bool = False,
    ) -> None:
        super().__init__(message, hint)
        self.console_tail = tuple(map(plain, console_tail))
        self.transient = transient


class HostFroze(MachineFault):
    """An emulated host stopped answering, while its emulator still ran: a fault of the emulation.

    It is always transient: whoever has the host boots it again.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        console_tail: tuple[str, ...] = (),
        transient: bool = True,
    ) -> None:
        super().__init__(message, hint, console_tail=console_tail, transient=transient)


class WorkloadFault(TareError):
    """The agent says that a workload could not be carried out."""


def heard(todo: str, tool: str, words: str) -> str:
    """Return a hint that ends with a tool's own words: they help those who know the tool.

    A reason and what to do about it are Tare's sentences; nobody has to know the tool for them.

    Args:
        todo: What to do; may be empty.
        tool: What spoke, such as ``QEMU``.
        words: What it said; empty if nothing.
    """
    line = " ".join(plain(words).split())
    said = f'({tool} said: "{line}")' if line else ""
    return " ".join(part for part in (todo, said) if part)
