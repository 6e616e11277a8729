from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from study.study_catalog import CATALOG, GOOD, Qemu
from tare.errors import InputError
from tare.events import UnreadableStream, read_fold
from tare.platforms.certificates.model import Certificate, read_certificate
from tare.refusals import FORMS, message_of
from tare.registry import installed
from tare.study.model.study import Study
from tare.study.reading.load import load_study, parse_study, restore_study
from tare.study.reading.yamltext import StudyError


def parse(text: str | bytes) -> Study:
    content = text.encode() if isinstance(text, str) else text
    return parse_study(content, "s.yaml", CATALOG)


def problems(text: str | bytes) -> str:
    with pytest.raises(StudyError) as caught:
        parse(text)
    message: str = caught.value.message
    return message


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) >= 1, old
    return GOOD.replace(old, new, 1)


def test_a_good_study_is_typed_by_the_catalog() -> None:
    study = parse(GOOD)
    assert study.title == "small"
    assert study.arms["qemu-em"].options == Qemu(devices="emulated", cpu_model="host")
    assert study.shape_of("qemu-em").memory == 512 << 20
    assert study.shape_of("qemu-em").vcpus == 1
    assert study.shape_of("bare") == study.shape
    assert study.workloads["tick"].points == ({"samples": 200, "busy": 1e-4},)
    assert study.workloads["again"].workload == "tick"
    assert study.workloads["again"].deadline == 60.0
    assert study.workloads["memory-bandwidth"].points == ({},)
    neighbour = study.scenarios["crowded"].neighbours[0]
    assert neighbour.parameters == {"block_size": 1 << 20}


def test_lists_on_single_values_expand_into_every_combination() -> None:
    points = parse(GOOD).workloads["switch"].points
    assert [(p["threads"], p["rounds"]) for p in points] == [
        (2, 100),
        (2, 200),
        (10, 100),
        (10, 200),
    ]


def test_a_list_parameter_is_one_value_and_a_list_of_lists_is_a_grid() -> None:
    one = parse(GOOD + "    operations: [copy, add]\n").workloads["memory-bandwidth"]
    assert one.points == ({"operations": ["copy", "add"]},)
    two = parse(GOOD + "    operations: [[copy], [add]]\n").workloads["memory-bandwidth"]
    assert two.points == ({"operations": ["copy"]}, {"operations": ["add"]})


def test_a_twin_inherits_everything_it_does_not_say() -> None:
    text = changed("{twin-of: bare}", "{twin-of: qemu-em}")
    study = parse(text)
    assert study.arms["bare-again"].options == study.arms["qemu-em"].options
    assert study.arms["bare-again"].shape == study.arms["qemu-em"].shape
    assert study.aa == ("qemu-em", "bare-again")


def test_the_baselines_twin_is_the_pair_that_sets_the_noise_floor() -> None:
    study = parse(changed("  bare-again:", "  a: {twin-of: qemu-pv}\n  bare-again:"))
    assert study.aa == ("bare", "bare-again")
    assert study.twins == (("qemu-pv", "a"), ("bare", "bare-again"))


def test_a_stored_study_is_restored_as_it_was() -> None:
    study = parse(GOOD)
    stored = json.loads(json.dumps(study.model_dump(mode="json")))
    assert stored["aa"] == ["bare", "bare-again"]
    assert restore_study(stored, CATALOG) == study


def test_a_stored_study_of_another_catalog_is_refused_with_a_reason() -> None:
    stored = parse(GOOD).model_dump(mode="json")
    stored["arms"]["qemu-pv"]["options"]["gone"] = 1
    with pytest.raises(InputError, match=r"arms.qemu-pv.gone: unknown key"):
        restore_study(stored, CATALOG)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("accelerator: tcg", "accelerater: tcg", "s.yaml:6:29: arms.qemu-pv.accelerater: unknown "
         "key; did you mean 'accelerator'?"),
        ("accelerator: tcg", "accelerator: tgc", "did you mean 'tcg'?"),
        ("study: small", "study: Small One", "s.yaml:1:8: study: must be a short name"),
        ("baseline: bare", "baselin: bare", "2:1: baselin: unknown key; did you mean 'baseline'?"),
        ("baseline: bare", "baselin: bare", "baseline: is missing; add it"),
        ("baseline: bare", "baseline: baer", "there is no arm 'baer'; did you mean 'bare'?"),
        ("arms:", "arm:", "1:1: arms: is missing; add `arms:`"),
        ("twin-of: bare", "twin-of: bear", "5:25: arms.bare-again.twin-of: \"bear\" is not an "
         "arm; did you mean 'bare'?"),
        ("twin-of: bare", "twin_of: bare", "did you mean 'twin-of'?"),
        ("twin-of: bare", "twin-of: bare-again", "names itself"),
        ("{twin-of: bare}", "{twin-of: qemu-em, devices: paravirtual}",
         "a twin is identical to the arm that it repeats"),
        ("{twin-of: bare}", "{twin-of: qemu-pv, platform: bare}", "bare-again.platform: a twin is"),
        ("platform: bare", "platform: bear", "there is no platform \"bear\"; did you mean 'bare'?"),
        ("{platform: bare}", "{}", "4:3: arms.bare.platform: is missing"),
        ("{platform: bare}", "3", "4:9: arms.bare: must be keys with values"),
        ("memory: 512MiB", "memory: 1MB", "too little memory for any machine; give at least 32"),
        ("memory: 512MiB", "memory: 1 Mb", "unknown unit 'Mb'; write bytes"),
        ("memory: 512MiB", "vcpus: 0", "11:20: arms.qemu-em.shape.vcpus: must be at least 1"),
        ("memory: 512MiB", "vcpus: yes", "must be a whole number, not true"),
        ("samples: 200", "samples: 2.5", "must be a whole number, not 2.5"),
        ("samples: 200", 'samples: "200"', 'must be a whole number, not "200"'),
        ("samples: 200", "samples: 0200", 'must be a whole number, not "0200"'),
        ("samples: 200", "samples: 1:30", 'must be a whole number, not "1:30"'),
        ("samples: 200", "samples: .nan", "is not a usable number"),
        ("samples: 200", f"samples: 1{'0' * 40}", "is not a usable number"),
        ("samples: 200", "samples: []", "is an empty list; give at least one value"),
        ("samples: 200", "samples: [3, 3]", "is listed twice"),
        ("threads: [2, 10]", "threads: [2, 0]", "switch.threads[1]: must be at least 1, not 0"),
        ("[100, 200]", str(list(range(1, 600))), "combinations of parameters; at most 500"),
        ("busy: 100us", "busy: 100 uss", "unknown unit 'uss'; write seconds"),
        ("scenarios: [alone]", "scenarios: [alon]", "there is no scenario 'alon'; did you mean"),
        ("scenarios: [alone]", "scenarios: alone", "must be a list, like [a, b], not \"alone\""),
        ("workload: tick", "workload: tik", "there is no workload \"tik\"; did you mean 'tick'?"),
        ("  tick: {", "  tik: {", "20:3: workloads.tik: there is no workload \"tik\""),
        ("  tick: {samples: 200, busy: 100us}", "  phased-load:", "20:3: workloads.phased-load: "
         "phased-load ends with a subject, so it cannot be measured itself; make it a "
         "neighbour: `scenarios: {loaded: {neighbours: [{load: phased-load}]}}`"),
        ("workload: tick", "workload: phased-load", "22:21: workloads.again.workload: phased-load"
         " ends with"),
        ("load: cpu-load", "load: cpu-laod", "18:16: scenarios.crowded.neighbours[0].load: "),
        ("block-size: 1MiB", "blok: 1", "neighbours[0].parameters.blok: unknown key"),
        ("count: 2", "count: 0", "must be a whole number from 1 to 1000, or `fill`"),
        ("count: 2", "count: full", "must be a whole number from 1 to 1000, or `fill`"),
        ("  crowded:\n    subject: {cpus: pinned}", "  crowded:", "needs a pinned subject"),
        ("baseline: bare", "baseline: bare\nblocks: {least: 9, most: 8}", "least (9) is more"),
        ("baseline: bare", "baseline: bare\nblocks: {least: 0}", "must be at least 1, not 0"),
        ("baseline: bare", "baseline: bare\nconfidence: 95", "must be at most 0.999, not 95"),
        ("baseline: bare", "baseline: bare\nbaseline: qemu", "3:1: baseline: written twice"),
        ("  qemu-pv:", "  Qemu PV:", "a name has at most 40 lower-case letters"),
        ("  qemu-pv:", "  ? [a]\n  : b\n  qemu-pv:", "a key must be a plain word"),
        ("{platform: bare}", "!!python/object:os.system {}", "the tag "),
        ("{platform: bare}", "!mine {platform: bare}", "the tag !mine is not allowed"),
        ("study: small", 'study: small\ntitle: "a\\u0007b"', "is not allowed in a study"),
        ("study: small", 'study: small\ntitle: "a\\u202eb"', "is not allowed in a study"),
        ("study: small", 'study: small\ntitle: "a\\x9b2Jb"', "is not allowed in a study"),
        ("study: small", 'study: small\ndescription: "a\\u2028b"', "is not allowed in a study"),
    ],
)  # fmt: skip
def test_an_error_names_place_and_key_and_what_to_write(old: str, new: str, expected: str) -> None:
    assert expected in problems(changed(old, new))


def test_all_faults_are_reported_at_once_in_the_files_order() -> None:
    text = changed("baseline: bare", "baseline: baer").replace("samples: 200", "sample: 200")
    lines = problems(text.replace("accelerator", "accelerater")).splitlines()
    assert [line.split(":")[1] for line in lines] == ["2", "6", "20"]


def test_very_many_problems_are_counted_not_all_shown() -> None:
    text = GOOD + "".join(f"x{n}: 1\n" for n in range(100))
    message = problems(text.replace("  memory-bandwidth:\n", ""))
    assert "more problems" in message
    assert len(message.splitlines()) < 30


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the file is empty"),
        (b"# only a comment\n", "the file is empty"),
        (b"- a\n- b\n", "a study is a mapping"),
        (b"just words", "a study is a mapping"),
        (b"study: a\n\tarms: b\n", "s.yaml:2:1: not YAML: a tab; indent with spaces"),
        (b"study: a: b\n", "a second `:` in one line"),
        (b"study: [a\n", "s.yaml:2:1: not YAML: "),
        (b"\x7fELF\x02\x01\x01\x00\x00\x00", "is not allowed in a study; is this a text file?"),
        (b"study: caf\xe9\n", "s.yaml:1:11: not UTF-8 text"),
        (b"a: &x [1]\nb: [*x, *x]\n", "s.yaml:2:5: aliases (*x) are not allowed"),
        (b"a: 1\n---\nb: 2\n", "s.yaml:2:1: a second document starts here"),
        (b"[" * 5000, "s.yaml:1:17: nested more than 16 levels deep"),
        (b"{a: " * 5000, "nested more than 16 levels deep"),
        (b"a: " + b"x" * 300_000, "at most 262144 bytes"),
        (b'a: "\\UFFFFFFFF"', "s.yaml"),
        (b"? ? ? ?\n", "s.yaml"),
    ],
)
def test_content_that_is_not_a_study_is_refused(content: bytes, expected: str) -> None:
    assert expected in problems(content)


def test_a_byte_order_mark_is_accepted() -> None:
    assert parse(b"\xef\xbb\xbf" + GOOD.encode()) == parse(GOOD)


def test_a_missing_file_names_the_studies_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").write_text(GOOD)
    with pytest.raises(InputError, match=r"there is no such file; YAML files there: .*quick.yaml"):
        load_study(tmp_path / "quik.yaml", CATALOG)


def test_a_folder_is_refused_as_a_study(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        load_study(tmp_path, CATALOG)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_study(tmp_path / ("x" * 300), CATALOG)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be read"):
        load_study(tmp_path / "file" / "study.yaml", CATALOG)


def test_weak_studies_are_warned_of() -> None:
    assert parse(GOOD).warnings == ()
    few = parse(changed("baseline: bare", "baseline: bare\nblocks: {least: 2, most: 4}"))
    assert "with fewer than 6 all results are preliminary" in few.warnings[0]
    enough = parse(changed("baseline: bare", "baseline: bare\nblocks: {least: 6, most: 6}"))
    assert enough.warnings == ()
    early = parse(changed("baseline: bare", "baseline: bare\nblocks: {least: 2, most: 9}"))
    assert "if the run stops before 6" in early.warnings[0]
    alone = parse(changed("  bare-again: {twin-of: bare}\n", ""))
    assert "`bare-again: {twin-of: bare}`" in alone.warnings[0]
    text = GOOD.replace("{samples: 200, busy: 100us}", "{scenarios: [alone]}")
    text = text.replace("repeats: 2", "scenarios: [alone]")
    assert (
        "no workload is measured in the scenario pinned"
        in parse(text.replace("  memory-bandwidth:\n", "")).warnings[0]
    )


def test_blocks_follow_least() -> None:
    assert parse(GOOD).blocks.most == 30
    assert parse(changed("baseline: bare", "baseline: bare\nblocks: {least: 50}")).blocks.most == 50


@pytest.mark.parametrize("name", ["-oAPT::X=1", "--help", "a b", "a;b", "$(id)", "x" * 200])
def test_a_kernel_is_a_name_and_never_an_option(name: str) -> None:
    assert "is not a kernel's name" in problems(f"{GOOD}\nkernel: {json.dumps(name)}\n")


@pytest.mark.parametrize(
    ("constraints", "value", "words"),
    [
        ({"min_length": 1}, "", 'must not be empty, as "" is'),
        ({"min_length": 3}, "ab", 'must have 3 characters or more, not "ab"'),
        ({"max_length": 1}, "ab", 'must have 1 characters or fewer, not "ab"'),
        ({"pattern": "^/"}, "ab", 'must be a whole path, from / on, not "ab"'),
        ({"pattern": "^[A-Za-z0-9]+$"}, "-x", "must have another form, as its description says"),
        ({"pattern": "^[a-z0-9][a-z0-9._-]{0,39}$"}, "-x", "must be a short name"),
        ({"min_length": 1}, [], "must not be empty, as [] is"),
        ({"min_length": 2}, [1], "must have 2 entries or more, not [1]"),
        ({"max_length": 1}, [1, 2], "must have 1 entries or fewer, not [1, 2]"),
        ({"allow_inf_nan": False}, float("inf"), "must be a finite number"),
        ({"ge": 1}, 0.5, "must be at least 1"),
    ],
)
def test_no_word_of_a_library_is_in_a_message(
    constraints: dict[str, Any], value: object, words: str
) -> None:
    kinds: dict[type, Any] = {str: str, list: list[int], float: float}
    annotated: Any = Annotated[kinds[type(value)], Field(**constraints)]
    adapter: TypeAdapter[Any] = TypeAdapter(annotated)
    with pytest.raises(ValidationError) as refused:
        adapter.validate_python(value)
    message = message_of(refused.value.errors()[0])
    assert message.startswith(words), message
    for word in ("should", "String", "Tuple", "List", "Input", "pattern"):
        assert word not in message


def test_every_form_that_is_asked_for_has_words() -> None:
    """Check that no message shows a regular expression to somebody who wrote a study."""
    known = installed()
    models: list[type[BaseModel]] = [Study, Certificate]
    models += [workload.parameters for workload in known.workloads.values()]
    models += [platform.options for platform in known.platforms.values()]
    patterns = {each for model in models for each in patterns_in(model.model_json_schema())}
    assert len(patterns) >= 8
    assert patterns <= FORMS.keys(), patterns - FORMS.keys()


def patterns_in(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from patterns_in(each)
    elif isinstance(schema, dict):
        # What is written with a unit is read by code of ours, which says what is wrong with it.
        if isinstance(schema.get("pattern"), str) and "[0-9._eE+-]+" not in schema["pattern"]:
            yield schema["pattern"]
        yield from schema.get("patternProperties", {})
        for key, each in schema.items():
            if key not in ("description", "default", "examples"):
                yield from patterns_in(each)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "line 1: the line is not JSON"),
        (b'{"seq":0,"time":1,"event":{"type":"nothing"}}', "of an unknown kind"),
        (b'{"seq":0,"time":1,"event":{"type":"planned"}}', "is missing; add it"),
        (b'{"seq":0,"time":"late","event":{"type":"skipped","arm":"a","reason":"b"}}',
         "must be a number"),
        (b'{"seq":0,"time":1,"x":5,"event":{"type":"skipped","arm":"a","reason":"b"}}',
         "is not known here"),
    ],
)  # fmt: skip
def test_damaged_stream_is_reported_in_tares_words(line: bytes, words: str, tmp_path: Path) -> None:
    stream = tmp_path / "events.jsonl"
    stream.write_bytes(line + b"\n")
    with pytest.raises(UnreadableStream, match=words) as refused:
        read_fold(stream)
    for word in ("should", "Input", "Field", "Invalid", "permitted", "tag"):
        assert word not in str(refused.value)


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"made": "today"}', b"[1]"])
def test_file_that_is_not_a_certificate_is_reported_in_tares_words(
    content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    file.write_bytes(content)
    with pytest.raises(InputError) as refused:
        read_certificate(file)
    for word in ("should", "Input", "Field", "Invalid", "permitted", "pattern"):
        assert word not in refused.value.message
