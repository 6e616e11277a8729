"""Programs are found wherever a host has them, and what is missing is installed as it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.images_fakes import FakeHost
from tare import programs
from tare.hosts import Completed, LocalHost
from tare.hosts.programs import find_program, install_command_for
from tare.platforms.doctor import missing_programs
from tare.programs import CRUN, IP, OCI, QEMU, Program


def executable(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with a PATH and system folders of its own, in which there is a shell alone."""
    for name in ("bin", "sbin"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin/sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(programs, "SYSTEM_FOLDERS", (str(tmp_path / "sbin"),))
    return tmp_path


async def test_a_program_is_found_in_path_system_folders_and_files(folder: Path) -> None:
    odd = Program(("oddity", "other-oddity"), "", {}, (f"{folder}/lib/*/oddity",))
    assert await find_program(LocalHost(), odd) is None
    last = executable(folder / "lib/7.2/oddity")
    assert await find_program(LocalHost(), odd) == str(last)
    second = executable(folder / "sbin/other-oddity")
    assert await find_program(LocalHost(), odd) == str(second)
    first = executable(folder / "bin/oddity")
    assert await find_program(LocalHost(), odd) == str(first)
    assert await find_program(LocalHost(), odd, ["other-oddity"]) == str(second)
    for file in (first, second, last):
        file.chmod(0o644)
    assert await find_program(LocalHost(), odd) is None


@pytest.mark.parametrize(
    ("release", "command"),
    [
        (b"ID=debian\n", "apt-get install --no-remove qemu-system-x86 iproute2"),
        (b"ID=fedora\n", "dnf install qemu-kvm iproute"),
        (b'ID="opensuse-leap"\nID_LIKE="suse"\n', "zypper install qemu-x86 iproute2"),
        (b"ID=alpine\n", "apk add qemu-system-x86_64 iproute2"),
    ],
)
async def test_install_command_is_that_of_the_hosts_distribution(
    release: bytes, command: str
) -> None:
    host = FakeHost(lambda argv: Completed(0, b"", b""), {"/usr/lib/os-release": release})
    assert await install_command_for(host, QEMU, IP) == command


async def test_unknown_distribution_gets_the_program_names() -> None:
    host = FakeHost(lambda argv: Completed(0, b"", b""))
    words = await install_command_for(host, QEMU)
    assert words.startswith("install qemu-system-x86_64 with this distribution's package manager")


async def test_the_doctor_lists_what_is_missing_and_counts_one_runtime_as_enough() -> None:
    there = {QEMU.names[0], CRUN.names[0], "mkfs.ext4", "taskset", "setpriv"}

    def answer(argv: object) -> Completed:
        assert isinstance(argv, list)
        found = [name for name in there if name in argv]
        return Completed(int(not found), "".join(found).encode(), b"")

    host = FakeHost(answer, {"/etc/os-release": b"ID=debian\n"})
    found = await missing_programs(host)
    assert found.programs == {"ip": IP.purpose}
    assert found.install == "apt-get install --no-remove iproute2"
    there -= {"crun"}
    there |= {"ip"}
    found = await missing_programs(host)
    assert found.programs == {"crun": OCI.purpose}
    there |= {"runc"}
    assert (await missing_programs(host)).install == ""
