"""If a host cannot boot for an arm, that arm is skipped and the run continues."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from run.run_driving import TARE, of_type
from run.run_hostile import Twisted, honest, run_with
from tare.errors import InputError, NotAvailable
from tare.images.packages import kernel_packages
from tare.platforms.bare import BareOptions
from tare.platforms.contract import Context, Prepared, Shape
from tare.platforms.oci.options import OciOptions

from images.images_fakes import FakeHost  # isort: skip
from tare.hosts import Completed  # isort: skip


class Unbootable(Twisted):
    """A platform that works, and has nothing to boot."""

    def __init__(self, name: str, options: type[Any], error: InputError) -> None:
        super().__init__(name, options, honest)
        self._error = error

    async def prepare(
        self, context: Context, options: Any, shape: Shape, realtime: bool
    ) -> Prepared:
        raise self._error


BARE, OCI = ("bare", BareOptions), ("oci", OciOptions)
NO_PACKAGE = NotAvailable("the kernel's package could not be downloaded", "check the network")


async def test_an_arm_without_a_kernel_is_left_out_with_the_reason(
    tmp_path: Path, agent_program: Path
) -> None:
    folder = tmp_path / "run"
    fold = await run_with(
        Twisted(*BARE, honest), Unbootable(*OCI, NO_PACKAGE), folder, agent_program
    )
    found = fold.platforms["bad"]
    assert not found.usable
    assert (found.reason, found.hint) == (NO_PACKAGE.message, NO_PACKAGE.hint)
    assert fold.platforms["good"].usable
    cells = of_type(folder, "cell_finished")
    assert cells and {cell["cell"].split("/")[1] for cell in cells} == {"good"}


async def test_a_baseline_without_a_kernel_ends_the_run(
    tmp_path: Path, agent_program: Path
) -> None:
    with pytest.raises(InputError, match="arm good: the kernel's package"):
        await run_with(
            Unbootable(*BARE, NO_PACKAGE), Twisted(*OCI, honest), tmp_path / "run", agent_program
        )


async def test_a_study_that_asks_for_the_impossible_is_refused(
    tmp_path: Path, agent_program: Path
) -> None:
    wrong = InputError("the kernel 6.1 has no module tulip", "choose another card")
    with pytest.raises(InputError, match=r"arm bad: the kernel 6\.1 has no module tulip"):
        await run_with(
            Twisted(*BARE, honest), Unbootable(*OCI, wrong), tmp_path / "run", agent_program
        )


@pytest.mark.parametrize(("kernel", "kind"), [("rt", NotAvailable), ("linux-image-9", InputError)])
async def test_a_kernel_that_apt_lacks_is_not_available_and_a_wrong_name_is_wrong(
    kernel: str, kind: type[InputError]
) -> None:
    def answer(argv: Any) -> Completed:
        return Completed(0, b"amd64\n" if argv[0] == "dpkg" else b"1000\n", b"")

    host = FakeHost(answer, {"/etc/os-release": b"ID=debian\nPRETTY_NAME=Debian\n"})
    with pytest.raises(InputError, match="has no package") as refused:
        await kernel_packages(host, kernel)
    assert type(refused.value) is kind


@pytest.mark.skipif(os.geteuid() != 0, reason="programs are hidden by mounts, which root makes")
@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="no QEMU is installed")
def test_an_arm_whose_named_kernel_cannot_be_had_ends_the_run_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    (tmp_path / "study.yaml").write_text(
        "study: named\nbaseline: bare\nkernel: rt\nblocks: {least: 1, most: 1}\n"
        "arms: {bare: {platform: bare}, vm: {platform: qemu, accelerator: tcg}}\n"
        "workloads: {numeric-sort: {duration: 100ms}}\n"
    )
    found = [shutil.which(name) for name in ("dpkg", "apt-get", "apt-cache")]
    hide = 'for file in $1; do mount --bind /dev/null "$file"; done; shift; exec "$@"'
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c", hide, "sh", " ".join(filter(None, found))),
            *(str(TARE), "run", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "run")),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    output = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stdout + done.stderr
    assert "vm is missing although the host can run it: " in output and "has no apt" in output


@pytest.mark.skipif(os.geteuid() != 0, reason="programs are hidden by mounts, which root makes")
@pytest.mark.slow
@pytest.mark.boots
def test_quick_runs_bare_alone_where_there_is_nothing_else(tmp_path: Path) -> None:
    hidden = [shutil.which(name) for name in ("qemu-system-x86_64", "kvm", "runc", "crun")]
    files = [str(Path(file).resolve()) for file in hidden if file is not None]
    nothing = tmp_path / "nothing"
    nothing.touch(mode=0o644)
    hide = 'for file in $2; do mount --bind "$1" "$file"; done; shift 2; exec "$@"'
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c", hide, "sh", str(nothing), " ".join(files)),
            *(str(TARE), "run", "quick", "--blocks", "2", "--workload", "switch"),
            *("--out", str(tmp_path / "run")),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "qemu-pv, qemu-em, kvm skipped: qemu-system-x86_64 is not installed" in done.stdout
    assert "oci skipped: crun is not installed; runc is not installed" in done.stdout
    assert "nothing is compared: every arm but the baseline is skipped" in done.stdout
    assert (tmp_path / "run/report.html").is_file()
