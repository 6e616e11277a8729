"""Each reason for a skip has one line, however many arms and workloads share it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tare.skips import LeftOut, SkipReason, lines_of

DISK = "needs a disk of the machine's own"


def needing(arm: str, *workloads: str, scenario: str | None = None) -> list[LeftOut]:
    return [LeftOut(arm, scenario, each, f"{each} {DISK}") for each in workloads]


def test_workloads_that_lack_the_same_share_a_line() -> None:
    parts = [*needing("gvisor", "fio", "bonnie"), *needing("libvirt", "fio", "bonnie")]
    assert lines_of(parts) == [SkipReason("gvisor, libvirt: fio, bonnie", DISK, "")]
    parts += needing("xen", "fio")
    assert lines_of(parts) == [SkipReason("gvisor, libvirt: fio, bonnie; xen: fio", DISK, "")]
    placed = needing("kvm", "fio", "bonnie", scenario="alone")
    assert lines_of(placed) == [SkipReason("kvm/alone: fio, bonnie", DISK, "")]


def test_one_workload_keeps_its_name_in_the_reason() -> None:
    (line,) = lines_of([*needing("a", "fio"), *needing("b", "fio")], between=" / ")
    assert line == SkipReason("a / fio, b / fio", f"fio {DISK}", "")


def test_remedies_are_part_of_the_reason() -> None:
    parts = [LeftOut(arm, None, None, "no KVM", f"to {arm}") for arm in "ab"]
    assert [line.hint for line in lines_of(parts)] == ["to a", "to b"]
    assert lines_of([*parts[:1], *parts[:1]]) == [SkipReason("a", "no KVM", "to a")]


NAMES = st.sampled_from(["a", "b", "fio"])
LEFT = st.builds(
    LeftOut, NAMES, st.none() | NAMES, st.none() | NAMES, st.sampled_from(["no", "fio no", "a no"])
)


@given(st.lists(LEFT, max_size=12))
def test_nothing_that_is_skipped_is_left_out(parts: list[LeftOut]) -> None:
    lines = lines_of(parts)
    assert len(lines) <= len(set(parts))
    for part in parts:
        reasons = (part.reason, part.reason.partition(" ")[2])
        assert any(part.arm in line.what for line in lines if line.reason in reasons)
