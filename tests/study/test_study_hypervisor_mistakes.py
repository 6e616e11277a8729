"""Common mistakes about the user's own hypervisors: each gets one sentence with its correction."""

from __future__ import annotations

from pathlib import Path

import pytest

from run.run_driving import tare
from tare.errors import InputError
from tare.run.catalog import build_catalog
from tare.run.lifecycle.cell_counts import nothing_compared
from tare.study.reading.load import load_study

PLANTED = "correct-horse-battery"
ESXI = "platform: vsphere, address: esxi.example, datastore: ds1, callback: '192.0.2.7:4460'"
PVE = (
    "platform: proxmox, address: pve.example, callback: '192.0.2.7:4460', image: 'local:iso/x.iso'"
)
NODE = PVE.replace("address: pve.example, ", "")


def study_of(folder: Path, arm: str) -> Path:
    file = folder / "s.yaml"
    arms = f"arms:\n  bare: {{platform: bare}}\n  v: {{{arm}}}\n"
    file.write_text(f"study: s\nbaseline: bare\n{arms}workloads: {{tick: {{samples: 10}}}}\n")
    return file


@pytest.mark.parametrize(
    ("arm", "says"),
    [
        (
            f"{NODE}, address: 'https://pve.example:8006/'",
            "v.address: must be only a name or an addr",
        ),
        (f"{NODE}, address: 'https://root:{PLANTED}@pve.example/'", "such as `pve.example`, not"),
        (f"{NODE}, address: 'pve.example:8006'", "write `pve.example`, and `port: 8006`"),
        (f"{NODE}, address: 'root@pam@pve.example'", "write `pve.example`; the user comes from"),
        (f"{NODE}, address: 'root:{PLANTED}@pve.example'", "write `pve.example`; the user"),
        (f"{NODE}, address: 'pve example'", "v.address: must be only a name or an address"),
        (NODE, "arms.v.address: is missing; add it"),
        (f"{PVE}, password: {PLANTED}", "v.password: unknown key: it has no place in a study"),
        (f"{PVE}, verify-ssl: false", "v.verify-ssl: unknown key: certificates are always verif"),
        (f"{PVE}, template: debian", "v.template: unknown key: VMs are created from scratch: name"),
        (f"{PVE}, memory: 4GiB", "v.memory: unknown key: write it within `shape: {…}`"),
        (f"{PVE}, server: x", "v.server: unknown key: write `address`"),
        (f"{PVE}, credentials: nowhere", "v.credentials: the credentials file nowhere cannot be"),
        (f"{PVE}, ca: nowhere.pem", "v.ca: the certificates of nowhere.pem cannot be used: No"),
        (f"{PVE}, node: 'my node'", "v.node: must be a name (letters, digits, `-`, `_`, `.`; a"),
        (
            PVE.replace("local:iso/x.iso", "/var/lib/vz/x.iso"),
            "v.image: must be `STORAGE:VOLUME`, as Proxmox names it, such as `local:iso/tare-live",
        ),
        (
            "platform: proxmox, address: pve.example, callback: '192.0.2.7:1'",
            "v.image: is missing; add what VMs boot, such as `image: 'local:iso/tare-live.iso'`",
        ),
        (
            "platform: hyperv, address: h, callback: '192.0.2.7:1'",
            r"v.image: is missing; add what VMs boot, such as `image: 'D:\tare\tare-live.iso'`",
        ),
        (PVE.replace("callback: '192.0.2.7:4460', ", ""), "v.callback: is missing; add an address"),
        (PVE.replace("192.0.2.7:4460", "127.0.0.1:0"), "guests of pve.example reach themselves by"),
        (PVE.replace("192.0.2.7:4460", "0.0.0.0:1"), "pve.example reach themselves by 0.0.0.0"),
        (f"{ESXI}, image: x.iso", "v.image: unknown key: write `boot`, as `[DATASTORE] PATH`"),
        ("platform: esxi", 'v.platform: there is no platform "esxi"; write {platform: vsphere}'),
        ("platform: XCP-ng", 'there is no platform "XCP-ng"; write {platform: xenserver}'),
        ("platform: kvm", 'there is no platform "kvm"; write {platform: qemu, accelerator: kvm}'),
        ("platform: docker", 'there is no platform "docker"; write {platform: oci}'),
        ("platform: crosvm", 'there is no platform "crosvm"; known: bare'),
        ("platform: ssh, ssh: me@vm.example", "v.ssh: must be only a name or an address: write"),
        (f"platform: ssh, ssh: 'me:{PLANTED}@vm'", "write `vm`, and the user under `user`"),
        ("platform: ssh, ssh: 'vm.example:2222'", "write `vm.example`, and `port: 2222`"),
        ("platform: ssh, host: vm.example", "v.host: unknown key: write `ssh`"),
        ("platform: ssh, ssh: vm, key: nowhere", "v.key: there is no key file nowhere"),
        ("platform: ssh, ssh: vm, password-file: nowhere", "v.password-file: "),
        ("platform: ssh, ssh: vm, password-env: TARE_NONE", "v.password-env: "),
        ("platform: bare-live, medium: nowhere.img", "v.medium: nowhere.img cannot be read"),
        ("platform: libvirt, uri: 'qemu+ssh://kvm1/system'", "such as `qemu:///system`, not"),
    ],
)
def test_mistake_is_reported_with_its_place_and_a_remedy(
    arm: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        load_study(study_of(tmp_path, arm), build_catalog())
    assert says in caught.value.message
    assert f"{tmp_path}/s.yaml:5:" in caught.value.message
    assert "\n" not in caught.value.message.rstrip() or "is missing" in caught.value.message
    assert PLANTED not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        (f"user=me\npassword={PLANTED}\n", 0o644, "others may read the credentials file"),
        (f"me:{PLANTED}\n", 0o600, "line 1: expected `user=…` or `password=…`"),
        ("user=me\n", 0o600, "a line `password=…` is missing"),
    ],
)
def test_a_file_of_credentials_is_looked_at_before_anything_starts(
    content: str, mode: int, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "who"
    file.write_text(content)
    file.chmod(mode)
    study = study_of(tmp_path, f"{PVE}, credentials: {file}")
    done = tare("plan", study)
    assert done.returncode == 2
    assert f"{study}:5:" in done.stderr and "arms.v.credentials: " in done.stderr
    assert says in done.stderr.replace("\n", " ")
    assert PLANTED not in done.stdout + done.stderr


def test_a_study_of_which_only_the_baseline_is_left_says_so(tmp_path: Path) -> None:
    file = study_of(tmp_path, f"{PVE}, yours: true")
    file.write_text(file.read_text().replace("workloads", "  b: {twin-of: bare}\nworkloads"))
    expected = "! nothing is compared: every arm but the baseline is skipped"
    assert expected in tare("plan", file).stdout.replace("\n", " ")
    file.write_text(file.read_text().replace("  b: {twin-of: bare}", "  b: {platform: qemu}"))
    assert expected not in tare("plan", file).stdout.replace("\n", " ")


def test_a_study_of_which_only_work_is_left_out_says_no_such_thing(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "study: twins\nbaseline: bare\nblocks: {least: 2, most: 2, turns: true}\n"
        "arms: {bare: {platform: bare}, again: {twin-of: bare}}\n"
        "scenarios: {one: {subject: {cpus: pinned}}}\n"
        "workloads: {numeric-sort: {duration: 1s}, proxy: {size: 0B}}\n"
    )
    output = tare("plan", file).stdout.replace("\n", " ")
    assert "two servers cannot share one port" in output
    assert "nothing is compared" not in output


@pytest.mark.parametrize(
    ("running", "nothing"),
    [({"bare"}, True), ({"bare", "again"}, True), ({"bare", "vm"}, False), ({"vm"}, False)],
)
def test_a_baseline_and_its_twins_are_compared_with_nothing(
    running: set[str], nothing: bool
) -> None:
    arms = {"bare": None, "again": "bare", "vm": None}
    assert nothing_compared(arms, "bare", running) is nothing


def test_correct_settings_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "who"
    file.write_text(f"user=me\npassword={PLANTED}\n")
    file.chmod(0o600)
    catalog = build_catalog()
    for address in ("pve.example", "192.0.2.1", "2001:db8::1", "localhost"):
        arm = f"{NODE}, address: '{address}', credentials: {file}"
        assert load_study(study_of(tmp_path, arm), catalog).arms["v"].platform == "proxmox"
    # A server on the same computer is reached there.
    loops = PVE.replace("192.0.2.7:4460", "127.0.0.1:0").replace("pve.example", "127.0.0.1")
    assert load_study(study_of(tmp_path, loops), catalog)


def test_identical_arms_are_warned_of(tmp_path: Path) -> None:
    file = study_of(tmp_path, "platform: ssh, ssh: vm.example")
    text = file.read_text()
    file.write_text(text.replace("workloads", "  w: {platform: ssh, ssh: vm.example}\nworkloads"))
    warnings = load_study(file, build_catalog()).warnings
    assert "w is identical to v: if that is intended, write `w: {twin-of: v}`" in warnings
    file.write_text(text.replace("workloads", "  w: {twin-of: v}\nworkloads"))
    assert not any("is identical to" in each for each in load_study(file, build_catalog()).warnings)
