"""Short words for what a report is about."""

from __future__ import annotations

from tare.report.page.words import parameter_text


def test_parameters_with_keys_of_their_own_do_not_fill_a_line() -> None:
    assert (
        parameter_text({"argv": ["x"], "metrics": {"a": {"unit": "s"}}, "runs": 2})
        == "argv=[x], runs=2"
    )
    assert parameter_text({}) == ""
