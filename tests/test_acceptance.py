from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import acceptance
from acceptance import Outcome, outcome_in

REPORT = """\
<testsuites><testsuite tests="5">
<testcase name="test_a" />
<testcase name="test_b"><skipped message="there is no KVM&#10;here" /></testcase>
<testcase name="test_c[x]"><skipped message="there is no KVM" /></testcase>
{more}
</testsuite></testsuites>
"""
FAILED = """\
<testcase name="test_d"><failure message="assert 1 == 2">trace</failure>
<error message="its end failed too" /></testcase>
"""


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", Outcome("passed", {"passed": 1, "skipped": 2}, ("2 × there is no KVM",))),
        (
            FAILED,
            Outcome(
                "failed",
                {"passed": 1, "skipped": 2, "failed": 1},
                (
                    "2 × there is no KVM",
                    "test_d: assert 1 == 2",
                    "test_d: its end failed too",
                ),
            ),
        ),
    ],
)
def test_a_report_of_pytest_is_counted_with_its_reasons(
    more: str, expected: Outcome, tmp_path: Path
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT.format(more=more))
    assert outcome_in(report) == expected


def test_one_part_can_be_asked_for_and_others_are_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ends = {"one": Outcome("passed"), "two": Outcome("failed", why=("it broke",))}
    parts = tuple(
        acceptance.Part(name, f"part {name}", partial(ends.__getitem__, name)) for name in ends
    )
    monkeypatch.setattr(acceptance, "PARTS", parts)
    assert acceptance.main(["three"]) == 2
    assert "there is no part three; use one, two" in capfd.readouterr().err
    assert acceptance.main(["one"]) == 0
    assert "part two" not in capfd.readouterr().out
    assert acceptance.main([]) == 1
    assert "it broke" in capfd.readouterr().out
