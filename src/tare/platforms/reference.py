"""The Markdown page about platforms in the docs; ``make docs`` writes it.

The page is generated from the drivers' statements. Their checks begin with the same statements, so
the page claims nothing else.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from tare.plaintext import plain_line
from tare.platforms.certificates.model import Certificate, kept_certificates
from tare.platforms.contract import Platform, Statement
from tare.units import format_size

PAGE = "platforms.md"
KNOBS = ("policy", "fifo", "nice", "weight", "cap", "reservation", "slice")
YES, NO = "yes", "–"
_LONGEST_CELL = 300


@dataclass(frozen=True)
class PlatformRow:
    """One way to use a platform that is worth a row of its own.

    Args:
        platform: The platform.
        options: The options that select this variant.
        parsed: The same options, parsed, with defaults for all others.
    """

    platform: Platform[Any]
    options: Mapping[str, Any]
    parsed: BaseModel

    @property
    def name(self) -> str:
        """The platform's name followed by this variant's options."""
        words = [f"`{key}: {value}`" for key, value in self.options.items()]
        return " ".join((f"`{self.platform.name}`", *words))

    @property
    def stated(self) -> Statement:
        """The driver's statement about this variant."""
        return self.platform.stated(self.parsed)


def rows(platforms: Mapping[str, Platform[Any]]) -> tuple[PlatformRow, ...]:
    """Return every variant of every platform, in the order of ``tare doctor``."""
    return tuple(
        PlatformRow(
            platform, variant.options, platform.options.model_validate(dict(variant.options))
        )
        for platform in platforms.values()
        for variant in platform.variants
    )


def render(
    platforms: Mapping[str, Platform[Any]],
    certificates: Sequence[Certificate] | None = None,
    studies: str = "",
) -> str:
    """Return the page as Markdown.

    Args:
        platforms: The installed platforms by name.
        certificates: The certificates that owners sent; None: those that come with Tare.
        studies: The section about the studies; empty: the page has none.
    """
    sent = kept_certificates() if certificates is None else certificates
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
            (_row(variant, sent) for variant in every),
        ),
        _ABOUT_COLUMNS,
        _ABOUT_CERTIFICATES,
        _rows(
            ("platform", "build", "computer", "cases", "cells", "passes", "Tare", "day"),
            map(_certified, sent),
        )
        if sent
        else "None was sent yet.\n",
        "## Scheduler knobs\n",
        _rows(("platform", *(f"`{knob}`" for knob in KNOBS)), map(_knobs, every)),
        _ABOUT_KNOBS,
        *([studies] if studies else ()),
    ]
    for platform in platforms.values():
        mine = [variant for variant in every if variant.platform is platform]
        parts += _section(platform, mine)
    parts.append(_NOT_DRIVEN)
    return "\n".join(parts)


def _row(variant: PlatformRow, sent: Sequence[Certificate]) -> Sequence[str]:
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
        variant.stated.confirmed + _reported(variant, sent),
    )


def _reported(variant: PlatformRow, sent: Sequence[Certificate]) -> str:
    """Return how many owners reported that this variant passes, as text; empty: none."""
    many = 0
    for each in sent:
        usual = variant.parsed.model_dump(mode="json", by_alias=False)
        given = {**usual, **{key.replace("-", "_"): to for key, to in each.options.items()}}
        same = all(given.get(key) == usual.get(key) for key in map(_plain, variant.options))
        many += each.platform == variant.platform.name and each.results.passes and same
    return f"; self-reported: {many}" if many else ""


def _plain(option: str) -> str:
    return option.replace("-", "_")


def _certified(about: Certificate) -> Sequence[str]:
    options = [f"`{key}: {value}`" for key, value in about.options.items()]
    results, host = about.results, about.host
    ends: Counter[str] = Counter()
    for counts in results.cells.values():
        ends.update(counts)
    cells = (
        " ".join((f"`{about.platform}`", *options)),
        ", ".join(f"{name} {version}" for name, version in about.build.items()),
        ", ".join(filter(None, (host.get("cpu"), host.get("system"), host.get("kernel")))),
        ", ".join(f"{count} {outcome}" for outcome, count in results.cases.items()),
        ", ".join(f"{count} {end}" for end, count in sorted(ends.items())),
        _word(results.passes),
        about.tare.get("version", ""),
        about.made,
    )
    # The text comes from a stranger, so it must not become markup.
    return [plain_line(cell, _LONGEST_CELL).replace("<", "&lt;") for cell in cells]


def _knobs(variant: PlatformRow) -> Sequence[str]:
    can = variant.stated.capabilities
    return (variant.name, *(_word(knob in can.knobs) for knob in KNOBS))


def _section(platform: Platform[Any], mine: Sequence[PlatformRow]) -> list[str]:
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


def _facts(variant: PlatformRow) -> list[str]:
    stated = variant.stated
    lines = [f"Kernel: {stated.kernel}.", f"The agent is reached by: {stated.channel}."]
    if stated.needs:
        lines.append(f"The host needs: {'; '.join(stated.needs)}.")
    if stated.only_measures:
        lines.append("It measures existing machines, and creates none.")
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

A platform is one way to run a machine on a host. `tare doctor` tests which platforms and features
work on the computer at hand. If one does not, its cells are skipped, and the plan and the report
give the reason. This page and each driver's check are generated from the same statements.
"""

_ABOUT_COLUMNS = """\
*Pinning* binds each vCPU to a CPU of the host. *Neighbours* are machines that load the host during
the measurement.
*Devices* are the models of network, disk and channel; a platform without them shares the host's.
*Behaviour only* marks emulated processors: results show what happens, not the speed of hardware.
This also applies to everything in the [lab](../explanation/lab.md), whatever this table shows,
because the lab's processor is emulated. *Confirmed on* lists where the driver is known to run: on
real hardware (including cloud instances), in the lab, against a simulator that refuses what the
product refuses, or nowhere yet; *self-reported* counts [reports by owners](#self-reported). Over
SSH a host runs the same platforms as locally: images are built here and copied to it (see
[hosts.md](../how-to/hosts.md)).
"""

_ABOUT_CERTIFICATES = """\
## Self-reported

Owners of hypervisors tested Tare on their own hosts with `tare certify` and sent its file; see
[certify.md](../how-to/certify.md). Each file is consistent in itself; nothing else about it was
verified. *Cases* are those of the conformance suite; *cells* are those of the study.
"""

_NOT_DRIVEN = """\
## Not driven yet

- Windows guests: see [cloud.md](../how-to/cloud.md).
"""

_ABOUT_KNOBS = """\
[scheduling.md](../explanation/scheduling.md) explains the knobs, and
[study.md](study.md#scheduling) has their syntax.
"""
