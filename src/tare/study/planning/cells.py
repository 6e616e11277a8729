"""The parts of a plan: batches, each a fresh boot, and their cells, each with an identity."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tare.study.planning.placement import Placement
from tare.units import parameter_words


@dataclass(frozen=True)
class Cell:
    """One arm × scenario × workload × parameters within a block.

    Args:
        id: Its identity within the run.
        block: Number of the block, from 1.
        arm: Name of the arm.
        scenario: Name of the scenario.
        workload: The study's label for the workload.
        kind: The workload's name.
        parameters: The parameters that the study sets, as plain values.
        repeat: The number of the repetition, from 1.
        deadline_s: The study's own limit, in seconds; None to derive one.
        expected_s: Estimated seconds of measuring.
    """

    id: str
    block: int
    arm: str
    scenario: str
    workload: str
    kind: str
    parameters: Mapping[str, Any]
    repeat: int = 1
    deadline_s: float | None = None
    expected_s: float = 0.0

    def in_block(self, number: int) -> Cell:
        """Return this cell in a block, with its identity there."""
        own_id = cell_id(
            number, self.arm, self.scenario, self.workload, self.parameters, self.repeat
        )
        return replace(self, block=number, id=own_id)


@dataclass(frozen=True)
class Batch:
    """One fresh boot of an arm for one scenario, and the cells measured in it, in order.

    ``vcpus`` are the subject's; ``host`` is the name of the arm's host.
    """

    block: int
    arm: str
    scenario: str
    cells: tuple[Cell, ...]
    placement: Placement
    boot_s: float = 0.0
    host_trace: bool = False
    boot: str = ""
    vcpus: int = 1
    host: str = ""

    @property
    def expected_s(self) -> float:
        """Estimated seconds of booting and measuring."""
        return self.boot_s + sum(cell.expected_s for cell in self.cells)

    def in_block(self, number: int, order: random.Random) -> Batch:
        """Return this batch in a block, with its cells in random order.

        Args:
            number: The block, from 1.
            order: The random generator for the order.
        """
        cells = [cell.in_block(number) for cell in self.cells]
        order.shuffle(cells)
        return replace(self, block=number, cells=tuple(cells))


def cell_id(
    block: int,
    arm: str,
    scenario: str,
    workload: str,
    parameters: Mapping[str, Any],
    repeat: int = 1,
) -> str:
    """Return a cell's identity, such as ``b003/qemu-pv/pinned/tick[samples=20000]#2``.

    Args:
        block: Number of the block, from 1.
        arm: Name of the arm.
        scenario: Name of the scenario.
        workload: The study's label for the workload.
        parameters: The parameters that the study sets, as plain values, sorted by name.
        repeat: The number of the repetition, from 1; the first is not numbered.
    """
    inside = ",".join(f"{key}={_plain(parameters[key])}" for key in sorted(parameters))
    point = f"[{inside}]" if inside else ""
    number = f"#{repeat}" if repeat > 1 else ""
    return f"b{block:03d}/{arm}/{scenario}/{workload}{point}{number}"


def cell_label(cell: str) -> str:
    """Return the part of a cell's identity that names its work: ``tick[samples=20000]``."""
    return cell.split("/", 3)[-1]


def work_words(workload: str, parameters: Mapping[str, Any], repeat: int = 1) -> str:
    """Return the readable name of a cell's work, such as ``tick[samples=20000]``.

    Args:
        workload: The study's label for the workload.
        parameters: The parameters that the study sets, as plain values.
        repeat: The number of the repetition, from 1; the first is not numbered.
    """
    inside = parameter_words(parameters)
    return f"{workload}{f'[{inside}]' if inside else ''}{f'#{repeat}' if repeat > 1 else ''}"


_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_JSON_WORDS = ("true", "false", "null", "NaN", "Infinity")


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, dict):
        # Mappings are too long for a name; the cell's own event has them.
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
        return f"{{{hashlib.sha256(text.encode()).hexdigest()[:10]}}}"
    # Words with another meaning in JSON keep their quotes, so that no two values look alike.
    if isinstance(value, str) and _BARE.fullmatch(value) and value not in _JSON_WORDS:
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
