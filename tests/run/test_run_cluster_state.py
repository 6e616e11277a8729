"""Whether a cluster is up is read from its daemons' own words, however they are cut or missing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.run.topologies.cluster.state import (
    error_lines,
    is_ready_for_history,
    missing_part,
    objects_in,
    written,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def state_words(
    *, live: int | None = 2, safe: str = "", nodes: int | None = 2, history: bool = True
) -> str:
    parts: list[dict[str, Any]] = []
    if live is not None:
        live_nodes = json.dumps({f"slave-{number}": {"remaining": 5} for number in range(live)})
        parts.append({"beans": [{"Safemode": safe, "LiveNodes": live_nodes}]})
    if nodes is not None:
        parts.append({"clusterMetrics": {"activeNodes": nodes}})
    if history:
        parts.append({"historyInfo": {}})
    return "".join(map(json.dumps, parts))


def test_a_cluster_is_up_when_all_say_so() -> None:
    assert missing_part(state_words(), 2) == ""


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("", "the NameNode does not answer"),
        (state_words(live=1), "knows 1 of 2 DataNodes"),
        (
            state_words(safe="Safe mode is ON. The reported blocks"),
            "not left safe mode: Safe mode is ON",
        ),
        (state_words(nodes=None), "the ResourceManager does not answer"),
        (state_words(nodes=1), "knows 1 of 2 NodeManagers"),
        (state_words(history=False), "the history server does not answer"),
        ("<html>404</html>", "the NameNode does not answer"),
        (state_words()[:-3] + "}", "the history server does not answer"),
    ],
)
def test_missing_daemons_are_named(message: str, words: str) -> None:
    assert words in missing_part(message, 2)


def test_datanode_counts_once_it_has_reported_its_room() -> None:
    nodes = {"slave-1": {"remaining": 7}, "slave-2": {"remaining": 0}, "slave-3": {}}
    answer = json.dumps({"beans": [{"Safemode": "", "LiveNodes": json.dumps(nodes)}]})
    assert "knows 1 of 3 DataNodes with free space" in missing_part(answer, 3)


def test_the_history_server_waits_for_the_namenode_alone() -> None:
    assert is_ready_for_history(state_words(live=0, nodes=None, history=False))
    assert not is_ready_for_history(state_words(safe="on", nodes=2))
    assert not is_ready_for_history("")


@pytest.mark.fuzz
@given(st.text() | st.lists(JSON, max_size=4).map(lambda all: "".join(map(json.dumps, all))))
def test_any_answer_of_the_daemons_is_tolerated(message: str) -> None:
    assert isinstance(missing_part(message, 1), str)
    assert written(message) >= 0 or "BytesWritten" in message
    assert all(isinstance(each, dict) for each in objects_in(message))


@given(st.lists(st.dictionaries(st.text(), st.integers(), max_size=3), max_size=4))
def test_objects_are_found_between_anything_else(objects: list[dict[str, int]]) -> None:
    text = " x [".join(map(json.dumps, objects))
    assert list(objects_in(text)) == objects


def test_bytes_are_added_over_machines() -> None:
    one = json.dumps({"beans": [{"BytesWritten": 5}, {"name": "other"}]})
    assert written(one + "\n" + one) == 10


def test_the_telling_lines_of_a_log_are_those_that_say_what_went_wrong() -> None:
    log = "INFO starting\nERROR java.io.IOException: No space left on device\nINFO ended\n"
    assert error_lines(log) == "ERROR java.io.IOException: No space left on device"
    assert error_lines("one\ntwo\n") == "two"
    handled = "INFO: Registering org.apache.hadoop.yarn.webapp.GenericExceptionHandler as a class"
    assert error_lines(f"{handled}\nINFO all is well") == "INFO all is well"
    thrown = "java.lang.IllegalStateException: no"
    assert error_lines(f"{thrown}\nINFO more") == thrown
    assert error_lines("") == ""
