"""Sessions: arms that need one computer booted differently, measured in turns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tare.study.blocks import LEAST_BLOCKS
from tare.study.checking import suggestion
from tare.study.hosting import Part
from tare.study.names import Slug
from tare.study.quantities import Duration

if TYPE_CHECKING:
    from tare.study.model import Arm, Study, StudyFrame
    from tare.study.yamltext import Path

LEAST_BOOTS = 2


class SessionBoot(Part):
    """One way the computer is booted, and the arms that are measured then."""

    arms: list[Slug] = Field(
        min_length=1,
        description="The arms that are measured while the computer is booted so; twins go with "
        "what they repeat.",
    )
    how: str = Field(
        "",
        max_length=200,
        description="How the computer is booted so, in words for whoever does it: `from disk B`; "
        "the name of the boot when left out.",
    )
    takes: Duration = Field(
        600.0, ge=0, description="How long it takes to boot it so, for the estimate; with a unit."
    )


class Sessions(Part):
    """How one computer is booted in turns, by hand: by other disks, sticks or menu entries."""

    computer: str = Field(
        "the computer",
        min_length=1,
        max_length=100,
        description="What the computer is called where Tare says what to boot.",
    )
    blocks: int = Field(
        2, ge=1, le=1000, description="Blocks of each of its arms that are measured in a session."
    )
    boots: dict[Slug, SessionBoot] = Field(
        min_length=LEAST_BOOTS,
        description="The ways it is booted, by name. Two of them come in turns as A-B-B-A.",
    )

    def way(self, boot: str) -> str:
        """Return how the computer is booted so, in words."""
        return self.boots[boot].how or boot


def boot_of(study: Study, arm: str) -> str:
    """Return the boot in whose sessions an arm is measured; empty: the study has no sessions."""
    if study.sessions is None:
        return ""
    named = {name: boot for boot, each in study.sessions.boots.items() for name in each.arms}
    return named.get(arm) or named[study.arms[arm].twin_of or ""]


def part_of(study: Study, boot: str) -> Study:
    """Return the part of a study that is measured while its computer is booted in one way.

    It has the arms of that boot alone, and the hosts that are there then: not those on which only
    other arms run. Its baseline may be of another boot.

    Args:
        study: A study in sessions.
        boot: The name of the boot.
    """
    arms = {name: arm for name, arm in study.arms.items() if boot_of(study, name) == boot}
    ours = {study.host_of(name) for name in arms}
    others = {study.host_of(name) for name in study.arms} - ours
    hosts = {name: spec for name, spec in study.hosts.items() if name not in others}
    return study.model_copy(update={"arms": arms, "hosts": hosts})


def without_arms(data: Mapping[str, Any], left: Collection[str]) -> dict[str, Any]:
    """Return a study's plain data whose sessions do not name the arms that were left out of it.

    Where all that remains is of one boot, nothing is to be swapped, and there are no sessions.

    Args:
        data: The study as written.
        left: The arms that were left out.
    """
    said = data.get("sessions")
    boots = said.get("boots") if isinstance(said, Mapping) else None
    if not isinstance(said, Mapping) or not isinstance(boots, Mapping) or not left:
        return dict(data)
    kept = {}
    for name, boot in boots.items():
        named = boot.get("arms") if isinstance(boot, Mapping) else None
        if not isinstance(named, list):
            kept[name] = boot
        elif there := [arm for arm in named if arm not in left]:
            kept[name] = {**boot, "arms": there}
    if len(kept) < LEAST_BOOTS <= len(boots):
        return {key: value for key, value in data.items() if key != "sessions"}
    return {**data, "sessions": {**said, "boots": kept}}


def with_as_many(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a study's plain data with as many blocks at most as at least, unless it says more.

    Whoever swaps disks wants to know beforehand how often.

    Args:
        data: What the study says for all arms.
    """
    blocks = data.get("blocks", {})
    if data.get("sessions") is None or not isinstance(blocks, Mapping) or "most" in blocks:
        return data
    return {**data, "blocks": {**blocks, "most": blocks.get("least", LEAST_BLOCKS)}}


def session_faults(frame: StudyFrame, arms: Mapping[str, Arm | None]) -> Iterator[tuple[Path, str]]:
    """Yield why a study cannot be measured in its sessions: where that stands, and what to do.

    Args:
        frame: What the study says for all arms.
        arms: Its arms by name; None for those that are wrong themselves.
    """
    if frame.sessions is None:
        return
    yield from _wrong_arms(frame.sessions, arms)
    for key, wanted in (("duet", frame.blocks.duet), ("turns", frame.blocks.turns)):
        if wanted:
            yield (
                ("blocks", key),
                f"`{key}` has two arms up at once; write `{key}`, or `sessions`, but not both",
            )
    if frame.blocks.method != "precision":
        yield (
            ("blocks", "method"),
            f"`{frame.blocks.method}` looks at single blocks, and what is compared here are whole "
            "sessions: leave `method` out",
        )
    if frame.spread is not None:
        yield ("spread",), "sessions are of one computer: write `spread`, or `sessions`, not both"


def _wrong_arms(sessions: Sessions, arms: Mapping[str, Arm | None]) -> Iterator[tuple[Path, str]]:
    boots: dict[str, str] = {}
    for boot, each in sessions.boots.items():
        for index, name in enumerate(each.arms):
            here: Path = ("sessions", "boots", boot, "arms", index)
            if name not in arms:
                yield here, f"there is no arm {name!r}" + suggestion(name, arms)
            elif boots.setdefault(name, boot) != boot:
                yield here, f"{name} is of the boot {boots[name]} already: name it once"
            elif each.arms.index(name) < index:
                yield here, f"{name} stands here twice: name it once"
    for name, arm in arms.items():
        if arm is None:
            continue
        of = boots.get(arm.twin_of or "")
        if name not in boots and arm.twin_of is None:
            yield (
                ("arms", name),
                "is measured in no session: name it in the `arms` of one of "
                + ", ".join(f"`sessions.boots.{boot}`" for boot in sessions.boots),
            )
        elif name in boots and of and boots[name] != of:
            at: Path = ("sessions", "boots", boots[name], "arms")
            yield at, f"{name} is a twin of {arm.twin_of}, which is of the boot {of}: leave it out"
