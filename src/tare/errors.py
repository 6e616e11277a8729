"""The errors that Tare reports to its users; each states what is wrong and what to do."""

from __future__ import annotations

from tare.plaintext import plain


class TareError(Exception):
    """An error for the user: one message, and a hint on what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        # Messages often contain output of programs, devices and guests.
        self.message = plain(message)
        self.hint = plain(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class InputError(TareError):
    """The user's input cannot be used: nothing was started; exit code 2."""


class NotAvailable(InputError):
    """The request is valid, but this computer lacks something, such as a package or a network."""


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
    """An emulated host stopped answering while its emulator still ran: a fault of the emulation.

    It is always transient: the host is booted again.
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
    """The agent reports that a workload could not run."""


def heard(todo: str, tool: str, words: str) -> str:
    """Return a hint that ends with a tool's own message, for users who know the tool.

    The reason and the advice are Tare's own sentences, which do not require knowledge of the tool.

    Args:
        todo: What to do; may be empty.
        tool: The tool, such as ``QEMU``.
        words: Its message; empty if it has none.
    """
    line = " ".join(plain(words).split())
    quoted = f'({tool} reported: "{line}")' if line else ""
    return " ".join(part for part in (todo, quoted) if part)
