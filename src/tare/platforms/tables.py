"""The page of platforms in docs, as Markdown; ``make docs`` writes it.

The page is made of what the drivers state, with which their checks begin as well; so it says
nothing that they do not.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from tare.platforms.contract import Platform, Statement
from tare.study.quantities import format_size

PAGE = "platforms.md"
KNOBS = ("policy", "fifo", "nice", "weight", "cap", "reservation", "slice")
YES, NO = "yes", "–"


@dataclass(frozen=True)
class Row:
    """One way to use a platform that is worth a row of its own.

    Args:
        platform: The platform.
        options: Those that make it this variant.
        parsed: The same with everything else as usual.
    """

    platform: Platform[Any]
    options: Mapping[str, Any]
    parsed: BaseModel

    @property
    def name(self) -> str:
        """The platform and what is special about this variant."""
        words = [f"`{key}: {value}`" for key, value in self.options.items()]
        return " ".join((f"`{self.platform.name}`", *words))

    @property
    def stated(self) -> Statement:
        """What the driver says of it."""
        return self.platform.stated(self.parsed)


def rows(platforms: Mapping[str, Platform[Any]]) -> tuple[Row, ...]:
    """Return every variant of every platform, in the order of ``tare doctor``."""
    return tuple(
        Row(platform, variant.options, platform.options.model_validate(dict(variant.options)))
        for platform in platforms.values()
        for variant in platform.variants
    )


def render(platforms: Mapping[str, Platform[Any]]) -> str:
    """Return the page as Markdown."""
    every = rows(platforms)
    parts = [
        _INTRODUCTION,
        "## What each offers where a host lacks nothing\n",
        _rows(
            (
                "platform",
                "pinning",
                "neighbours",
                "devices",
                "least memory",
                "most vCPUs",
                "results",
                "confirmed on",
            ),
            map(_row, every),
        ),
        _ABOUT_COLUMNS,
        "## Scheduler knobs\n",
        _rows(("platform", *(f"`{knob}`" for knob in KNOBS)), map(_knobs, every)),
        _ABOUT_KNOBS,
    ]
    for platform in platforms.values():
        mine = [variant for variant in every if variant.platform is platform]
        parts += _section(platform, mine)
    return "\n".join(parts)


def _row(variant: Row) -> Sequence[str]:
    can = variant.stated.capabilities
    emulated = variant.stated.emulated
    return (
        variant.name,
        _word(can.pinning),
        _word(can.neighbours),
        ", ".join(sorted(can.devices, reverse=True)) or NO,
        format_size(can.min_memory),
        str(can.max_vcpus) if can.max_vcpus else "the host's CPUs",
        "behaviour only" if emulated else "as the host",
        variant.stated.confirmed,
    )


def _knobs(variant: Row) -> Sequence[str]:
    can = variant.stated.capabilities
    return (variant.name, *(_word(knob in can.knobs) for knob in KNOBS))


def _section(platform: Platform[Any], mine: Sequence[Row]) -> list[str]:
    summary = inspect.cleandoc(type(platform).__doc__ or "").partition("\n\n")[0]
    parts = [
        f"## `{platform.name}`\n",
        f"{' '.join(summary.split())}\n",
        f"Its options are in [study.md](study.md#platform-{platform.name}).\n",
    ]
    facts = [(variant, _facts(variant)) for variant in mine]
    if len({tuple(lines) for _, lines in facts}) == 1:
        return [*parts, _listed(facts[0][1])]
    for variant, lines in facts:
        parts += [f"### {variant.platform.describe(variant.parsed)} ({variant.name})\n"]
        parts += [_listed(lines)]
    return parts


def _facts(variant: Row) -> list[str]:
    stated = variant.stated
    lines = [f"Kernel: {stated.kernel}.", f"The agent is reached by: {stated.channel}."]
    if stated.needs:
        lines.append(f"The host needs: {'; '.join(stated.needs)}.")
    if stated.only_measures:
        lines.append("It measures machines that exist, and creates none.")
    lines += [_sentence(note) for note in stated.capabilities.notes]
    lines += [
        f"No `{knob}`: {reason}."
        for knob, reason in sorted(stated.capabilities.missing_knobs.items())
    ]
    if stated.untested:
        lines.append(f"**Untested on real hardware.** {stated.untested}")
    return lines


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:].rstrip('.')}."


def _word(value: bool) -> str:
    return YES if value else NO


def _listed(lines: Iterable[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


_INTRODUCTION = """\
# Platforms

<!-- Generated by `make docs` from the drivers; do not edit. -->

A platform is one way to run a machine on a host. `tare doctor` says what of this the computer at
hand really has, by trying it; what it lacks is skipped with the reason, in the plan and in the
report. Each driver's check begins with the statements below, so that page and check cannot
differ; a test holds both together.
"""

_ABOUT_COLUMNS = """\
*Pinning* binds each vCPU to a CPU of the host. *Neighbours* are machines beside the subject.
*Devices* are the models of network, disk and channel; a platform without them shares the host's.
*Behaviour only* marks what software emulates: results show what happens, not how fast hardware
would be. That holds for everything in the [lab](lab.md), whatever this table says, because there
the processor itself is emulated. *Confirmed on* says where the driver is known to run: on real
hardware (cloud instances among it), in the lab, against a simulator of the product that refuses
what the product refuses, or nowhere yet. A host that is reached over SSH runs whatever it would
run by itself: images are built here and brought to it (see [hosts.md](hosts.md)).
"""

_ABOUT_KNOBS = """\
What each knob does is in [scheduling.md](scheduling.md), how it is written in
[study.md](study.md#scheduling).
"""
