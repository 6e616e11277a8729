"""What was changed in a run's folder is noticed, and what was not is not."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.analysis_written import CELLS, STUDY, make_run
from run.run_driving import tare
from tare.analysis import compare_runs, load_run
from tare.analysis.data.parquet import UnreadableSeries
from tare.analysis.data.series_file import read_series
from tare.analysis.data.verify import _file, verify_run
from tare.errors import InputError
from tare.events import BlockFinished, EventLog, SeriesSaved, read_fold
from tare.events.chain import read_seal, seal_path
from tare.events.repair import repair_stream
from tare.report import build_report

RUNS = Path(__file__).parent.parent / "fixtures" / "runs"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def lines(run: Path) -> list[bytes]:
    return (run / "events.jsonl").read_bytes().splitlines(keepends=True)


def put(run: Path, kept: list[bytes]) -> None:
    (run / "events.jsonl").write_bytes(b"".join(kept))


def renumbered(kept: list[bytes]) -> list[bytes]:
    made = []
    for seq, line in enumerate(kept):
        record = json.loads(line)
        record["seq"] = seq
        made.append(json.dumps(record, separators=(",", ":")).encode() + b"\n")
    return made


def test_a_run_is_whole_as_it_was_written(run: Path) -> None:
    found = verify_run(run)
    assert found.damage == () and found.chained
    seal = read_seal(run / "events.jsonl")
    assert seal is not None and seal.digest == found.last
    assert (found.events, found.series) == (len(lines(run)), len(CELLS))
    assert found.files == 2 * len(CELLS)
    assert load_run(run).doubts == ()
    assert verify_run(run, found.last[:12]).damage == ()
    assert "not 0123" in verify_run(run, "0123").damage[0]


def changed_value(run: Path) -> None:
    kept = lines(run)
    at = next(n for n, line in enumerate(kept) if b'"observation"' in line)
    kept[at] = kept[at].replace(b'"value":1.1', b'"value":1.2')
    put(run, kept)


def shortened(run: Path) -> None:
    put(run, lines(run)[:-4])


def taken_out(run: Path) -> None:
    kept = lines(run)
    at = next(n for n, line in enumerate(kept) if b'"observation"' in line)
    put(run, renumbered(kept[:at] + kept[at + 1 :]))


def unchained(run: Path) -> None:
    put(run, [line.partition(b',"chain":')[0] + b"}\n" for line in lines(run)])


def without_seal(run: Path) -> None:
    seal_path(run / "events.jsonl").unlink()


def written_again(run: Path) -> None:
    seal = seal_path(run / "events.jsonl").read_bytes()
    shutil.rmtree(run)
    make_run(run, 2.0)
    seal_path(run / "events.jsonl").write_bytes(seal)


def flipped(run: Path) -> None:
    path = first_series(run)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def gone(run: Path) -> None:
    first_series(run).unlink()


def another_study(run: Path) -> None:
    (run / "study.yaml").write_bytes(STUDY + b"#")


def another_log(run: Path) -> None:
    (run / "machines" / "oci-2" / "console.log").write_text("nothing happened\n")


def no_log(run: Path) -> None:
    (run / "machines" / "bare-1" / "console.log").unlink()


def another_output(run: Path) -> None:
    (run / "outputs" / "bare-3.txt").write_text("bare printed 4\n")


def first_series(run: Path) -> Path:
    return sorted((run / "series").glob("*.parquet"))[0]


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (changed_value, "was changed"),
        (shortened, "the last 4 of"),
        (taken_out, "was changed"),
        (unchained, "hashes were removed"),
        (without_seal, "the record of its end is missing"),
        (written_again, "does not have the hash that was kept"),
        (flipped, "changed or damaged"),
        (gone, "missing"),
        (another_study, "study.yaml"),
        (another_log, "machines/oci-2/console.log: it was changed after it was recorded"),
        (no_log, "machines/bare-1/console.log: it cannot be read: No such file"),
        (another_output, "outputs/bare-3.txt: it was changed"),
    ],
)
def test_every_change_is_detected(run: Path, harm: Callable[[Path], None], words: str) -> None:
    harm(run)
    found = verify_run(run)
    assert any(words in sentence for sentence in found.damage), found
    if harm not in (another_study, another_log, no_log, another_output):
        assert any(words in doubt for doubt in load_run(run).doubts)


@given(at=st.integers(0), change=st.integers(1, 255))
def test_no_byte_can_be_changed_unseen(
    tmp_path_factory: pytest.TempPathFactory, at: int, change: int
) -> None:
    run = tmp_path_factory.getbasetemp() / "bytes"
    if not run.exists():
        make_run(run)
        shutil.copytree(run, run.with_name("whole"))
    data = bytearray((run.with_name("whole") / "events.jsonl").read_bytes())
    data[at % len(data)] ^= change
    (run / "events.jsonl").write_bytes(data)
    assert verify_run(run).damage


@given(cut=st.integers(0))
def test_an_interrupted_run_is_whole_as_far_as_it_went(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """As a SIGKILL leaves it: cut anywhere behind what the seal names."""
    run = make_run(tmp_path_factory.mktemp("cut") / "run")
    kept = lines(run)
    ends = [n for n, line in enumerate(kept) if b'"cell_finished"' in line]
    at = ends[cut % len(ends)]
    digest = json.loads(kept[at])["chain"]
    seal_path(run / "events.jsonl").write_text(f"{at} {digest}".ljust(84) + "\n")
    behind = b"".join(kept[at + 1 :])
    (run / "events.jsonl").write_bytes(b"".join(kept[: at + 1]) + behind[: cut % (len(behind) + 1)])
    assert verify_run(run).damage == ()


def test_nothing_is_added_to_a_changed_stream(run: Path) -> None:
    changed_value(run)
    with pytest.raises(InputError, match="was changed"):
        EventLog(run / "events.jsonl")
    assert "changed" in read_fold(run / "events.jsonl").doubts[0]


def test_shortened_stream_is_resumed_only_with_consent(run: Path) -> None:
    shortened(run)
    with pytest.raises(InputError, match=r"shortened.*tare verify --repair "):
        EventLog(run / "events.jsonl")
    assert repair_stream(run / "events.jsonl").lost == 4
    EventLog(run / "events.jsonl").close()
    assert verify_run(run).damage == ()


@pytest.mark.parametrize("recorded", ["tiny", "tiny-neighbours"])
def test_older_run_is_reported_as_unchained(recorded: str, tmp_path: Path) -> None:
    with tarfile.open(RUNS / f"{recorded}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    done = tare("verify", tmp_path / recorded)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not chained" in done.stdout and "unchanged since the run wrote it" in done.stdout
    # A new process chains what it adds, and with it all that was there.
    with EventLog(tmp_path / recorded / "events.jsonl") as log:
        log.append(BlockFinished(block=9))
    found = verify_run(tmp_path / recorded)
    assert found.damage == () and "are not chained" in found.notes[0]
    stream = tmp_path / recorded / "events.jsonl"
    stream.write_bytes(stream.read_bytes().replace(b'"seed":', b'"seed":1', 1))
    assert verify_run(tmp_path / recorded).damage


def test_the_command_says_it_and_ends_so(run: Path) -> None:
    done = tare("verify", run)
    assert done.returncode == 0 and "unchanged since the run wrote it" in done.stdout
    flipped(run)
    done = tare("verify", run)
    assert done.returncode == 1 and "changed or damaged" in done.stdout
    done = tare("export", run)
    assert done.returncode == 0 and "changed or damaged" in done.stderr


@pytest.mark.parametrize("path", ["../../etc/hostname", "/etc/hostname", "series/\0", "link", "."])
def test_series_elsewhere_are_never_opened(path: str, run: Path) -> None:
    outside = run.parent / "outside.parquet"
    shutil.copy(first_series(run), outside)
    (run / "link").symlink_to(outside)
    entry = load_run(run).series[0]
    moved = type(entry)(**{**vars(entry), "path": run / path})
    with pytest.raises(UnreadableSeries):
        read_series(moved)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "machines/\0"])
def test_logs_elsewhere_are_never_opened(name: str, tmp_path: Path) -> None:
    assert "console.log" not in _file(make_run(tmp_path / "run"), name, "0" * 64)
    assert _file(tmp_path / "run", name, "0" * 64)


@pytest.mark.fuzz
@given(at=st.integers(0), change=st.binary(min_size=1, max_size=8), cut=st.booleans())
def test_damaged_parquet_is_always_reported(
    tmp_path_factory: pytest.TempPathFactory, at: int, change: bytes, cut: bool
) -> None:
    place = tmp_path_factory.getbasetemp() / "parquet"
    if not place.exists():
        make_run(place)
    entry = load_run_once(place)
    whole = first_series(place).with_suffix(".whole")
    if not whole.exists():
        whole.write_bytes(entry.path.read_bytes())
    data = whole.read_bytes()
    at %= len(data)
    harmed = data[:at] if cut else data[:at] + change + data[at + len(change) :]
    if harmed == data:
        return
    entry.path.write_bytes(harmed)
    with pytest.raises(UnreadableSeries):
        read_series(entry)


_ENTRIES: dict[Path, Any] = {}


def load_run_once(place: Path) -> Any:
    if place not in _ENTRIES:
        _ENTRIES[place] = load_run(place).series[0]
    return _ENTRIES[place]


@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324, 1e15, 0.0])
def test_values_beyond_all_bounds_end_in_no_traceback(value: float, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", value)
    data = load_run(run)
    build_report([data], compare_runs([data]), run, [], ())


def test_series_are_columns_of_the_kind_recorded(tmp_path: Path) -> None:
    """Check that a file that is not Parquet is reported although its hash is right."""
    run = make_run(tmp_path / "run")
    entry = load_run(run).series[0]
    junk = io.BytesIO()
    pl.DataFrame({"other": [1]}).write_parquet(junk)
    for data in (b"PAR1", junk.getvalue()):
        entry.path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        with pytest.raises(UnreadableSeries):
            read_series(type(entry)(**{**vars(entry), "sha256": digest}), list(entry.columns))


def test_hashes_of_series_in_a_log_are_kept(run: Path) -> None:
    saved = [e for line in lines(run) if (e := json.loads(line)["event"])["type"] == "series"]
    assert all(SeriesSaved.model_validate(each).sha256 for each in saved)
