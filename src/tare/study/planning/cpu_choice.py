"""The choice of a host's CPUs for a study: its written form, and its meaning on one host."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tare.errors import InputError
from tare.study.planning.host_cpus import HostCpus, cpu_words

Cores = Literal["performance", "efficiency"]
MOST_CPU = 65535
_DOMAIN = re.compile(r"(node|l3)\s*[:= ]?\s*(\d+)")
_RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+))?")
FORM = (
    "must be CPU numbers like [2, 3] or `2-5,8`, a NUMA node like {node: 1}, or an L3 cache like "
    "{l3: 0}"
)


def _words(value: Any) -> str:
    """Return a written value in the common form: ``2-5,8``, ``node:1``, ``l3:0``.

    Raises:
        ValueError: The value has none of the accepted forms.
    """
    if isinstance(value, Mapping):
        pairs = [
            f"{kind}:{each}"
            for kind, numbers in value.items()
            for each in (numbers if isinstance(numbers, Sequence) else [numbers])
        ]
        parts = pairs if value else [""]
    elif isinstance(value, str):
        parts = value.lower().replace("cpus", "").split(",")
    elif isinstance(value, Sequence):
        parts = [part for each in value or [""] for part in _words(each).split(",")]
    else:
        parts = ["" if isinstance(value, bool) else str(value)]
    return ",".join(_word(part.strip(), value) for part in parts)


def _word(part: str, written: Any) -> str:
    if found := _DOMAIN.fullmatch(part):
        return f"{found[1]}:{int(found[2])}"
    if found := _RANGE.fullmatch(part):
        first, last = int(found[1]), int(found[2] or found[1])
        if first > last:
            raise ValueError(f"{first}-{last} runs backwards: write {last}-{first}")
        if last > MOST_CPU:
            raise ValueError(f"there is no CPU {last}: Linux numbers CPUs up to {MOST_CPU}")
        return f"{first}-{last}" if last > first else f"{first}"
    raise ValueError(f"{FORM}, not {written!r}")


_NUMBERS = {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}
_FORMS = [
    {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 1},
    {"type": ["string", "integer"]},
    {
        "type": "object",
        "additionalProperties": False,
        "properties": {"node": _NUMBERS, "l3": _NUMBERS},
    },
]


def _form(schema: dict[str, Any]) -> None:
    """Add the accepted forms of CPUs to a schema."""
    schema.pop("type", None)
    schema["anyOf"] = _FORMS


CpuWords = Annotated[str, BeforeValidator(_words), Field(json_schema_extra=_form)]
"""CPUs of a host as a text in the common form, such as ``2-5,8``."""


@dataclass(frozen=True)
class CpuChoice:
    """The requested CPUs of a host; empty or None: no request.

    Args:
        cpus: The CPUs for machines, in the common form.
        housekeeping: The CPUs for everything else, in the common form.
        cores: The kind of core for all machines.
    """

    cpus: str = ""
    housekeeping: str = ""
    cores: Cores | None = None

    def over(self, other: CpuChoice) -> CpuChoice:
        """Return this choice, with its missing parts taken from another."""
        return CpuChoice(
            self.cpus or other.cpus,
            self.housekeeping or other.housekeeping,
            self.cores or other.cores,
        )


def numbers_in(choice: CpuChoice) -> tuple[int, ...]:
    """Return the CPU numbers that a choice names, ascending; none if it names nodes or caches."""
    words = [
        word for each in (choice.cpus, choice.housekeeping) for word in each.split(",") if word
    ]
    if not choice.cpus or any(":" in word for word in words):
        return ()
    return tuple(sorted({number for word in words for number in _numbers(word)}))


def _numbers(word: str) -> range:
    first, _, last = word.partition("-")
    return range(int(first), int(last or first) + 1)


def arranged(cpus: HostCpus, choice: CpuChoice, wanted: int = 1, host: str = "") -> HostCpus:
    """Return a host's CPUs, divided into those for machines and those for everything else.

    The CPUs for machines are all of one design of core: by default, the fastest that has enough
    CPUs.

    Args:
        cpus: The host's CPUs.
        choice: The requested CPUs.
        wanted: The number of vCPUs of the largest machine.
        host: The host's name, for messages, if a study has several.

    Raises:
        InputError: The requested CPUs do not exist, are too few, or are of several designs.
    """
    return _Arranging(cpus, choice, wanted, f"host {host}" if host else "this host").done()


@dataclass(frozen=True)
class _Arranging:
    cpus: HostCpus
    choice: CpuChoice
    wanted: int
    host: str

    def done(self) -> HostCpus:
        cpus = self.cpus
        kept = self._named("housekeeping", self.choice.housekeeping)
        asked = self._named("cpus", self.choice.cpus)
        both = sorted(asked & kept)
        # A whole node or cache may contain CPUs that are kept.
        if both and ":" not in self.choice.cpus:
            raise InputError(
                f"`cpus` and `housekeeping` both name {_cpu_text(both)}",
                "name each CPU in one of them: machines get the former, everything else the latter",
            )
        if self.choice.cpus and not (asked - kept):
            raise InputError(f"`cpus: {self.choice.cpus}` names no CPU for machines")
        pool = tuple(cpu for cpu in cpus.online if cpu in asked) if asked else cpus.online
        pool = tuple(cpu for cpu in pool if cpu not in kept)
        measured = self._cpus_of_one_design(pool)
        if (asked or kept or self.choice.cores) and len(measured) < self.wanted:
            raise InputError(
                f"{self._keys()} leaves {_count(len(measured))} for machines "
                f"({cpu_words(measured) or 'none'}); the largest machine has {self.wanted} vCPUs",
                "name more CPUs, or give the machines fewer `vcpus`",
            )
        chosen = () if measured == cpus.online else measured
        return replace(cpus, measured=chosen, housekeeping=tuple(sorted(kept)))

    def _keys(self) -> str:
        choice = self.choice
        keys = {"cpus": choice.cpus, "housekeeping": choice.housekeeping, "cores": choice.cores}
        return " with ".join(f"`{key}: {value}`" for key, value in keys.items() if value)

    # The CPUs that are named

    def _named(self, key: str, words: str) -> set[int]:
        found: set[int] = set()
        for word in filter(None, words.split(",")):
            kind, colon, number = word.partition(":")
            if colon:
                found |= self._domain(key, kind, int(number))
            else:
                found |= set(_numbers(word))
        if missing := sorted(found - set(self.cpus.online)):
            raise InputError(f"`{key}: {words}`: {self._why(missing)}", self._usable_cpus_advice())
        return found

    def _domain(self, key: str, kind: str, number: int) -> set[int]:
        domains = self.cpus.nodes if kind == "node" else self.cpus.caches
        own = {cpu for cpu in self.cpus.online if domains.get(cpu) == number}
        if own:
            return own
        there = sorted({domains[cpu] for cpu in self.cpus.online if cpu in domains})
        what = "NUMA node" if kind == "node" else "L3 cache"
        has = (
            f"those that have CPUs for Tare are {cpu_words(there)}"
            if there
            else f"the host does not list its {what}s"
        )
        raise InputError(f"`{key}`: {self.host} has no {what} {number} with a CPU", has)

    def _why(self, missing: Sequence[int]) -> str:
        """Return why CPUs cannot be used, grouped by reason."""
        reasons: dict[str, list[int]] = {}
        for cpu in missing:
            reason = self.cpus.refused.get(cpu, f"does not exist on {self.host}")
            reasons.setdefault(reason, []).append(cpu)
        return "; ".join(
            f"{_cpu_text(each)} {reason if len(each) == 1 else _plural(reason)}"
            for reason, each in reasons.items()
        )

    def _usable_cpus_advice(self) -> str:
        return f"name some of those that may be used: {cpu_words(self.cpus.online)}"

    # One design of core

    def _cpus_of_one_design(self, pool: tuple[int, ...]) -> tuple[int, ...]:
        cpus, cores = self.cpus, self.choice.cores
        designs = sorted({cpus.design(cpu) for cpu in cpus.online})
        if cores is not None and len(designs) < 2 and cores == "efficiency":
            raise InputError(
                f"`cores: efficiency`: the cores of {self.host} are all of one kind",
                "leave `cores` out",
            )
        if len(designs) < 2:
            return pool
        by_design = {
            design: tuple(cpu for cpu in pool if cpus.design(cpu) == design) for design in designs
        }
        own = {design: each for design, each in by_design.items() if each}
        exact = bool(self.choice.cpus) and ":" not in self.choice.cpus
        if exact and len(own) > 1:
            kinds = ", ".join(
                f"{cpu_words(each)} ({_name(design)})" for design, each in own.items()
            )
            raise InputError(
                f"`cpus: {self.choice.cpus}` mixes kinds of cores, which would measure the "
                f"difference between them: {kinds}",
                "name CPUs of one kind",
            )
        if cores is not None:
            own = {d: each for d, each in own.items() if _name(d) == cores}
            if not own:
                has = "; ".join(
                    f"{_name(d)}: {cpu_words(e)}" for d, e in self._cpus_by_design(designs)
                )
                raise InputError(
                    f"{self._keys()}: none of these CPUs belongs to the {cores} cores",
                    f"there are {has}",
                )
        enough = [each for each in own.values() if len(each) >= self.wanted]
        return enough[0] if enough else max(own.values(), key=len, default=())

    def _cpus_by_design(self, designs: Collection[int]) -> list[tuple[int, tuple[int, ...]]]:
        cpus = self.cpus
        return [
            (design, tuple(cpu for cpu in cpus.online if cpus.design(cpu) == design))
            for design in designs
        ]


def _name(design: int) -> Cores:
    return "efficiency" if design else "performance"


def _plural(reason: str) -> str:
    verb, _, rest = reason.partition(" ")
    verbs = {"is": "are", "does": "do"}
    return f"{verbs.get(verb, verb)} {rest}"


def _count(number: int) -> str:
    return f"{number} CPU" if number == 1 else f"{number} CPUs"


def described(cpus: HostCpus) -> tuple[str, ...]:
    """Return notes on the CPUs for machines and on unusual CPUs of a host, one sentence each.

    Returns:
        The notes. There are none if machines may use all CPUs, which are of one kind and not
        isolated.
    """
    notes: list[str] = []
    designs = {cpus.design(cpu) for cpu in cpus.online}
    if len(designs) > 1:
        kinds = "; ".join(
            f"{_name(design)} cores: CPUs "
            f"{cpu_words([cpu for cpu in cpus.online if cpus.design(cpu) == design])}"
            for design in sorted(designs)
        )
        used = sorted({cpus.design(cpu) for cpu in cpus.machines})
        which = " and ".join(_name(design) for design in used)
        notes.append(f"its cores are of {len(designs)} kinds ({kinds}); machines get {which} cores")
    if cpus.measured:
        notes.append(f"machines run on {_cpu_text(cpus.measured)} of {cpu_words(cpus.online)}")
    if cpus.housekeeping:
        notes.append(f"everything else of Tare runs on {_cpu_text(cpus.housekeeping)}")
    if cpus.isolated:
        apart = set(cpus.roaming) != set(cpus.machines)
        notes.append(
            f"{_cpu_text(cpus.isolated)} {'is' if len(cpus.isolated) == 1 else 'are'} isolated: "
            "pinned machines get isolated CPUs first"
            + (f", and others run on {_cpu_text(cpus.roaming)}" if apart else "")
        )
    return tuple(notes)


def _cpu_text(cpus: Collection[int]) -> str:
    return f"CPU{'s' if len(cpus) > 1 else ''} {cpu_words(cpus)}"
