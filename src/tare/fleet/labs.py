"""``--cluster local:N``: labs of this computer side by side, and what they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from tare.events import RunStarted

LOCAL = "local:"
MOST = 64


def are_labs(address: str) -> bool:
    """Return whether an address means labs of this computer, and not a scheduler."""
    return address.startswith(LOCAL)


def how_many(address: str) -> int:
    """Return how many labs an address means.

    Raises:
        InputError: It says no number of them.
    """
    said = address.removeprefix(LOCAL)
    if not said.isascii() or not said.isdigit() or not 1 <= int(said) <= MOST:
        raise InputError(
            f"--cluster {address}: {said!r} is no number of labs",
            f"write a number from 1 to {MOST}, as in --cluster local:2",
        )
    return int(said)


def lab_names(number: int) -> tuple[str, ...]:
    """Return what so many labs are called."""
    return tuple(f"lab-{each}" for each in range(1, number + 1))


def require_labs_of(started: RunStarted, address: str, directory: Path) -> None:
    """See that a run goes on in as many labs as it was begun in: of others it knows nothing.

    Args:
        started: The run's first event.
        address: Where it is to go on; a scheduler's workers may come later.
        directory: The run's folder.

    Raises:
        InputError: It was begun in another number of them, or on other hosts.
    """
    # Loaded here: the command line asks this module for a word alone.
    from tare.run.lifecycle.resume_command import resuming

    if not are_labs(address):
        return
    number, has = how_many(address), tuple(started.host)
    if set(has) == set(lab_names(number)):
        return
    if set(has) == set(lab_names(len(has))):
        raise InputError(
            f"the run in {directory} was begun in {len(has)} labs, and not in {number}",
            f"write: {resuming(directory, started, f'{LOCAL}{len(has)}')}",
        )
    raise InputError(
        f"the run in {directory} is of the hosts {', '.join(has)}, and not of labs of this "
        "computer",
        f"write: {resuming(directory, started)}, with the address of their scheduler",
    )
