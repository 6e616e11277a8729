"""Set-up installs only what is missing, announces it, and continues without the rest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.apt_install import Apt, Choice, Unavailable
from scripts.apt_root import DOCKER_CE, LIBC, PROXMOX, AptRoot, Fields
from scripts.system_packages import main, provide
from scripts.target_needs import (
    Need,
    _instance_servers,
    _rust,
    needs_of,
    program_is_there,
    quick_needs,
)
from tare import programs
from tare.programs import Program, install_command, manager_of

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is not installed")
ROOT = Path(__file__).parents[2]
MISSING = re.compile(r"qemu-system-x86_64|qemu-kvm|kvm|.*runc|crun")
DEBIAN: dict[str, Fields] = {
    "runc": {"Version": "1.1.5"},
    "crun": {"Version": "1.8.1"},
    "qemu-system-x86": {"Version": "1:7.2", "Depends": "qemu-system-common"},
    "qemu-system-common": {"Version": "1:7.2"},
    "linux-image-amd64": {"Version": "6.1"},
}
DEBIAN_12 = {"cargo": "0.66.0+ds1-1", "rustc": "1.63.0+dfsg1-2"}
DEBIAN_12_WEB = {"cargo-web": "1.96.0+dfsg1-1~deb12u2", "rustc-web": "1.96.0+dfsg1-1~deb12u2"}
DEBIAN_13 = {"cargo": "1.85.1+dfsg1-1+deb13u1", "rustc": "1.85.1+dfsg1-1+deb13u1"}
UBUNTU_24 = {
    "cargo": "1.75.0+dfsg0ubuntu1",
    "rustc": "1.75.0+dfsg0ubuntu1",
    "cargo-1.80": "1.80.1+dfsg0ubuntu1",
    "rustc-1.80": "1.80.1+dfsg0ubuntu1",
    "cargo-1.91": "1.91.1+dfsg",
    "rustc-1.91": "1.91.1+dfsg",
    "cargo-1.85": "1.85.1+dfsg",
    "rustc-1.85": "1.85.1+dfsg",
}


@pytest.fixture
def computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AptRoot:
    """A computer without QEMU and OCI runtime, whose apt logs what it would change."""
    root = AptRoot(tmp_path)
    tools, system = tmp_path / "bin", tmp_path / "sbin"
    for folder, copied in ((tools, "/usr/bin"), (system, "/usr/sbin")):
        folder.mkdir()
        for tool in Path(copied).iterdir():
            if not MISSING.fullmatch(tool.name):
                (folder / tool.name).symlink_to(tool)
    monkeypatch.setattr(programs, "SYSTEM_FOLDERS", (str(system),))
    for name, value in root.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{root.programs}:{tools}")
    monkeypatch.delenv("NO_INSTALL", raising=False)
    root.record_installs()
    return root


def set_up(goal: str = "quick", *words: str) -> int:
    return main([goal, "--have=Rust", *words])


def test_missing_packages_are_printed_with_their_use_and_then_installed(
    computer: AptRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    assert set_up() == 0
    shown = capsys.readouterr().out
    assert "qemu-system-x86: for qemu-system-x86_64, virtual machines" in shown
    assert "runc: for crun or runc, containers" in shown
    assert "what these need: qemu-system-common" in shown
    assert [line.split()[-2:] for line in computer.logged] == [["qemu-system-x86", "runc"]] * 2


def test_a_docker_server_and_proxmox_node_lose_nothing(
    computer: AptRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    computer.installs({**LIBC, **DOCKER_CE, **PROXMOX})
    computer.offers({**DEBIAN, **DOCKER_CE, **PROXMOX, "crun": {"Conflicts": "containerd.io"}})
    assert set_up() == 0
    shown = capsys.readouterr().out
    assert computer.logged == []
    assert "left out: qemu-system-x86_64" in shown and "proxmox-ve" in shown
    assert "arms of platform qemu are left out" in shown
    assert "left out: crun or runc" in shown and "docker-ce" in shown
    assert "arms of platform oci are left out" in shown


def test_a_conflict_of_one_part_leaves_the_other(
    computer: AptRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    computer.installs({**LIBC, **PROXMOX})
    computer.offers({**DEBIAN, **PROXMOX})
    assert set_up() == 0
    assert [line.split()[-1] for line in computer.logged] == ["runc"] * 2
    assert "left out: qemu-system-x86_64" in capsys.readouterr().out


def test_another_runtime_is_installed_where_the_first_conflicts(computer: AptRoot) -> None:
    computer.installs({**LIBC, **DOCKER_CE})
    computer.offers({**DEBIAN, **DOCKER_CE})
    assert set_up() == 0
    assert computer.logged[-1].endswith(" qemu-system-x86 crun")


@pytest.mark.parametrize("program", ["crun", "runc", "docker-runc"])
def test_a_runtime_from_anywhere_is_used(computer: AptRoot, program: str) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    computer.program(program)
    assert set_up() == 0
    assert not any("runc" in line or "crun" in line for line in computer.logged)


@pytest.mark.parametrize("program", ["kvm", "qemu-kvm", "qemu-system-x86_64"])
def test_a_qemu_of_any_name_is_used(computer: AptRoot, program: str) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    computer.program(program)
    assert set_up() == 0
    assert not any("qemu" in line for line in computer.logged)


def test_programs_outside_the_path_are_found(computer: AptRoot, tmp_path: Path) -> None:
    place = tmp_path / "snap/docker/v7"
    place.mkdir(parents=True)
    (place / "runc").write_text("#!/bin/sh\n")
    odd = Program(("oddity",), "", {}, (f"{tmp_path}/snap/docker/*/runc",))
    assert not program_is_there(odd)
    (place / "runc").chmod(0o755)
    assert program_is_there(odd)


@pytest.mark.parametrize("by", ["variable", "option"])
def test_no_install_lists_and_changes_nothing(
    computer: AptRoot, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    computer.installs({**LIBC, **DOCKER_CE, **PROXMOX})
    computer.offers({**DEBIAN, **DOCKER_CE, **PROXMOX})
    before = sorted((str(f), f.stat().st_mtime_ns) for f in computer.folder.rglob("*"))
    if by == "variable":
        monkeypatch.setenv("NO_INSTALL", "1")
    assert set_up("quick", *(["--list"] if by == "option" else [])) == 0
    shown = capsys.readouterr().out
    assert computer.logged == []
    assert "qemu-system-x86_64 (optional), for virtual machines" in shown
    assert "to install: apt-get install --no-remove crun" in shown
    assert "qemu-system-x86_64 cannot be installed harmlessly" in shown
    kept = [(str(f), f.stat().st_mtime_ns) for f in computer.folder.rglob("*")]
    assert [each for each in sorted(kept) if "cache" not in each[0]] == [
        each for each in before if "cache" not in each[0]
    ]


def test_a_host_without_apt_gets_the_command_to_type_and_set_up_continues(
    computer: AptRoot, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Apt, "works_here", lambda self: False)
    monkeypatch.setattr("scripts.system_packages._text", lambda file: 'ID="rocky"\nID_LIKE="rhel"')
    assert set_up() == 0
    assert "to install: dnf install qemu-kvm crun" in capsys.readouterr().out
    assert computer.logged == []


def test_a_needed_part_that_is_missing_ends_set_up(
    computer: AptRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    assert main(["quick", "--list"]) == 1
    shown = capsys.readouterr().out
    assert "Rust (needed), for building the agent" in shown and "https://rustup.rs" in shown


def test_a_compiler_that_would_upgrade_the_c_library_is_the_users_decision(
    computer: AptRoot, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "bin/cc").unlink()
    computer.installs({"libc6": {"Version": "2.36-9"}})
    newer = {"Version": "2.36-9+deb12u13"}
    header = {**newer, "Depends": "libc6 (= 2.36-9+deb12u13)"}
    computer.offers({**DEBIAN, "libc6": newer, "libc6-dev": header, "gcc": {}})
    assert set_up() == 1
    shown = capsys.readouterr().out
    assert "apt would replace libc6 (2.36-9 to 2.36-9+deb12u13)" in shown
    assert "type as root: apt-get install --no-remove gcc libc6-dev" in shown
    # The rest is installed nevertheless.
    assert [line.split()[-2:] for line in computer.logged] == [["qemu-system-x86", "runc"]] * 2


@pytest.mark.parametrize("state", ["half-configured", "half-installed", "unpacked"])
def test_nothing_is_installed_while_dpkg_is_unfinished(
    computer: AptRoot, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    computer.installs({**LIBC})
    computer.installs({"broken": {}}, f"install ok {state}")
    computer.offers(DEBIAN)
    assert set_up() == 0
    assert "nothing is installed: dpkg has not finished with broken" in capsys.readouterr().out
    assert computer.logged == []


def test_nothing_is_installed_without_root(
    computer: AptRoot, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    computer.program("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    assert set_up() == 0
    shown = capsys.readouterr().out
    assert shown.count("a password is required") == 1
    assert "to install: apt-get install --no-remove qemu-system-x86 runc" in shown
    assert computer.logged == []


@pytest.mark.parametrize(
    "failure", ["Could not get lock /var/lib/dpkg/lock-frontend.", "Failed to fetch x  404"]
)
def test_an_apt_that_fails_costs_the_optional_parts_alone(
    computer: AptRoot, capsys: pytest.CaptureFixture[str], failure: str
) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    computer.record_installs(fails=failure)
    assert set_up() == 0
    shown = capsys.readouterr().out
    assert shown.count(failure) == 1
    assert "left out: qemu-system-x86_64" in shown and "left out: crun or runc" in shown


def test_a_package_without_its_program_is_not_installed_again(
    computer: AptRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    computer.installs({**LIBC, "qemu-system-x86": {"Version": "1:7.2"}, "runc": {}, "crun": {}})
    computer.offers(DEBIAN)
    assert set_up() == 0
    assert "qemu-system-x86 is installed, but qemu-system-x86_64 is not" in capsys.readouterr().out
    assert computer.logged == []


def test_a_package_whose_service_another_has_is_left_out(
    computer: AptRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    (computer.folder / "etc/systemd/system/web.service").write_text("[Service]\n")
    need = Need(
        "web", "tests", "no web", lambda: False, lambda _: [Choice(("crun",), ("web.service",))]
    )
    assert provide(Apt(computer.folder), [need], only_list=False) == 0
    assert "this computer has web.service already" in capsys.readouterr().out
    assert computer.logged == []


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        (DEBIAN_12 | DEBIAN_12_WEB, "cargo-web rustc-web"),
        (DEBIAN_13, "cargo rustc"),
        (DEBIAN_13 | DEBIAN_12_WEB, "cargo rustc"),
        (UBUNTU_24, "cargo-1.85 rustc-1.85"),
        (DEBIAN_12, ""),
        ({"rustc-web": "1.96.0"}, ""),
        ({}, ""),
    ],
)
def test_the_distributions_first_rust_that_is_new_enough_is_chosen(
    computer: AptRoot, versions: dict[str, str], chosen: str
) -> None:
    computer.installs(LIBC)
    computer.offers({name: {"Version": version} for name, version in versions.items()})
    found = _rust(Apt())
    assert " ".join(found[0].packages[:2] if found else ()) == chosen


def test_a_rust_that_conflicts_gives_way_to_the_next(computer: AptRoot) -> None:
    computer.installs({**LIBC, "rust-all": {}})
    offered = {name: {"Version": version} for name, version in DEBIAN_13.items()}
    offered["cargo"]["Conflicts"] = "rust-all"
    more = {name: {"Version": version} for name, version in DEBIAN_12_WEB.items()}
    computer.offers({**DEBIAN, **offered, **more, "ca-certificates": {}})
    main(["quick"])
    assert computer.logged[-1].endswith(" cargo-web rustc-web ca-certificates qemu-system-x86 runc")


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        ({"lxd": "5.0.2-5+deb12u6"}, ["lxd"]),
        ({"lxd": "5.0.2-9+deb13u7", "incus": "6.0.4-2+deb13u12"}, ["incus", "lxd"]),
        # A name that installs a snap.
        ({"lxd": "1:0.10"}, []),
        ({}, []),
    ],
)
def test_the_server_of_containers_is_the_distributions_newest(
    computer: AptRoot, versions: dict[str, str], chosen: list[str]
) -> None:
    computer.installs(LIBC)
    computer.offers({name: {"Version": version} for name, version in versions.items()})
    assert [choice.packages[0] for choice in _instance_servers(Apt())] == chosen


@pytest.mark.parametrize("goal", ["quick", "test", "bench"])
def test_every_need_says_what_it_is_for_and_what_is_lost(goal: str) -> None:
    needs = needs_of(goal)
    assert len({need.name for need in needs}) == len(needs)
    for need in needs:
        assert need.purpose and need.without
        assert need.required is (need.name in ("venv", "C compiler", "Rust"))


def test_this_computer_has_all_that_set_up_installs() -> None:
    lacking = [need.name for need in quick_needs() if need.name != "Rust" and not need.is_there()]
    assert lacking == []


def test_the_command_runs_with_the_standard_library_alone(computer: AptRoot) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    command = [sys.executable, "-S", "-B", "-m", "scripts.system_packages"]
    done = subprocess.run(
        [*command, "quick", "--have=Rust", "--list"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "apt-get install --no-remove qemu-system-x86" in done.stdout


def test_required_packages_can_be_installed_before_the_rest(
    computer: AptRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    parts = {}
    for part in ("needed", "optional"):
        main(["quick", "--list", "--part", part])
        parts[part] = capsys.readouterr().out
    assert "qemu-system-x86" not in parts["needed"]
    assert "qemu-system-x86" in parts["optional"]
    for need in ("venv", "C compiler", "Rust"):
        assert f"    {need} (needed)" not in parts["optional"]
    assert "    Rust (needed)" in parts["needed"]


@pytest.mark.parametrize(
    ("text", "manager"),
    [
        ("ID=debian", "apt"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"', "apt"),
        ("ID=fedora", "dnf"),
        ('ID="almalinux"\nID_LIKE="rhel centos fedora"', "dnf"),
        ('ID="ol"\nID_LIKE="fedora"', "dnf"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"', "zypper"),
        ("ID=opensuse-tumbleweed", "zypper"),
        ("ID=arch", "pacman"),
        ("ID=manjaro\nID_LIKE=arch", "pacman"),
        ("ID=alpine", "apk"),
        ("ID=nixos", ""),
        ("", ""),
    ],
)
def test_a_distributions_package_manager_is_known_by_its_names(text: str, manager: str) -> None:
    assert manager_of(text) == manager
    words = install_command(text, [programs.QEMU, programs.RUNC])
    if manager:
        assert words.startswith(programs.INSTALLERS[manager])
    else:
        assert "qemu-system-x86_64" in words and "qemu-system-x86 runc" in words


def test_hints_for_apt_never_contain_the_option_to_answer_yes() -> None:
    command = programs.INSTALLERS["apt"]
    assert "--no-remove" in command and "-y" not in command.split()


def test_unavailable_is_raised_without_a_way_to_become_root(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from scripts.apt_install import as_root

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="no sudo"):
        as_root()
