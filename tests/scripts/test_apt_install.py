"""What set-up asks of apt never changes an installed package, by apt's own simulation."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.apt_install import Apt, Choice
from scripts.apt_root import APT_GET, DOCKER_CE, LIBC, PROXMOX, AptRoot, Fields

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is not installed")

DEBIAN: dict[str, Fields] = {
    "runc": {"Version": "1.1.5", "Conflicts": "containerd.io-old"},
    "crun": {"Version": "1.8.1"},
    "qemu-system-x86": {
        "Version": "1:7.2",
        "Depends": "qemu-system-common (= 1:7.2), qemu-system-data (>= 1:7.2)",
    },
    "qemu-system-common": {"Version": "1:7.2"},
    "qemu-system-data": {"Version": "1:7.2", "Architecture": "all"},
    "libc6-dev": {"Version": "2.36-9+deb12u13", "Depends": "libc6 (= 2.36-9+deb12u13)"},
    "libc6": {"Version": "2.36-9+deb12u13", "Multi-Arch": "same"},
    "busybox-static": {"Version": "1.35", "Conflicts": "busybox", "Replaces": "busybox"},
}
BACKPORTS: dict[str, Fields] = {
    "qemu-system-x86": {
        "Version": "1:10.0~bpo12",
        "Depends": "qemu-system-common (= 1:10.0~bpo12), qemu-system-data (>= 1:10.0~bpo12)",
    },
    "qemu-system-common": {"Version": "1:10.0~bpo12"},
    "qemu-system-data": {"Version": "1:10.0~bpo12", "Architecture": "all"},
}


@pytest.fixture
def computer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AptRoot:
    root = AptRoot(tmp_path)
    for name, value in root.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{root.programs}:/usr/bin:/bin")
    return root


def usual_set_up(root: AptRoot, *packages: str) -> str:
    """Return what the command of earlier set-ups would do."""
    command = [APT_GET, "-s", "install", "-y", "--no-install-recommends", *packages]
    return subprocess.run(
        command, env=root.environment, capture_output=True, text=True, check=False
    ).stdout


def test_a_docker_server_keeps_docker(computer: AptRoot) -> None:
    computer.installs({**DOCKER_CE, **LIBC})
    computer.offers({**DEBIAN, **DOCKER_CE})
    assert "Remv containerd.io" in usual_set_up(computer, "runc")
    plan = Apt().plan(["runc"])
    assert plan.harm.startswith("apt would remove ")
    assert {"containerd.io", "docker-ce"} <= set(plan.harm.replace(",", "").split())
    assert Apt().harmless(["runc"]) == ()


def test_a_proxmox_node_keeps_its_qemu_and_itself(computer: AptRoot) -> None:
    computer.installs({**PROXMOX, **LIBC})
    computer.offers({**DEBIAN, **PROXMOX})
    assert "Remv proxmox-ve" in usual_set_up(computer, "qemu-system-x86")
    harm = Apt().plan(["qemu-system-x86"]).harm
    assert "proxmox-ve" in harm and "pve-qemu-kvm" in harm
    assert Apt().harmless(["qemu-system-x86"]) == ()
    assert Apt().harmless(["crun"]) == ("crun",)


def test_a_dependency_that_would_be_upgraded_counts_as_an_upgrade(computer: AptRoot) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    assert "Inst libc6 [2.36-9]" in usual_set_up(computer, "libc6-dev")
    assert Apt().plan(["libc6-dev"]).harm == ("apt would replace libc6 (2.36-9 to 2.36-9+deb12u13)")


def test_one_conflict_does_not_lose_the_rest(computer: AptRoot) -> None:
    computer.installs({"busybox": {"Version": "1.35"}, **LIBC})
    computer.offers({**DEBIAN, "busybox": {"Version": "1.35"}})
    apt = Apt()
    assert apt.harmless(["busybox-static"], ["runc"]) == ()
    assert apt.harmless(["runc"], ["qemu-system-x86"]) == ("runc",)


@pytest.mark.parametrize("held", [True, False])
def test_parts_of_a_newer_qemu_get_the_rest_from_the_same_suite(
    computer: AptRoot, held: bool
) -> None:
    parts = {"qemu-system-common": BACKPORTS["qemu-system-common"]}
    computer.installs(parts, "hold ok installed" if held else "install ok installed")
    computer.offers(DEBIAN)
    computer.offers(BACKPORTS, "stable-backports", NotAutomatic="yes", ButAutomaticUpgrades="yes")
    apt = Apt()
    assert apt.plan(["qemu-system-x86"]).harm
    [asked] = apt.harmless(["qemu-system-x86"])
    assert asked == "qemu-system-x86/stable-backports"
    assert set(apt.plan([asked]).new) == {"qemu-system-x86", "qemu-system-data"}


def test_a_newer_qemu_without_its_suite_is_left_alone(computer: AptRoot) -> None:
    computer.installs({"qemu-system-common": {"Version": "1:10.0~bpo12"}})
    computer.offers(DEBIAN)
    assert Apt().harmless(["qemu-system-x86"]) == ()
    assert "qemu-system-common" in Apt().plan(["qemu-system-x86"]).harm


def test_a_held_package_is_neither_upgraded_nor_added(computer: AptRoot) -> None:
    computer.installs(LIBC, "hold ok installed")
    computer.installs({"runc": {"Version": "1.1.5"}}, "hold ok not-installed")
    computer.offers(DEBIAN)
    assert Apt().plan(["libc6-dev"]).harm
    assert Apt().plan(["runc"]).harm == "runc is held (apt-mark hold)"


def test_packages_that_conflict_with_other_repositories_are_left_out(computer: AptRoot) -> None:
    # As moby-engine's and podman's from other repositories.
    other = dict.fromkeys(("Provides", "Conflicts", "Replaces"), "runc")
    computer.installs({"moby-runc": {"Version": "1.2", **other}})
    computer.offers(DEBIAN)
    assert Apt().plan(["runc"]).harm == "apt would remove moby-runc"


def test_a_package_for_another_processor_is_not_taken(computer: AptRoot) -> None:
    computer.installs(LIBC)
    computer.offers({"tool": {"Architecture": "i386"}})
    assert "tool:i386" in Apt().plan(["tool"]).harm


def test_a_package_only_installed_for_another_processor_is_not_installed(
    computer: AptRoot,
) -> None:
    computer.installs({"libc6-dev": {"Architecture": "i386"}})
    assert not Apt().is_installed("libc6-dev")
    computer.installs(LIBC)
    assert Apt().is_installed("libc6")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("install ok half-configured", "dpkg --configure -a"),
        ("install reinstreq half-installed", "has not finished with broken"),
        ("install ok unpacked", "has not finished with broken"),
        ("deinstall ok config-files", ""),
        ("hold ok installed", ""),
    ],
)
def test_packages_that_dpkg_has_not_finished_are_reported(
    computer: AptRoot, state: str, words: str
) -> None:
    computer.installs({"broken": {}}, state)
    found = Apt().unfinished()
    assert words in found and bool(found) is bool(words)


def test_an_interrupted_dpkg_is_reported(computer: AptRoot) -> None:
    computer.installs(LIBC)
    (computer.status.parent / "updates/0001").touch()
    assert "dpkg was interrupted" in Apt().unfinished()


def test_a_name_that_the_distribution_lacks_is_reported_by_apt(computer: AptRoot) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    assert Apt().plan(["oddity"]).harm == "Unable to locate package oddity"


def test_apts_own_settings_cannot_make_it_remove_or_upgrade(computer: AptRoot) -> None:
    computer.config.write_text(
        computer.config.read_text() + 'APT::Get::AutomaticRemove "true";\n'
        'APT::Install-Recommends "true";\nAPT::Get::allow-downgrades "true";\n'
    )
    computer.installs({**LIBC, "orphan": {}})
    (computer.folder / "var/lib/apt/extended_states").write_text(
        "Package: orphan\nArchitecture: amd64\nAuto-Installed: 1\n\n"
    )
    computer.offers(DEBIAN)
    assert "orphan" in usual_set_up(computer, "crun")
    assert Apt().plan(["crun"]).new == ("crun",)
    assert Apt().plan(["crun"]).harm == ""


def test_packages_are_added_and_nothing_else_is_allowed(computer: AptRoot) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    computer.record_installs()
    assert Apt(computer.folder).install([Choice(("crun",)), Choice(("runc",))]) == ""
    got, added = computer.logged
    assert "--download-only" in got
    for command in (got, added):
        assert "--no-remove" in command and "--no-upgrade" in command
        assert command.endswith(" crun runc")


def test_a_request_that_became_harmful_is_not_made(computer: AptRoot) -> None:
    computer.installs({**DOCKER_CE, **LIBC})
    computer.offers(DEBIAN)
    computer.record_installs()
    assert "docker-ce" in Apt(computer.folder).install([Choice(("runc",))])
    assert not [line for line in computer.logged if "--download-only" not in line]


@pytest.mark.parametrize(
    "failure",
    [
        "Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (apt)",
        "Failed to fetch http://mirror.example/runc.deb  404  Not Found",
        "You don't have enough free space in /var/cache/apt/archives/.",
    ],
)
def test_a_failure_of_apt_is_returned_in_its_own_words(computer: AptRoot, failure: str) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    computer.record_installs(fails=failure.replace("'", "’"))
    assert Apt(computer.folder).install([Choice(("runc",))]) == failure.replace("'", "’")


UNITS = ("web.service", "web.socket")


def test_only_the_services_that_this_call_adds_are_kept_off(computer: AptRoot) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    computer.record_installs()
    assert Apt(computer.folder).install([Choice(("crun",), UNITS)]) == ""
    assert "systemctl mask --quiet web.service web.socket" in computer.logged


@pytest.mark.parametrize("folder", ["etc", "usr/lib", "lib", "run", "usr/local/lib"])
def test_a_service_that_exists_is_found_and_never_masked(computer: AptRoot, folder: str) -> None:
    place = computer.folder / folder / "systemd/system"
    place.mkdir(parents=True, exist_ok=True)
    (place / "web.service").write_text("[Service]\n")
    apt = Apt(computer.folder)
    assert apt.existing_units(UNITS) == ["web.service"]
    assert [unit for unit in UNITS if not apt.unit_file(unit)] == ["web.socket"]


def test_a_service_that_its_owner_masked_stays_masked(computer: AptRoot) -> None:
    mask = computer.folder / "etc/systemd/system/web.service"
    mask.symlink_to("/dev/null")
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    computer.record_installs()
    apt = Apt(computer.folder)
    assert apt.existing_units(UNITS) == []
    assert apt.install([Choice(("crun",), ("web.service",))]) == ""
    assert not [line for line in computer.logged if line.startswith("systemctl")]


def test_a_failed_installation_leaves_no_service_masked(computer: AptRoot) -> None:
    computer.installs(LIBC)
    computer.offers(DEBIAN)
    computer.record_installs()
    log = computer.log
    computer.program(
        "apt-get",
        f'case " $* " in *" -s "*) exec {APT_GET} "$@" ;; *" --download-only "*) exit 0 ;; esac\n'
        f"echo 'E: no room' >&2; exit 100",
    )
    assert Apt(computer.folder).install([Choice(("crun",), UNITS)]) == "no room"
    assert log.read_text().splitlines()[-1] == "systemctl unmask --quiet web.service web.socket"


def test_outdated_package_lists_are_distinguished_from_current_ones(
    computer: AptRoot, set_age: Callable[[], None]
) -> None:
    computer.installs(LIBC)
    assert not Apt().lists_are_fresh()
    computer.offers(DEBIAN)
    assert Apt().lists_are_fresh()
    set_age()
    assert not Apt().lists_are_fresh()


@pytest.fixture
def set_age(computer: AptRoot) -> Callable[[], None]:
    def age() -> None:
        import os

        lists = computer.folder / "var/lib/apt/lists"
        for place in (lists, lists / "partial"):
            os.utime(place, (0, 0))

    return age
