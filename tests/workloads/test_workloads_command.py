"""``command``: what a study says of a program of one's own, and what is found in its output."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tare.errors import InputError, WorkloadFault
from tare.study.model.forms import FOLDER
from tare.workloads.additions import Additions, merge_additions
from tare.workloads.applications.command import ROOMS, Command, CommandParameters

COMMAND = Command()
TIMES = {"wall_s": 2.0, "cpu_s": 1.5, "user_s": 1.0, "system_s": 0.5, "max_rss_bytes": 4096}
ALWAYS = {"wall-time", "cpu-time", "user-time", "system-time", "max-rss"}
SPEED = {"unit": "B/s", "better": "higher", "regex": "speed: ([0-9.]+) MB/s", "scale": 1e6}


def asked(**parameters: Any) -> CommandParameters:
    return CommandParameters.model_validate({"argv": ["true"], **parameters})


def observed(output: str, **parameters: Any) -> dict[str, float]:
    return COMMAND.observe(asked(**parameters), {**TIMES, "output": output})


def figure(output: str, **metric: Any) -> float:
    return observed(output, metrics={"x": {"unit": "s", "better": "lower", **metric}})["x"]


def test_times_are_reported_without_own_metrics() -> None:
    assert observed("") == {
        "wall-time": 2.0,
        "cpu-time": 1.5,
        "user-time": 1.0,
        "system-time": 0.5,
        "max-rss": 4096.0,
    }
    headlines = [metric.name for metric in COMMAND.metrics_for(asked()) if metric.headline]
    assert headlines == ["wall-time"]


def test_own_metrics_come_first_and_take_the_headline() -> None:
    metrics = COMMAND.metrics_for(
        asked(metrics={"speed": {**SPEED, "headline": True, "summary": "How fast."}})
    )
    assert (metrics[0].name, metrics[0].unit, metrics[0].better) == ("speed", "B/s", "higher")
    assert metrics[0].summary == "How fast."
    assert {metric.name for metric in metrics[1:]} == ALWAYS
    assert [metric.name for metric in metrics if metric.headline] == ["speed"]


def test_the_last_line_that_matches_counts() -> None:
    output = "speed: 1 MB/s\rspeed: 2 MB/s\nspeed: 12.5 MB/s\nthat was its speed\n"
    assert observed(output, metrics={"speed": SPEED})["speed"] == 12.5e6


def test_fields_are_found_in_json_as_a_whole_or_in_the_last_line() -> None:
    content = '{"runs": [{"latency": {"p99": 81}}, {"latency": {"p99": 82.5}}]}'
    for output in (content, content.replace(",", ",\n"), f"it begins\n{content}\n\n"):
        assert figure(output, field="runs[1].latency.p99", scale=1e-6) == pytest.approx(82.5e-6)
    assert figure("[[1, 2], [3]]", field="[0][1]") == 2.0


@pytest.mark.parametrize(
    ("output", "metric", "words"),
    [
        ("nothing such", {"regex": "speed: ([0-9]+)"}, "nothing at `speed: ([0-9]+)`"),
        ("", {"regex": "speed: ([0-9]+)"}, "nothing at"),
        ("speed: fast", {"regex": "speed: (.*)"}, "'fast', not a finite number"),
        ("speed: nan", {"regex": "speed: (.*)"}, "'nan', not a finite number"),
        ("speed: 1e308", {"regex": "speed: (.*)", "scale": 10}, "not a finite number"),
        ("no json", {"field": "a"}, "neither its whole output nor the last line is JSON"),
        ('{"a": {}}', {"field": "a.b"}, "nothing at `a.b`"),
        ('{"a": [1]}', {"field": "a[1]"}, "nothing at `a[1]`"),
        ('{"a": "one"}', {"field": "a"}, "'one', not a finite number"),
        ('{"a": true}', {"field": "a"}, "True, not a finite number"),
        ('{"a": NaN}', {"field": "a"}, "nan, not a finite number"),
    ],
)
def test_a_metric_that_is_not_there_fails_the_cell_with_the_last_words(
    output: str, metric: dict[str, Any], words: str
) -> None:
    with pytest.raises(WorkloadFault) as caught:
        figure(output, **metric)
    assert words in caught.value.message
    end = f"the last lines of the output: {output}" if output else "`"
    assert caught.value.message.endswith(end)


def test_only_the_last_lines_are_reported() -> None:
    with pytest.raises(WorkloadFault, match=r"output: line 5 / line 6 / line 7 / line 8 / line 9$"):
        observed("\n".join(f"line {n}" for n in range(10)), check={"contains": "none"})


@pytest.mark.parametrize("check", [{"contains": "ok"}, {"regex": "^all .k$"}])
def test_an_output_that_is_not_as_it_must_be_fails_the_cell(check: dict[str, Any]) -> None:
    assert observed("first\nall ok\n", check=check)
    with pytest.raises(WorkloadFault, match=r"the output.*output: first / all went wrong"):
        observed("first\nall went wrong\n", check=check)


def test_the_agent_is_asked_as_for_any_program() -> None:
    request = COMMAND.request(
        asked(
            argv=["zstd", "-b"],
            check={"file": "/tmp/x", "sha256": "0" * 64, "status": [0, 3]},
            env={"A": "b"},
            runs=2,
            timeout="2s",
        )
    )
    assert request["steps"] == [
        {"argv": ["zstd", "-b"], "cwd": "/tmp", "env": {"A": "b"}, "codes": [0, 3]}
    ]
    assert request["checks"] == [{"path": "/tmp/x", "sha256": "0" * 64}]
    assert request["clean"] == ["/tmp/x"]
    assert (request["repeats"], request["timeout_s"]) == (2, 2.0)
    both = COMMAND.request(asked(argv=["zstd", "-b"], stderr=True))["steps"][0]["argv"]
    assert both[:2] == ["sh", "-c"]
    assert both[-2:] == ["zstd", "-b"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"argv": []}, "at least 1 item"),
        ({"metrics": {"x": {"unit": "m", "better": "lower", "field": "a"}}}, "'B/s'"),
        ({"metrics": {"x": {"unit": "s", "better": "lower"}}}, "either `regex` or `field`"),
        ({"metrics": {"x": {**SPEED, "field": "a"}}}, "either `regex` or `field`"),
        ({"metrics": {"x": {**SPEED, "regex": "("}}}, "not a regular expression: unclosed group"),
        ({"metrics": {"x": {**SPEED, "regex": "(?=a)(b)"}}}, "look-around"),
        ({"metrics": {"x": {**SPEED, "regex": "(a{1000}){1000}"}}}, "exceeds size limit"),
        ({"metrics": {"x": {**SPEED, "regex": "speed"}}}, "0 pairs of parentheses"),
        ({"metrics": {"x": {**SPEED, "regex": "(a)(b)"}}}, "2 pairs of parentheses"),
        ({"metrics": {"x": {**SPEED, "better": "neither", "headline": True}}}, "headline"),
        ({"metrics": {"x": {**SPEED, "scale": 0}}}, "the scale must not be 0"),
        ({"metrics": {"x": {**SPEED, "scale": "much"}}}, "valid number"),
        ({"metrics": {"wall-time": SPEED}}, "choose another name"),
        ({"metrics": {"Speed": SPEED}}, "pattern"),
        ({"check": {"sha256": "0" * 64}}, "write `file` too"),
        ({"check": {"file": "/tmp/../etc"}}, "not a file that a run can write"),
        ({"check": {"regex": "("}}, "not a regular expression"),
        ({"toolbox": {"packages": ["zstd; rm"]}}, "must be a package's name"),
        ({"toolbox": {"packages": ["-o"]}}, "must be a package's name"),
    ],
)
def test_contradictory_metric_declarations_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        asked(**wrong)


@pytest.mark.parametrize("path", ["", ".a", "a.", "a..b", "a[x]", "a[1", "a[-1]", "[]", "a]b"])
def test_a_path_that_names_no_field_is_refused(path: str) -> None:
    with pytest.raises(ValidationError):
        asked(metrics={"x": {"unit": "s", "better": "lower", "field": path}})


@pytest.mark.parametrize(
    "place",
    [
        *("opt/x", "/x", "/etc/passwd", "/usr/bin/x", "/opt", "/opt/", "/opt//x", "/opt/../etc/x"),
        *("/opt/./x", "/optional/x", "/usr/local", "/opt/a\nb", "/tmp/x", ""),
    ],
)
def test_files_go_nowhere_where_they_could_break_the_toolbox(place: str) -> None:
    with pytest.raises(ValidationError, match="is not allowed for your files"):
        asked(toolbox={"files": {place: "x"}})


@given(st.lists(st.sampled_from(["..", ".", "", "a", "opt", "etc", "usr", "local"]), max_size=6))
def test_no_place_leads_out_of_its_room(parts: list[str]) -> None:
    place = "/" + "/".join(parts)
    try:
        asked(toolbox={"files": {place: "x"}})
    except ValidationError:
        return
    resolved = str(Path("/").joinpath(place).resolve().relative_to("/"))
    assert any(f"/{resolved}".startswith(f"{room}/") for room in ROOMS)


def test_files_are_found_next_to_the_study_and_must_be_executable(tmp_path: Path) -> None:
    here = {FOLDER: tmp_path}
    given_study = {"argv": ["/opt/x"], "toolbox": {"files": {"/opt/x": "./x"}}}
    with pytest.raises(ValidationError, match=f"there is no file {tmp_path}/x"):
        CommandParameters.model_validate(given_study, context=here)
    (tmp_path / "x").write_text("#!/bin/sh\n")
    with pytest.raises(ValidationError, match=f"chmod \\+x {tmp_path}/x"):
        CommandParameters.model_validate(given_study, context=here)
    (tmp_path / "x").chmod(0o755)
    known = CommandParameters.model_validate(given_study, context=here)
    added = COMMAND.adds(known).relative_to(tmp_path)
    assert added == Additions(files={"/opt/x": tmp_path / "x"})
    # A stored study is read again although the file is gone.
    (tmp_path / "x").unlink()
    assert CommandParameters.model_validate(known.model_dump(mode="json")) == known


def test_a_folder_brings_its_files_and_no_links(tmp_path: Path) -> None:
    (tmp_path / "data/inner").mkdir(parents=True)
    for name in ("data/b", "data/inner/a"):
        (tmp_path / name).write_text(name)
    added = Additions(files={"/opt/data": tmp_path / "data"})
    assert added.each_file() == {
        "/opt/data/b": tmp_path / "data/b",
        "/opt/data/inner/a": tmp_path / "data/inner/a",
    }
    (tmp_path / "data/link").symlink_to("/etc/shadow")
    with pytest.raises(InputError, match="data/link is a link"):
        added.each_file()
    with pytest.raises(InputError, match="neither a file nor a folder"):
        Additions(files={"/opt/null": Path("/dev/null")}).each_file()


def test_workloads_share_one_toolbox(tmp_path: Path) -> None:
    one = Additions(frozenset({"zstd"}), {"/opt/a": tmp_path / "a"})
    other = Additions(frozenset({"zstd", "lz4"}), {"/opt/a": tmp_path / "a", "/opt/b": tmp_path})
    both = merge_additions([one, other, Additions()])
    assert both == Additions(frozenset({"zstd", "lz4"}), {**one.files, **other.files})
    with pytest.raises(InputError, match="are both added as /opt/a"):
        merge_additions([one, Additions(files={"/opt/a": tmp_path / "other"})])
    with pytest.raises(InputError, match="/opt/a/x in the toolbox is inside /opt/a"):
        merge_additions([one, Additions(files={"/opt/a/x": tmp_path / "x"})])
    assert not merge_additions([])


NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(NUMBERS, st.text(), st.text(alphabet=st.characters(exclude_characters="0123456789")))
def test_printed_number_is_found_in_any_text(number: float, before: str, behind: str) -> None:
    output = f"{before}\nspeed=<{number!r}>\n{behind}"
    assert figure(output, regex="^speed=<(.*)>$") == number


@given(st.data(), NUMBERS)
def test_a_number_in_json_is_found_by_its_path(data: st.DataObject, number: float) -> None:
    names = st.text(min_size=1, max_size=5).filter(lambda name: not set(name) & set(".[]"))
    steps = data.draw(st.lists(st.integers(0, 3) | names, min_size=1, max_size=5))
    document: Any = number
    path = ""
    for step in reversed(steps):
        if isinstance(step, int):
            document = [None] * step + [document]
            path = f"[{step}]{'.' if path and path[0] != '[' else ''}{path}"
        else:
            document = {step: document}
            path = f"{step}{'.' if path and path[0] != '[' else ''}{path}"
    assert figure(json.dumps(document), field=path) == number


@pytest.mark.fuzz
@given(
    st.text(alphabet=st.characters(codec=None)),
    st.sampled_from([{"regex": r"([^ ]*)"}, {"regex": r"(?:a|aa)+([0-9]*)$"}, {"field": "a[0]"}]),
)
def test_any_printed_output_is_read_or_refused(output: str, metric: dict[str, Any]) -> None:
    try:
        found = figure(output, **metric)
    except WorkloadFault as refused:
        assert refused.message
        return
    assert math.isfinite(found)


def test_a_pattern_that_others_would_try_for_ever_takes_no_time() -> None:
    with pytest.raises(WorkloadFault, match="nothing at"):
        figure("a" * (1 << 20), regex="(?:a+)+(b)")


def test_an_output_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(WorkloadFault, match="is JSON"):
        figure("[" * 500_000, field="a")
