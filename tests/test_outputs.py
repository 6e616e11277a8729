"""What is written for a user is whole or not there, and a place that cannot be written says so."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run.run_driving import TARE, Running, tare
from tare.errors import InputError
from tare.outputs import existing, put, put_for_user, remedy, unusable

RECORDED = Path(__file__).parent / "fixtures" / "runs" / "tiny.tar.gz"
STUDY = Path(__file__).parent.parent / "studies" / "quick.yaml"
OLD = "what was there before"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("outputs")
    with tarfile.open(RECORDED) as archive:
        archive.extractall(place, filter="data")
    return Path(place / "tiny")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB, all of its own."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, with room enough for a run."""
    if os.geteuid() != 0:
        pytest.skip("mounting a disk needs root")
    place = tmp_path / "room"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def assert_one_clear_error(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stderr.startswith("tare: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text(OLD)
    put(path, "new")
    assert path.read_text() == "new"
    assert left_in(tmp_path) == ["out"]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(OLD)
    (tmp_path / "link").symlink_to("real")
    put(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_device_is_written_to_and_not_replaced() -> None:
    put(Path("/dev/null"), "gone")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(OSError, match="No space left"):
        put(Path("/dev/full"), "too much")


def test_a_full_disk_leaves_what_was_there(small_disk: Path) -> None:
    path = small_disk / "out"
    put(path, OLD)
    with pytest.raises(InputError, match=r"cannot write .*/out: No space left on device"):
        put_for_user(path, b"x" * 200_000, "make room")
    assert path.read_text() == OLD
    assert left_in(small_disk) == ["out"]


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("/none/x.csv", "No such file"),
        ("/proc/x.csv", "No such file"),
        ("/proc/version/x.csv", "Not a directory"),
        ("/dev/full", "No space left"),
        ("/tmp", "Is a directory"),
    ],
)
def test_an_export_that_cannot_be_written_is_one_clear_error(run: Path, out: str, why: str) -> None:
    assert_one_clear_error(tare("export", run, "--out", out), out, why, "--out")


def test_an_export_onto_a_full_standard_output_is_one_clear_error(run: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" export "{run}" > /dev/full', str(TARE)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert_one_clear_error(done, "No space left")


def test_an_export_onto_a_full_disk_leaves_nothing_half_done(run: Path, small_disk: Path) -> None:
    (small_disk / "filling").write_bytes(b"x" * 60_000)
    done = tare("export", run, "--out", small_disk / "x.csv")
    assert_one_clear_error(done, "x.csv", "No space left")
    assert left_in(small_disk) == ["filling"]


def test_a_report_that_cannot_be_written_is_one_clear_error(run: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run, copied)
    (copied / "figures").write_text("in the way")
    assert_one_clear_error(tare("report", copied), "figures")
    (copied / "figures").unlink()
    (copied / "tables" / "effects.csv").mkdir(parents=True)
    assert_one_clear_error(tare("report", copied), "effects.csv", "Is a directory")
    assert not (copied / "report.html").exists()


def test_a_report_onto_a_full_disk_is_one_clear_error(run: Path, small_disk: Path) -> None:
    for name in ("events.jsonl", "study.yaml"):
        (small_disk / name).symlink_to(run / name)
    assert_one_clear_error(tare("report", small_disk), "No space left", "tare report")
    assert not (small_disk / "report.html").exists()
    assert not list(small_disk.rglob("*.part"))


@pytest.mark.parametrize("out", ["/proc/run", "/proc/version/run"])
def test_a_run_that_cannot_be_written_is_one_clear_error(out: str) -> None:
    assert_one_clear_error(tare("run", STUDY, "--out", out), "--out")


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("XDG_CACHE_HOME", ("image", "build")),
        ("XDG_STATE_HOME", ("clean",)),
        ("XDG_STATE_HOME", ("plan", STUDY, "--probe")),
    ],
)
def test_a_place_of_tares_own_that_cannot_be_written_is_one_clear_error(
    variable: str, words: tuple[str | Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "/proc/none")
    assert_one_clear_error(tare(*words), "/proc/none", variable)


@given(
    st.sampled_from(sorted(errno.errorcode)), st.text(max_size=20).filter(lambda t: "\0" not in t)
)
def test_each_refusal_has_a_remedy_and_none_names_an_option(number: int, name: str) -> None:
    path = Path("/proc") / "none" / name
    assert existing(path).exists()
    error = OSError(number, os.strerror(number), str(path))
    advice = remedy(error, path)
    assert advice
    assert "--" not in advice.replace(str(existing(path)), "")
    assert "XDG_STATE_HOME" in unusable(error).hint
    assert "XDG" not in unusable(OSError(number, os.strerror(number))).hint


def _interrupted(place: Path) -> Path:
    """Return the folder of a run that was stopped after its first cell."""
    study, folder = place.parent / "s.yaml", place / "run"
    study.write_text(
        "study: s\nbaseline: bare\nblocks: {least: 2, most: 2}\n"
        "arms: {bare: {platform: bare}}\nworkloads: {tick: {samples: 2000, repeats: 30}}\n"
    )
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(lambda event: event["type"] == "cell_finished")
        running.process.send_signal(signal.SIGINT)
        assert running.end()[0] == 130
    return folder


def _full(place: Path) -> None:
    with (place / "filling").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * (1 << 20)) == 1 << 20:
                pass
        except OSError:
            return


def _read_only(place: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)


def _marked(place: Path) -> None:
    for name in ("events.jsonl", ""):
        subprocess.run(["chattr", "+i", place / "run" / name], check=True)


FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "full": (_full, "make room on its disk"),
    "read-only": (_read_only, "mount it for writing"),
    "marked": (_marked, "chattr -i"),
}


@pytest.mark.slow
@pytest.mark.boots
@pytest.mark.parametrize("fault", FAULTS)
def test_every_command_says_of_each_fault_of_a_disk_what_lifts_it(
    fault: str, room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = _interrupted(room)
    break_it, advice = FAULTS[fault]
    break_it(room)
    if fault == "marked" and os.access(folder / "events.jsonl", os.W_OK):
        try:
            (folder / "events.jsonl").open("ab").close()
            pytest.skip("files cannot be marked here")
        except PermissionError:
            pass
    writing: list[tuple[str | Path, ...]] = [("resume", folder), ("report", folder)]
    if fault != "marked":
        writing += [
            ("export", folder, "--out", room / "x.csv"),
            ("run", tmp_path / "s.yaml", "--out", room / "new"),
        ]
    for words in writing:
        done = tare(*words)
        output = done.stdout + done.stderr
        assert done.returncode in (1, 2), (words, output)
        assert "Traceback" not in output
        if not (fault == "full" and words[0] == "run"):
            assert advice in done.stderr, (words, output)
        assert ("--out" in done.stderr) == (words[0] in ("export", "run")), words
    assert tare("verify", folder).returncode == 0
    if fault == "marked":
        subprocess.run(["chattr", "-i", folder], check=True)


def test_a_run_whose_folder_is_removed_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "s.yaml", tmp_path / "run"
    study.write_text(
        "study: s\nbaseline: bare\nblocks: {least: 2, most: 2}\n"
        "arms: {bare: {platform: bare}}\nworkloads: {tick: {samples: 2000, repeats: 50}}\n"
    )
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(lambda event: event["type"] == "cell_finished")
        shutil.rmtree(folder)
        status, output = running.end()
    assert status == 1, output
    assert "Traceback" not in output
    assert "was removed while the run wrote into it" in output
    assert not folder.exists()


def test_the_remedy_for_a_missing_path_names_the_folder_to_make(tmp_path: Path) -> None:
    error = OSError(errno.ENOENT, "No such file or directory")
    advice = remedy(error, tmp_path / "none" / "deep" / "x.csv")
    assert f"of its folders {tmp_path} is the last that is there" in advice
    assert "mkdir -p" in advice
    assert remedy(error, Path("/proc/x")) == "nothing can be made in /proc"
