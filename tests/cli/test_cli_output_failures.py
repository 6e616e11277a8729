"""Failures of the output do not end a run, and limits of the shell are named."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

TARE = Path(sys.executable).parent / "tare"
STUDY = """\
study: printed
title: "Grüße – 5 µs ✓"
baseline: bare
blocks: {least: 2, most: 2}
arms:
  bare: {platform: bare}
workloads:
  numeric-sort: {duration: 100ms}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    file = tmp_path / "printed.yaml"
    file.write_text(STUDY, encoding="utf-8")
    return file


def run(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", script, "sh", TARE], cwd=folder, capture_output=True, check=False,
        timeout=300, env={**os.environ, **env},
    )  # fmt: skip


@pytest.mark.parametrize(
    "streams",
    [">&-", ">&- 2>&-", "<&- >&- 2>&-", "> /dev/full", "> /dev/full 2>&1", "| head -n 1", "| true"],
)
def test_a_run_completes_when_its_output_cannot_be_written(study: Path, streams: str) -> None:
    done = run(f'"$1" run printed.yaml --out run {streams}', study.parent)
    assert b"Traceback" not in done.stderr + done.stdout, done
    assert done.returncode == 0, done
    assert b'"status":"complete"' in (study.parent / "run" / "events.jsonl").read_bytes()
    assert (study.parent / "run" / "report.html").is_file()
    if streams == "> /dev/full":
        assert done.stderr.count(b"the output cannot be written") == 1
        assert str(study.parent / "run").encode() not in done.stderr


def test_a_lost_terminal_ends_no_command(study: Path) -> None:
    ours, its = pty.openpty()
    with subprocess.Popen(
        [TARE, "run", "printed.yaml", "--out", "run"], cwd=study.parent, stdout=its,
        stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(its)
        os.read(ours, 1)
        # Its every write is EIO from here on.
        os.close(ours)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0 and b"Traceback" not in errors, errors


LOCALES = (
    {"PYTHONIOENCODING": "iso-8859-1"},
    {"PYTHONIOENCODING": "ascii:strict"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
)


@pytest.mark.parametrize("locale", LOCALES, ids=str)
def test_a_locale_that_lacks_characters_has_them_replaced(
    study: Path, locale: dict[str, str]
) -> None:
    done = run('"$1" run printed.yaml --out run && "$1" verify run', study.parent, **locale)
    assert done.returncode == 0, done
    assert (
        b"+ bare: the agent runs here" in done.stdout
        and b"+ unchanged since the run wrote it" in done.stdout
    )
    planned = run('"$1" plan printed.yaml', study.parent, **locale)
    assert planned.returncode == 0 and b"Gr" in planned.stdout, planned


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("-n 12", b"12 files open at once (ulimit -n)"),
        ("-v 600000", b"585 MiB of memory (ulimit -v)"),
        ("-v 300000", b"292 MiB of memory (ulimit -v)"),
    ],
)
def test_a_limit_that_is_too_low_is_named_before_anything(
    study: Path, limit: str, words: bytes
) -> None:
    done = run(f'ulimit {limit}; "$1" run printed.yaml --out run', study.parent)
    assert (done.returncode, done.stdout) == (2, b""), done
    assert words in done.stderr and b"raise the limit: ulimit" in done.stderr
    assert not (study.parent / "run").exists()


def test_a_soft_limit_of_files_is_raised(study: Path) -> None:
    done = run('ulimit -S -n 12; "$1" plan printed.yaml', study.parent)
    assert done.returncode == 0, done
