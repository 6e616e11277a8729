"""What is written for a user is whole or not there, and a place that cannot be written says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from run.run_driving import TARE, tare
from tare.errors import InputError
from tare.outputs import put, put_for_user

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
