"""Arms of several releases of a distribution: impossible combinations and confounded effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tare.study.model.notes import BY_RELEASE
from tare.study.model.releases import RELEASES, Release, release_words

if TYPE_CHECKING:
    from tare.study.model.study import Arm, Study, StudyFrame
    from tare.study.reading.yamltext import Path


def release_faults(frame: StudyFrame, arms: Mapping[str, Arm | None]) -> Iterator[tuple[Path, str]]:
    """Yield the keys of a lab that do not suit its arms' releases, each as a place and advice.

    Args:
        frame: The study's settings for all arms.
        arms: Its arms by name; None for those that are invalid.
    """
    hosts = frame.hosts or {"": frame.host}
    found = {
        arm.release or frame.lab.release
        for arm in arms.values()
        if arm is not None and (host := hosts.get(arm.on or "")) and host.kind == "lab"
    }
    if len(found) < 2:
        return
    several = " and ".join(sorted(release or "this computer's own" for release in found))
    for key, value in (("xen", frame.lab.xen), ("kernel", frame.lab.kernel)):
        if value is not None:
            yield (
                ("lab", key),
                f"applies to labs of one release, but the arms are of {several}: remove it, or "
                "write the same `release` for all",
            )


def unfit_release(study: Study, arm: str, *, boots_image: bool) -> str:
    """Return why an arm cannot have the release that it names, or an empty string.

    Args:
        study: The study.
        arm: The arm's name.
        boots_image: Whether its machines boot a kernel of their own.
    """
    if study.arms[arm].release is None or study.in_lab(arm) or boots_image:
        return ""
    return (
        "names a release, but its machines run the host's software; remove `release`, or run it "
        "with `--host lab`"
    )


def release_notes(study: Study, arms: Sequence[str]) -> Iterator[str]:
    """Yield notes on confounded effects between arms of several releases, one sentence each.

    Args:
        study: The study.
        arms: The arms that run.
    """
    there: dict[Release | None, list[str]] = {}
    for arm in arms:
        if study.in_lab(arm):
            there.setdefault(study.release_of(arm), []).append(arm)
    if len(there) > 1:
        of = [
            f"{', '.join(there[one])} of {release_words(one)}" for one in RELEASES if one in there
        ]
        if None in there:
            of.append(f"{', '.join(there[None])} of this computer's own release")
        yield (
            f"{BY_RELEASE} {'; '.join(of)}: they differ in kernel, hypervisor, tools and QEMU at "
            "once, on one emulated computer"
        )
    elsewhere = [arm for arm in arms if study.arms[arm].release and not study.in_lab(arm)]
    if elsewhere:
        yield (
            f"{BY_RELEASE} {', '.join(elsewhere)}: guests boot that release's kernel; hypervisor "
            "and QEMU are the host's own"
        )
