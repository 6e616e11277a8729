"""``--cluster local:N``: several labs on this computer, and their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from tare.events import RunStarted

LOCAL = "local:"
MOST = 64


def are_labs(address: str) -> bool:
    """Return whether an address means labs on this computer instead of a scheduler."""
    return address.startswith(LOCAL)


def count_labs(address: str) -> int:
    """Return the number of labs in an address.

    Raises:
        InputError: It has no valid number.
    """
    number = address.removeprefix(LOCAL)
    if not number.isascii() or not number.isdigit() or not 1 <= int(number) <= MOST:
        raise InputError(
            f"--cluster {address}: {number!r} is not a number of labs",
            f"write a number from 1 to {MOST}, as in --cluster local:2",
        )
    return int(number)


def lab_names(number: int) -> tuple[str, ...]:
    """Return the names of labs."""
    return tuple(f"lab-{each}" for each in range(1, number + 1))


def require_labs_of(started: RunStarted, address: str, directory: Path) -> None:
    """Check that a run is resumed with the number of labs that it started with.

    Args:
        started: The run's first event.
        address: The cluster; workers of a scheduler may join later.
        directory: The run's folder.

    Raises:
        InputError: It was started in another number of labs, or on other hosts.
    """
    # Imported here, because the command line uses this module only for its constants.
    from tare.run.lifecycle.folder import resume_command

    if not are_labs(address):
        return
    number, has = count_labs(address), tuple(started.host)
    if set(has) == set(lab_names(number)):
        return
    if set(has) == set(lab_names(len(has))):
        raise InputError(
            f"the run in {directory} was started in {len(has)} labs, not in {number}",
            f"write: {resume_command(directory, started, f'{LOCAL}{len(has)}')}",
        )
    raise InputError(
        f"the run in {directory} is on the hosts {', '.join(has)}, not in labs on this computer",
        f"write: {resume_command(directory, started)}, with the address of their scheduler",
    )
