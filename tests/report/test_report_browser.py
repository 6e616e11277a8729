"""The page in a real browser: its one script runs under its own policy, nothing goes out."""

import asyncio
import shutil
from pathlib import Path

import pytest

from report.report_synthetic import comparison_of, write_run
from tare.report import build_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (apt-get install chromium)"),
]


async def browse(path: Path, profile: Path, *options: str) -> tuple[str, str]:
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", f"--user-data-dir={profile}",
        "--enable-logging=stderr", *options, path.as_uri(),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), 120)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return out.decode(), err.decode()


async def test_chromium_runs_the_page_and_blocks_nothing_of_it(tmp_path: Path) -> None:
    write_run(tmp_path / "run", blocks=2)
    comparison = comparison_of(tmp_path / "run")
    path = build_report(comparison.runs, comparison, tmp_path / "run")
    shot = tmp_path / "page.png"
    html, log = await browse(path, tmp_path / "profile", "--dump-dom")
    assert 'id="theme"' in html
    button = html[html.index('id="theme"') :].split(">")[0]
    assert "hidden" not in button, "the script did not run under the page's policy"
    assert "Content Security Policy" not in log
    await browse(path, tmp_path / "profile2", "--window-size=390,844", f"--screenshot={shot}")
    assert shot.read_bytes().startswith(b"\x89PNG")
