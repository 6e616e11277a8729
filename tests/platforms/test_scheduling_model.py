"""What may be asked of a host's scheduler, and what makes no sense together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tare.errors import InputError
from tare.platforms.linux.cpu_groups import (
    container_resources,
    quota_of,
    shares_of,
    values_for,
    weight_of,
)
from tare.platforms.linux.scheduling import (
    difference,
    flags,
    own_policy,
    within_linux,
)
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu
from tare.platforms.scheduling import FAIR, Scheduling
from tare.run.catalog import build_catalog
from tare.study.reading.load import parse_study, restore_study

STUDY = """\
study: s
baseline: bare
arms:
  bare: {platform: bare}
  knobs:
    platform: qemu
    scheduling: %s
workloads: {tick: {}}
"""


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


ANYTHING = st.fixed_dictionaries(
    {
        "policy": maybe(st.sampled_from(["other", "batch", "fifo"])),
        "priority": maybe(st.integers(1, 98)),
        "nice": maybe(st.integers(-20, 19)),
        "weight": maybe(st.integers(1, 10_000)),
        "cap": maybe(st.floats(0.001, 4096)),
        "period": maybe(st.floats(0.001, 1)),
        "reservation": maybe(st.floats(0.001, 4096)),
        "slice": maybe(st.floats(0.0001, 1)),
    }
)


@given(ANYTHING)
def test_accepted_settings_are_consistent(asked: dict[str, Any]) -> None:
    try:
        wanted = within_linux(Scheduling.model_validate(asked))
    except ValueError:
        return
    assert Scheduling.model_validate(wanted.asked()) == wanted
    assert wanted.asks == bool(wanted.words())
    assert wanted.asks == (bool(wanted.knobs))
    if wanted.realtime:
        assert wanted.knobs <= {"fifo", "reservation"}
    assert wanted.priority is None or wanted.realtime
    for version in (1, 2):
        values = values_for(wanted, version)
        grouped = wanted.nice is not None or wanted.weight is not None or wanted.cap is not None
        assert bool(values) == grouped
        resources, unified = container_resources(wanted, version)
        assert len(resources) + len(unified) == len(values)
    if (quota := quota_of(wanted)) is not None:
        assert quota[0] >= 999, "the kernel refuses less than 1 ms"
        assert 1_000 <= quota[1] <= 1_000_000
    alone = own_policy(wanted)
    assert (alone.policy is None) == (not wanted.asks)
    assert flags(alone)[::2] == [flag for flag in flags(alone) if flag.startswith("--")]


@given(st.sampled_from(FAIR), ANYTHING)
def test_nothing_fair_goes_with_fifo(name: str, asked: dict[str, Any]) -> None:
    value = asked[name] if asked[name] is not None else 0.01 if name == "slice" else 1
    with pytest.raises(ValidationError, match=f"{name} has no effect under `policy: fifo`"):
        Scheduling.model_validate({"policy": "fifo", name: value})


@given(st.integers(-20, 19))
def test_a_nice_group_weighs_what_a_nice_thread_weighs(nice: int) -> None:
    wanted = Scheduling(nice=nice)
    shares, weight = shares_of(wanted), weight_of(wanted)
    assert shares is not None
    assert weight is not None
    # Each step is a factor of about 1.25 (sched(7)).
    assert shares == pytest.approx(1024 * 1.25**-nice, rel=0.1)
    assert abs(weight - shares * 100 / 1024) <= 0.5


@pytest.mark.parametrize(
    ("scheduling", "complaint"),
    [
        ("{policy: fifo, nice: 3}", "7:17: arms.knobs.scheduling: nice has no effect"),
        ("{policy: fifo, cap: 50 %}", "cap has no effect under `policy: fifo`"),
        ("{policy: fifo, priority: 99}", "must be at most 98"),
        ("{priority: 3}", "`priority` needs `policy: fifo`"),
        ("{policy: other, priority: 3}", "`priority` needs `policy: fifo`"),
        ("{nice: 1, weight: 100}", "nice and weight say the same"),
        ("{period: 10ms}", "a period is that of a cap"),
        ("{cap: 0}", "7:23: arms.knobs.scheduling.cap: must be more than 0"),
        ("{cap: -50 %}", "a share cannot be negative"),
        ("{cap: half}", "write a number of CPUs, like 0.5"),
        ("{cap: 50 %, reservation: 60 %}", "the reservation is more than the cap"),
        ("{cap: 1 %, period: 10ms}", "less than 1 ms of each period"),
        ("{slice: 200ms}", "Linux knows slices of 0.1 to 100 ms"),
        ("{slice: 1us}", "must be at least 0.0001"),
        ("{nice: -21}", "must be at least -20"),
        ("{weight: 0}", "must be at least 1"),
        ("{policy: rr}", "must be 'other', 'batch' or 'fifo'"),
        ("{polcy: fifo}", "unknown key; did you mean 'policy'?"),
    ],
)
def test_mistakes_are_reported_with_their_place(scheduling: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_study((STUDY % scheduling).encode(), "s.yaml", build_catalog())
    assert complaint in str(caught.value)
    assert "s.yaml:7:" in str(caught.value)


def test_a_study_with_knobs_is_stored_and_restored() -> None:
    text = (STUDY % "{cap: 50 %, period: 20ms, slice: 3ms, nice: -5}").replace(
        "workloads", "    neighbour-scheduling: {weight: 10}\nworkloads"
    )
    study = parse_study(text.encode(), "s.yaml", build_catalog())
    options = study.arms["knobs"].options
    assert isinstance(options, QemuOptions)
    assert options.scheduling == Scheduling(cap=0.5, period=0.02, slice=0.003, nice=-5)
    assert options.scheduling_of("neighbour-2").weight == 10
    assert not options.scheduling_of("trial").asks
    restored = restore_study(study.model_dump(mode="json"), build_catalog())
    assert restored.arms["knobs"].options == options
    assert options.model_dump()["scheduling"].keys() == {"cap", "period", "slice", "nice"}
    assert "scheduling" not in QemuOptions().model_dump(mode="json")
    words = Qemu().describe(options)
    assert "nice -5, cap 50 % per 20 ms, slice 3 ms" in words
    assert words.endswith("neighbours weight 10")


@pytest.mark.parametrize(
    ("wanted", "reported", "complaint"),
    [
        (Scheduling(nice=3), {"nice": 3, "policy": "SCHED_OTHER"}, ""),
        (Scheduling(nice=3), {"nice": 0}, "nice was set to 3, but the kernel says 0"),
        (Scheduling(slice=0.003), {"slice_ns": 2_800_000}, "slice_ns was set to 3000000"),
        (Scheduling(policy="fifo"), {"policy": "SCHED_FIFO", "priority": 1}, ""),
        (Scheduling(policy="fifo", priority=5), {"policy": "SCHED_OTHER"}, "SCHED_OTHER; priority"),
    ],
)
def test_settings_that_did_not_take_effect_are_named(
    wanted: Scheduling, reported: dict[str, Any], complaint: str
) -> None:
    found = difference(reported, wanted)
    assert complaint in found
    assert bool(found) == bool(complaint)
