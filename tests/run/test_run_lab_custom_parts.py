"""A lab of the user's own Xen, Linux and QEMU, and guests of a Linux from a file, for real."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from pathlib import Path

import pytest

from run.run_driving import assert_no_ledger_is_left, events, tare
from tare.hosts import LocalHost
from tare.images.archives import archive_of
from tare.images.cache import default_cache
from tare.images.packages import download, kernel_packages
from tare.lab.image import build_lab_image

pytestmark = [
    pytest.mark.slow,
    pytest.mark.guest,
    pytest.mark.acceptance,
    pytest.mark.timeout(2400),
]

STUDY = """
study: owned
host: lab
lab: {{memory: 3GiB, xen: {xen}, kernel: {kernel}, qemu: {qemu}}}
baseline: bare
blocks: {{least: 2, most: 2}}
shape: {{vcpus: 1, memory: 192MiB}}
kernel: {kernel}
arms:
  bare: {{platform: bare}}
  kvm: {{platform: qemu, accelerator: kvm}}
  xen-pv: {{platform: xen, type: pv, scheduler: credit}}
scenarios: {{pinned: {{subject: {{cpus: pinned}}}}}}
workloads: {{numeric-sort: {{duration: 200ms}}}}
"""


async def test_study_boots_the_named_files_and_records_their_digests(
    agent_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, cache = LocalHost(agent_program), default_cache()
    xen, linux, qemu, ran = (tmp_path / name for name in ("xen.gz", "linux", "qemu", "ran"))
    image = await build_lab_image(host, "generic", cache)
    xen.write_bytes(gzip.compress((image.folder / "xen").read_bytes()))
    archive = await archive_of(host, None, cache)
    for package in await kernel_packages(host, "generic", archive):
        deb = await download(host, package, tmp_path, archive)
        done = await host.run(["dpkg-deb", "-x", str(deb), str(linux)], timeout_s=300)
        assert done.ok, done.words()
    (kernel,) = (linux / "boot").glob("vmlinuz-*")
    # It records that it ran; the other files that QEMU needs stay where they are.
    usual = shutil.which("qemu-system-x86_64")
    qemu.write_text(f'#!/bin/sh\necho "$@" >> {ran}\nexec {usual} "$@"\n')
    qemu.chmod(0o755)

    study, folder = tmp_path / "owned.yaml", tmp_path / "run"
    study.write_text(STUDY.format(xen=xen, kernel=kernel, qemu=qemu))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # Images built from these files are not needed later.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    outcome = tare("run", study, "--allow-host-access", "--out", folder, limit_s=2300)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    recorded = events(folder)
    assert not [e["reason"] for e in recorded if e["type"] == "skipped"]
    cells = {e["cell"]: e for e in recorded if e["type"] == "cell_finished"}.values()
    assert [cell["reason"] for cell in cells if cell["status"] != "ok"] == []
    assert len(cells) == 2 * 3

    facts = next(e for e in recorded if e["type"] == "run_started")["host"]["lab"]
    for what, file in (("xen", xen), ("kernel", kernel), ("qemu", qemu)):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert (facts[what]["file"], facts[what]["sha256"]) == (str(file), digest)
        assert digest in (folder / "report.html").read_text()
    # The bare machine, the lab of KVM and that of Xen, in each block.
    booted = [line for line in ran.read_text().splitlines() if "-kernel" in line]
    assert len(booted) >= 2 * 3
    own = tmp_path / "cache" / "tare"
    assert any(f"{own}/xens/{facts['xen']['sha256']}" in line for line in booted)
    assert any(f"-kernel {own}/labs/" in line for line in booted)
    version = kernel.name.partition("-")[2]
    for event in recorded:
        if event["type"] == "machine_ready":
            assert event["proof"]["kernel"]["release"] == version
    assert_no_ledger_is_left(tmp_path)
