"""Parameters as people read them: no object of Python in a plan, a notice or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tare.analysis.effects.results import Key
from tare.analysis.words import described
from tare.cli.main import app
from tare.report.page.words import Names, Part, parameter_text
from tare.study.planning.cells import work_words
from tare.study.reading.shipped import shipped_studies
from tare.units import parameter_words

PYTHON = ("{'", "['", '{"', "<class", "None", "True", "False", "<function", "object at 0x")
NAME = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
SCALAR = st.one_of(
    st.booleans(), st.none(), st.integers(-(10**6), 10**6), st.floats(-1e9, 1e9), NAME
)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3),
    max_leaves=8,
)
PARAMETERS = st.dictionaries(NAME, VALUE, max_size=4)


def no_python(text: str) -> None:
    assert not any(word in text for word in PYTHON), text


@given(st.lists(PARAMETERS, min_size=1, max_size=4))
def test_no_object_of_python_is_in_any_name(several: list[dict[str, Any]]) -> None:
    texts = [json.dumps(each, sort_keys=True) for each in several]
    parts = [Part("alone", "own", text, "subject") for text in texts]
    names = Names(parts)
    for each, part in zip(several, parts, strict=True):
        no_python(work_words("own", each, 2))
        no_python(parameter_words(each))
        no_python(parameter_text(each))
        no_python(names.name(part))
        no_python(names.metric(part, "rate"))
        no_python(described(Key("alone", "own", part.parameters, "subject", "rate")))
    # Different work has different names.
    assert len({names.name(part) for part in parts}) == len(set(parts))


@pytest.mark.parametrize("name", sorted(shipped_studies()))
def test_no_object_of_python_is_in_the_plan_of_a_study(name: str) -> None:
    shown = CliRunner().invoke(app, ["plan", name])
    for word in ("{'", "<class", "None", "object at 0x"):
        assert word not in shown.output, shown.output


def test_command_is_named_by_its_metrics() -> None:
    metrics = {"rate": {"regex": "(1)", "unit": "s"}, "loss": {"field": "a", "unit": "1"}}
    words = work_words("mine", {"argv": ["x", "-y"], "metrics": metrics, "runs": 2.0})
    assert words == "mine[argv=[x, -y], metrics=(rate, loss), runs=2]"
