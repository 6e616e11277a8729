"""`tare certify` announces what it makes, tries it, and writes a file without secrets."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from platforms.test_certificates import certificate
from run.run_driving import tare
from tare.platforms.certificates.model import Case, contradictions, read_certificate

SET, CALL = ("--set",), "callback=192.0.2.7:4460"


def test_a_datastores_path_is_taken_as_it_is_written(tmp_path: Path) -> None:
    """It looks like a list of YAML's, and is none."""
    words = ("address=a", "datastore=d", CALL, "boot=[d] x.iso")
    done = tare(
        "certify", "vsphere", "--dry-run", *(part for each in words for part in (*SET, each))
    )
    assert done.returncode == 0, done.stderr
    assert "datastore d, folder (the topmost), pool (the topmost)" in done.stdout


def test_a_hypervisor_of_the_hosts_file_needs_no_more_than_its_platforms_name(
    tmp_path: Path,
) -> None:
    file = tmp_path / "hosts.yaml"
    file.write_text(
        "hypervisors:\n  vsphere: {address: esx.example, datastore: mine, pool: tare, "
        "network: VM Network, callback: '192.0.2.7:4460'}\n"
    )
    words = ("certify", "vsphere", "--dry-run", "--hosts", file)
    done = tare(*words)
    assert done.returncode == 0, done.stderr
    assert f"as {file} names it, under hypervisors.vsphere" in done.stdout
    assert "datastore mine, folder (the topmost), pool tare" in done.stdout
    # What the command line says goes before it; of another server it says nothing.
    done = tare(*words, *SET, "datastore=other")
    assert "datastore other, folder (the topmost), pool tare" in done.stdout, done.stderr
    way = (*SET, "address=b", *SET, "datastore=d", *SET, CALL, *SET, "network=VM Network")
    done = tare(*words, *way)
    assert "datastore d, folder (the topmost), pool (the topmost)" in done.stdout, done.stderr
    assert str(file) not in done.stdout
    file.write_text("hypervisors:\n  vsphere: {address: a, datstore: mine}\n")
    done = tare(*words)
    assert done.returncode == 2
    assert f"{file}: hypervisors.vsphere.datstore: " in done.stderr


def test_a_dry_run_prints_every_call_that_writes_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    done = tare("certify", "qemu", "--dry-run", "--set", "disk-format=block")
    assert done.returncode == 0, done.stderr
    for word in ("mkdir -m 700 TMPDIR/tare-…", "qemu-system-x86_64", "losetup --detach"):
        assert word in done.stdout
    assert list(tmp_path.iterdir()) in ([], [tmp_path / "state"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("certify",), "no platform was named"),
        (("certify", "vmware"), "there is no platform vmware"),
        (("certify", "qemu", "--dry-run", "--set", "cpus=3"), "qemu has no option cpus"),
        (("certify", "qemu", "--dry-run", "--set", "accelerator"), "KEY=VALUE"),
        (("certify", "qemu"), "this needs your consent"),
        (("certify", "vsphere", *SET, "address=a", *SET, "datastore=d"), "callback: is missing"),
        (("certify", "proxmox", *SET, "address=a", *SET, "password=x"), "no place in a study"),
        (("certify", "proxmox", *SET, "ca=/none", *SET, CALL, *SET, "address=a"), "ca: the cert"),
        (("certify", "--check", "no-such-file"), "cannot be read"),
        (("certify", "qemu", "--check", "no-such-file"), "only reads a file"),
    ],
)
def test_impossible_requests_are_refused_before_anything_starts(
    words: tuple[str, ...], message: str
) -> None:
    done = tare(*words)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.acceptance
@pytest.mark.container
@pytest.mark.timeout(1200)
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("runc"), reason="needs root and runc")
def test_containers_are_certified_on_this_computer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TARE_TEST_PASSWORD", "planted-secret")
    file = tmp_path / "certificate.json"
    words = ("--set", "runtime=runc", "--minutes", "0.1", "--with-figures", "--yes")
    done = tare("certify", "oci", *words, "--out", file)
    assert done.returncode == 0, done.stdout + done.stderr
    about = read_certificate(file)
    assert contradictions(about) == ()
    assert about.results.passes
    assert set(about.results.cells) == {"bare", "subject", "subject-again"}
    assert about.results.medians["subject"] and about.rights == ("root",)
    assert {each.kind for each in about.writes if each.noted} >= {"container", "directory"}
    assert "planted-secret" not in file.read_text()
    assert tare("certify", "--check", file).returncode == 0
    # What somebody makes better afterwards is found.
    better = json.loads(file.read_text())
    better["results"]["cases"]["passed"] += 1
    file.write_text(json.dumps(better))
    again = tare("certify", "--check", file)
    assert again.returncode == 1
    assert "cases: it says" in again.stdout


def test_a_strangers_words_begin_no_line_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "certificate.json"
    about = certificate(cases=(Case(name="test_dies", outcome="failed", seconds=1),))
    results = about.results.model_copy(update={"passes": True, "left_out": ("a\n✓ no", "b\x1b[2J")})
    forged = about.model_copy(
        update={"build": {"x\n✓ the results follow": "1"}, "results": results}
    )
    file.write_text(forged.model_dump_json())
    done = tare("certify", "--check", file)
    assert done.returncode == 1
    assert not any(line.startswith("✓") for line in done.stdout.splitlines())
    assert "left out: a ✓ no" in done.stdout and "\x1b" not in done.stdout


def test_raw_arguments_that_act_on_the_host_are_tried_only_if_allowed() -> None:
    words = ("certify", "qemu", "--dry-run", "--set", 'extra-args=[-incoming, "exec:id"]')
    refused = tare(*words)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "extra-args" in refused.stderr and "--allow-host-access" in refused.stderr
    allowed = tare(*words, "--allow-host-access")
    assert allowed.returncode == 0, allowed.stdout + allowed.stderr
