"""Every reference meets the studies that it names, by what these would measure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from references.references_planned import planned_run
from study.shipped_studies import NAMES
from tare.references.pairing import SideBySide, pair_with_published
from tare.references.published import Reference, known_references, load_reference
from tare.references.scenarios import vcpus_in
from tare.report.sources.section import reference_section
from tare.study.model.scenario import Scenario

REFERENCES = {name: load_reference(name) for name in known_references()}
NAMED = [(name, study) for name, each in REFERENCES.items() for study in each.studies]


def side_by_side(reference: Reference, study: str, cpus: int) -> SideBySide:
    return pair_with_published(planned_run(study, cpus), reference)


@pytest.mark.parametrize("name", REFERENCES)
def test_every_table_meets_a_study_on_as_many_cpus_as_the_source_had(name: str) -> None:
    reference = REFERENCES[name]
    met: set[str] = set()
    for study in reference.studies:
        matched = side_by_side(reference, study, 4).matched
        # A source whose results are all in figures has facts alone.
        assert bool(matched) == bool(reference.tables), f"{study} meets no table of {name}"
        met |= {one.table.name for one in matched if all(key is not None for key in one.keys)}
    claimed = {table.name for table in reference.tables if table.scenario is not None}
    assert met == claimed


@pytest.mark.parametrize("name", REFERENCES)
def test_studies_that_are_named_are_there(name: str) -> None:
    assert set(REFERENCES[name].studies) <= set(NAMES)


def test_all_threads_are_as_many_as_the_machine_has_vcpus() -> None:
    hwang = REFERENCES["hwang2013"]
    on_two = side_by_side(hwang, "components", 2)
    assert [one.table.place for one in on_two.matched] == ["Values stated for figure 4(a)"]
    # The source's host had four CPUs: on a larger one its scenario is another than every CPU's.
    larger = side_by_side(hwang, "components", 8).matched
    assert [one.matched for one in larger] == ["one-cpu", "four-cpus"]
    assert all(key is not None for one in larger for key in one.keys)
    one, four = side_by_side(hwang, "components", 4).matched
    assert (one.matched, four.matched) == ("one-cpu", "every-cpu")
    asked = [key.parameters for key in (*one.keys, *four.keys) if key is not None]
    assert len(asked) == 2 and all('"threads":"all"' in each.replace(" ", "") for each in asked)
    # The source left the place to the scheduler, and so does only one of ours.
    words = "Here the subject is pinned to CPUs of its own; in the source it was not."
    assert (words in one.notes, words in four.notes) == (True, False)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"subject": {"vcpus": 3}},
        {"subject": {"vcpus": "all"}},
        {"subject": {"vcpus": "spare"}},
        {"cluster": {"vcpus": 5}},
        {"cluster": {"vcpus": 5, "master": "with-first"}},
        {"cluster": {"vcpus": 5, "master": "with-first"}, "subject": {"vcpus": 3}},
        {"cluster": {"master": "with-first"}},
        {"cluster": {"external": "/etc/hadoop"}},
    ],
)
def test_a_run_had_as_many_vcpus_as_its_plan(settings: dict[str, Any]) -> None:
    scenario = Scenario.model_validate(settings)
    stored = {
        "scenarios": {"one": scenario.model_dump(mode="json")},
        "shape": {"vcpus": 4},
        "arms": {"bare": {}},
    }
    (run,) = planned_run("quick", 2).runs
    of_five = replace(run, study=stored, host={"cpus": 5})
    assert vcpus_in([of_five], "one") == scenario.vcpus_of(4, 5)
    # A host with an unknown number of CPUs.
    words = ({"vcpus": "all"}, {"vcpus": "spare"})
    expected = None if settings.get("subject") in words else scenario.vcpus_of(4, 0)
    assert vcpus_in([replace(run, study=stored, host={})], "one") == expected


def test_a_parameter_that_a_study_leaves_out_is_its_default() -> None:
    """The default of memory bandwidth is one thread: the source's setting with one vCPU."""
    one, _ = side_by_side(REFERENCES["hwang2013"], "quick", 2).tables
    assert [key.workload for key in one.keys if key] == ["memory-bandwidth"]
    assert one.has_own


def test_a_source_that_no_study_repeats_says_so_in_the_report() -> None:
    reason = "No study of Tare measures this, so these values stand alone."
    reference = REFERENCES["li2013"].model_copy(update={"studies": (), "no_study": reason})
    side = side_by_side(reference, "quick", 2)
    assert reason in reference_section(side).about
    hwang = side_by_side(REFERENCES["hwang2013"], "realtime-short", 2)
    assert "A run of studies/components.yaml or studies/interference.yaml does." in (
        reference_section(hwang).about
    )


def test_a_source_with_a_bare_machine_in_one_figure_is_not_reported_as_having_none() -> None:
    reading = REFERENCES["hwang2013"].reading
    assert "measured no bare machine" not in reading
    assert "figure 9(e)" in reading
