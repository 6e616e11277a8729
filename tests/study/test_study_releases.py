"""Arms of several releases of Debian: refusals, skips, notes and each arm's release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from study.study_catalog import ABLE, CATALOG, KINDS
from study.test_study_lab_files import LINUX, written
from tare.errors import InputError
from tare.study.model.releases import NUMBERS, RELEASES, release_words
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan
from tare.study.reading.load import parse_study

UPGRADE = """\
study: upgrade
host: lab
lab: {lab}
baseline: old
arms:
  old: {{platform: qemu, release: bookworm}}
  old-again: {{twin-of: old}}
  new: {{platform: qemu, release: {new}}}
  plain: {{platform: qemu}}
workloads:
  tick: {{samples: 10}}
"""


def upgrade(lab: str = "{cpus: 2}", new: str = "trixie", host: str = "lab") -> Study:
    text = UPGRADE.format(lab=lab, new=new).replace("host: lab", f"host: {host}")
    return parse_study(text.encode(), "s.yaml", CATALOG)


def plan_of(study: Study, **facts: ArmFacts) -> Plan:
    every = {arm: facts.get(arm, ABLE) for arm in study.arms}
    return make_plan(study, 1, every, {"": HostFacts(HostCpus(online=(0, 1)))}, KINDS)


def test_each_arm_is_of_its_own_release_or_of_its_labs() -> None:
    study = upgrade()
    found = [study.release_of(arm) for arm in study.arms]
    assert found == ["bookworm", "bookworm", "trixie", None]
    assert upgrade("{release: trixie}").release_of("plain") == "trixie"
    # Elsewhere a lab's release has no effect.
    assert upgrade("{release: trixie}", host="local").release_of("plain") is None


@pytest.mark.parametrize(
    ("lab", "new", "says"),
    [
        ("{cpus: 2}", "trixy", r"s.yaml:8:\d+: arms.new.release: .*did you mean 'trixie'"),
        ("{release: 13}", "trixie", r"s.yaml:3:\d+: lab.release: must be 'bookworm' or 'trixie'"),
        ("{xen: rtds}", "trixie", r"s.yaml:3:\d+: lab.xen: applies to labs of one release"),
    ],
)
def test_impossible_release_is_reported_with_file_line_and_key(
    lab: str, new: str, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        upgrade(lab, new)


def test_a_linux_of_ones_own_serves_one_release(tmp_path: Path) -> None:
    lab = f"{{kernel: {written(tmp_path, LINUX)}, release: bookworm}}"
    with pytest.raises(InputError, match=r"lab.kernel: .* bookworm and trixie: remove it"):
        upgrade(lab)
    assert upgrade(lab, new="bookworm").lab.kernel


def test_plan_notes_what_differs_along_with_the_release() -> None:
    (note,) = plan_of(upgrade()).notes
    for words in ("old, old-again of Debian 12", "new of Debian 13", "plain of this computer's"):
        assert words in note
    assert plan_of(upgrade("{release: bookworm}", new="bookworm")).notes == ()
    (note,) = plan_of(upgrade(host="local")).notes
    assert "old, old-again, new" in note
    assert "the host's own" in note


def test_arms_without_an_image_have_a_release_only_in_a_lab() -> None:
    boots_nothing = replace(ABLE, boots_image=False)
    plan = plan_of(upgrade(host="local"), new=boots_nothing)
    assert [(skip.arm, "--host lab" in skip.reason) for skip in plan.skipped] == [("new", True)]
    assert plan_of(upgrade(), new=boots_nothing).skipped == ()


def test_releases_are_named_by_number_and_code_name() -> None:
    assert set(NUMBERS) == set(RELEASES)
    assert release_words("trixie") == "Debian 13 (trixie)"
