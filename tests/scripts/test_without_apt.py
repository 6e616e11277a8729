"""On a computer without apt, dpkg, systemd and network the wheels and a bundle are enough."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from run.run_driving import of_type, tare
from scripts.images_wheel import make_wheel, tare_version
from scripts.no_apt_tree import NoAptTree
from tare.images.cache import default_cache

ROOT = Path(__file__).parents[2]
QUICK = ("quick", "--arm", "bare,qemu-pv,qemu-em", "--blocks", "2")
SHORT = ("--set", "workloads.tick.samples=2000", "--workload", "tick,numeric-sort")
APPLICATION = """
study: openssl
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 256MiB}
arms:
  bare: {platform: bare}
  qemu: {platform: qemu, accelerator: tcg}
workloads:
  openssl-aes: {duration: 1s}
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.boots,
    pytest.mark.guest,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed"),
    pytest.mark.skipif(not shutil.which("apt-get"), reason="there is no apt to make a bundle by"),
]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bundle") / "tare.bundle"
    done = tare("image", "export", file, "--kernel", "rt", "--kernel", "generic", limit_s=1800)
    assert done.returncode == 0, done.stderr
    return file


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = subprocess.run(
        [ROOT / "scripts" / "wheel", tmp_path_factory.mktemp("dist")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


@pytest.fixture
def tree(tmp_path: Path, wheel: Path) -> Iterator[NoAptTree]:
    made = NoAptTree(tmp_path / "fedora")
    made.install(wheel)
    yield made
    shutil.rmtree(made.folder, ignore_errors=True)


def general_kernel() -> tuple[Path, str]:
    """Return the folder of Debian's general kernel in the cache, and its version."""
    folder = default_cache() / "kernels"
    kept = folder / json.loads((folder / "generic.json").read_bytes())["key"]
    return kept, json.loads((kept / "manifest.json").read_bytes())["facts"]["version"]


def booted(folder: Path) -> set[str]:
    return {event["kernel"] for event in of_type(folder, "image_ready") if event["arm"] != "bare"}


def test_the_hosts_kernel_and_an_imported_bundle_run_the_quick_study(
    tree: NoAptTree, bundle: Path
) -> None:
    kept, version = general_kernel()
    tree.add_kernel(kept, version)
    assert tree.run("sh", "-c", "command -v apt-get dpkg systemctl").stdout == ""
    # The host's kernel alone: no packages, no bundle, no network.
    done = tree.tare("run", *QUICK, *SHORT, "--out", "own")
    assert done.returncode == 0, done.stdout + done.stderr
    own = tree.home / "own"
    assert {event["status"] for event in of_type(own, "cell_finished")} == {"ok"}
    assert booted(own) == {version}
    (notes,) = {tuple(event["notes"]) for event in of_type(own, "planned")}
    (note,) = (note for note in notes if note.startswith("guests boot the host's own kernel"))
    assert f"Linux {version}, which was tried" in note
    assert "no real-time kernel: Fedora Linux 99 (simulated) has no apt" in note
    # The bare machine says what really runs here, which no tree changes.
    assert f"ran Linux {version}, and bare Linux {os.uname().release}" in done.stdout

    # Named, it is the same; what packages would bring is refused with what to do.
    named = tree.tare("plan", *QUICK, *SHORT, "--set", "kernel=host", "--probe")
    assert named.returncode == 0, named.stderr
    refused = tree.tare("run", *QUICK, *SHORT, "--set", "kernel=rt", "--out", "refused")
    assert "skipped: Fedora Linux 99 (simulated) has no apt" in refused.stdout
    hints = [event["hint"] for event in of_type(tree.home / "refused", "platform_checked")]
    assert [hint for hint in hints if "tare image import FILE" in hint]
    assert not booted(tree.home / "refused")

    # A bundle brings the real-time kernel and the toolbox.
    shutil.copyfile(bundle, tree.home / "tare.bundle")
    done = tree.tare("image", "import", "tare.bundle")
    assert done.returncode == 0, done.stderr
    assert "kernel rt: Linux " in done.stdout and "toolbox base: " in done.stdout
    done = tree.tare("run", *QUICK, *SHORT, "--out", "imported")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {event["status"] for event in of_type(tree.home / "imported", "cell_finished")} == {"ok"}
    assert all("-rt" in kernel for kernel in booted(tree.home / "imported"))
    (tree.home / "openssl.yaml").write_text(APPLICATION)
    done = tree.tare("run", "openssl.yaml", "--out", "application")
    assert done.returncode == 0, done.stdout + done.stderr
    ends = [event["status"] for event in of_type(tree.home / "application", "cell_finished")]
    assert ends == ["ok"] * 4
    assert booted(tree.home / "application") == {version}


def test_two_wheels_are_enough_without_any_kernel_of_the_host(
    tree: NoAptTree, bundle: Path, tmp_path: Path
) -> None:
    without = tree.tare("plan", *QUICK, *SHORT, "--probe")
    output = " ".join((without.stdout + without.stderr).split())
    assert "no kernel is available for its machines" in output
    assert "there is no image of it in /boot" in output and "pip install hypertare-images" in output

    made = make_wheel(bundle, tmp_path, tare_version(), "any")
    tree.install(made)
    done = tree.tare("run", *QUICK, *SHORT, "--out", "both")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "importing the bundle of the package hypertare-images" in done.stdout + done.stderr
    assert {event["status"] for event in of_type(tree.home / "both", "cell_finished")} == {"ok"}
    with zipfile.ZipFile(made) as package:
        assert package.testzip() is None


def test_the_wheel_of_a_bundle_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    bundle = tmp_path / "x"
    bundle.write_bytes(b"bundle" * 1000)
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files.append(make_wheel(bundle, tmp_path / name, "1.2.3", "manylinux2014_x86_64"))
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].name == "hypertare_images-1.2.3-py3-none-manylinux2014_x86_64.whl"
