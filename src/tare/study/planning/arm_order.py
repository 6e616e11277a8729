"""The order of arms in a block, balanced over positions and predecessors."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

from tare.study.planning.cells import Batch

Name = TypeVar("Name")


def williams(size: int) -> tuple[tuple[int, ...], ...]:
    """Return the rows of a Williams square of numbers from 0 to ``size`` − 1.

    Over all rows, each number is equally often in each position, and equally often right after each
    other number (Williams 1949). An odd size has twice as many rows, and each half is a Latin
    square by itself.

    Args:
        size: At least 1.
    """
    first = [0]
    for step in range(1, size):
        first.append((size - (step + 1) // 2) % size if step % 2 else step // 2)
    rows = [tuple((number + shift) % size for number in first) for shift in range(size)]
    if size % 2 and size > 1:
        rows += [row[::-1] for row in rows]
    return tuple(rows)


def balanced(names: Sequence[Name], number: int, seed: str) -> list[Name]:
    """Return the names in the order of a block.

    Every complete square of blocks is balanced. The assignment of names to numbers, and the order
    of the rows, are drawn again for each square; they depend only on the seed and the block's
    number.

    Args:
        names: The names to order, each once.
        number: The block, from 1.
        seed: The seed of all random draws.
    """
    size = len(names)
    if size < 2:
        return list(names)
    rows = williams(size)
    square, place = divmod(number - 1, size)
    halves = len(rows) // size
    # A string seeds Random through SHA-512, independent of the process's hash seed.
    draw = random.Random(f"{seed}/square/{square}")
    labels = list(names)
    draw.shuffle(labels)
    order = list(range(size))
    draw.shuffle(order)
    row = rows[size * (square % halves) + order[place]]
    return [labels[index] for index in row]


def sort_batches(
    batches: Sequence[Batch], boots: Mapping[str, Sequence[str]], number: int, seed: int
) -> list[Batch]:
    """Return the batches of a block in the order in which to measure them.

    Scenarios follow one another, so that an arm and its baseline are close in time. The arms of a
    scenario are balanced over blocks, and so are the scenarios and the boots of a host. A trend
    within a block then affects all arms alike.

    Args:
        batches: One of each arm and scenario.
        boots: The boots of each host; batches with the same boot are grouped.
        number: The block, from 1.
        seed: The seed of all random draws.
    """
    scenarios = list(dict.fromkeys(batch.scenario for batch in batches))
    arms = list(dict.fromkeys(batch.arm for batch in batches))
    scenario_order = balanced(scenarios, number, f"{seed}/scenarios")
    arm_order = {name: balanced(arms, number, f"{seed}/arms/{name}") for name in scenarios}
    found = sorted(
        batches,
        key=lambda batch: (
            scenario_order.index(batch.scenario),
            arm_order[batch.scenario].index(batch.arm),
        ),
    )
    for host, of_host in boots.items():
        if len(of_host) > 1:
            boot_order = balanced(of_host, number, f"{seed}/boots/{host}")
            places = [place for place, batch in enumerate(found) if batch.host == host]
            there = sorted(
                (found[place] for place in places), key=lambda batch: boot_order.index(batch.boot)
            )
            for place, batch in zip(places, there, strict=True):
                found[place] = batch
    return found
