"""The package as a user gets it: one file, installed where nothing else is, run elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from run.run_driving import of_type
from tare.run.catalog import build_catalog
from tare.study.reference.schema import study_schema

ROOT = Path(__file__).parents[2]
SHORT = ("run", "quick", "--blocks", "2", "--arm", "qemu-pv", "--workload", "numeric-sort")
MOST_BYTES = 420_000_000
"""The limit of an installation without extras."""

pytestmark = [pytest.mark.slow, pytest.mark.boots, pytest.mark.guest]


def test_one_file_installed_alone_runs_the_quick_study(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "wheel", tmp_path / "dist"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    built = Path(done.stdout.strip())
    machine = os.uname().machine
    tags = re.fullmatch(r"hypertare-[^-]+-py3-none-(.+)\.whl", built.name)
    assert tags is not None, built.name
    kinds = {tag.removesuffix(f"_{machine}") for tag in tags[1].split(".")}
    assert kinds == {"manylinux2014", "manylinux_2_17", "musllinux_1_1"}
    with zipfile.ZipFile(built) as package:
        metadata = package.read(
            next(n for n in package.namelist() if n.endswith("/WHEEL"))
        ).decode()
    assert {line[5:] for line in metadata.splitlines() if line.startswith("Tag: ")} == {
        f"py3-none-{kind}_{machine}" for kind in kinds
    }

    home = tmp_path / "elsewhere"
    home.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "env"], check=True)
    python = str(home / "env" / "bin" / "python")
    pip = f"{sys.executable} -m pip --python {python} --disable-pip-version-check install --quiet"
    lock = ROOT / "locks" / "runtime.txt"
    for what in (f"--require-hashes --only-binary :all: -r {lock}", f"--no-deps {built}"):
        subprocess.run([*pip.split(), "--no-compile", *what.split()], check=True)

    def tare(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [home / "env" / "bin" / "tare", *words],
            capture_output=True, text=True, cwd=home, check=False,
            env={"PATH": os.defpath + ":/usr/sbin:/sbin", "HOME": str(Path.home()), "LANG": "C",
                 "XDG_STATE_HOME": str(home / "state")},
        )  # fmt: skip

    size = sum(path.lstat().st_blocks * 512 for path in (home / "env").rglob("*"))
    assert size < MOST_BYTES
    schema = json.loads(tare("study", "schema").stdout)
    assert schema["$schema"] and "blocks" in schema["properties"]
    shipped = home / "env" / "share" / "tare" / "study.schema.json"
    assert json.loads(shipped.read_text()) == schema
    assert json.loads(shipped.read_text()) == study_schema(build_catalog())

    listed = dict(line.split("\t") for line in tare("studies").stdout.splitlines())
    assert set(listed) == {path.stem for path in (ROOT / "studies").glob("*.yaml")}
    done = tare(*SHORT, "--out", "first")
    assert done.returncode == 0, done.stdout + done.stderr
    ends = [event["status"] for event in of_type(home / "first", "cell_finished")]
    # Two blocks of the bare machine and of QEMU.
    assert ends == ["ok"] * 4 and (home / "first" / "report.html").is_file()
    # A study finds the files next to it, too.
    assert "orders" in tare("plan", "my-program").stdout
