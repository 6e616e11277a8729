"""An apt with package databases of a test's own, so that its answers are apt's and not made up."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

APT_GET = shutil.which("apt-get") or "apt-get"
Fields = dict[str, str]

# What the upstream packages state about each other, by their control files.
DOCKER_CE: dict[str, Fields] = {
    "docker-ce": {
        "Version": "5:27.3.1-1~debian.12~bookworm",
        "Depends": "containerd.io (>= 1.6.24), docker-ce-cli, iptables",
        "Conflicts": "docker, docker.io",
    },
    "docker-ce-cli": {"Version": "5:27.3.1-1~debian.12~bookworm"},
    "containerd.io": {
        "Version": "1.7.22-1",
        "Provides": "containerd, runc",
        "Conflicts": "containerd, runc",
        "Replaces": "containerd, runc",
    },
    "iptables": {"Version": "1.8.9-2"},
}
_PVE_QEMU = "qemu-system-arm, qemu-system-x86, qemu-utils"
PROXMOX: dict[str, Fields] = {
    "proxmox-ve": {
        "Version": "8.2.0",
        "Depends": "pve-manager, pve-qemu-kvm, qemu-server, pve-container",
    },
    "pve-manager": {"Version": "8.2.4", "Depends": "qemu-server, pve-container"},
    "qemu-server": {"Version": "8.2.1", "Depends": "pve-qemu-kvm (>= 7.1)"},
    "pve-container": {"Version": "5.1.12", "Depends": "lxc-pve"},
    "lxc-pve": {"Version": "6.0.0-1", "Conflicts": "lxc", "Provides": "lxc", "Replaces": "lxc"},
    "pve-qemu-kvm": {
        "Version": "9.0.2-1",
        "Provides": _PVE_QEMU,
        "Conflicts": f"kvm, qemu-kvm, qemu-system-common, qemu-system-data, {_PVE_QEMU}",
        "Replaces": f"kvm, qemu-kvm, qemu-system-common, qemu-system-data, {_PVE_QEMU}",
    },
}
LIBC: dict[str, Fields] = {"libc6": {"Version": "2.36-9", "Multi-Arch": "same"}}


class AptRoot:
    """A folder that apt takes for a computer with its package database and its mirror."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mirror = folder / "apt", folder / "mirror"
        self.programs = folder / "programs"
        self.log = folder / "log"
        self.config = folder / "apt.conf"
        self._sources: list[str] = []
        for place in (
            "etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/sources.list.d",
            "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg/updates",
            "var/log/apt", "etc/systemd/system",
        ):  # fmt: skip
            (self.folder / place).mkdir(parents=True)
        self.programs.mkdir(parents=True)
        self.status = self.folder / "var/lib/dpkg/status"
        self.status.touch()
        self.config.write_text(
            f'Dir "{self.folder}";\n'
            'Dir::Bin::methods "/usr/lib/apt/methods";\n'
            f'Dir::State::status "{self.status}";\n'
            'APT::Architecture "amd64";\nAPT::Architectures { "amd64"; "i386"; };\n'
            'APT::Sandbox::User "root";\n'
        )

    def installs(self, packages: dict[str, Fields], state: str = "install ok installed") -> None:
        """Add packages to the database of what is installed."""
        with self.status.open("a") as database:
            for name, fields in packages.items():
                database.write(_paragraph(name, {"Status": state, **fields}))

    def offers(self, packages: dict[str, Fields], suite: str = "stable", **release: str) -> None:
        """Add packages to a suite of the mirror, and let apt read its lists."""
        folder = self.mirror / "dists" / suite
        listed = folder / "main/binary-amd64/Packages"
        listed.parent.mkdir(parents=True)
        file = {"Filename": "pool/package.deb", "Size": "1", "SHA256": "0" * 64}
        text = "".join(_paragraph(name, {**fields, **file}) for name, fields in packages.items())
        listed.write_text(text)
        fields = {"Suite": suite, "Codename": suite, "Components": "main", "Architectures": "amd64"}
        head = "".join(f"{key}: {value}\n" for key, value in {**fields, **release}.items())
        data = listed.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        (folder / "Release").write_text(
            f"{head}Date: Thu, 01 Jan 2026 00:00:00 UTC\n"
            f"SHA256:\n {digest} {len(data)} main/binary-amd64/Packages\n"
        )
        self._sources.append(f"deb [trusted=yes arch=amd64] file:{self.mirror} {suite} main\n")
        (self.folder / "etc/apt/sources.list").write_text("".join(self._sources))
        subprocess.run(
            [APT_GET, "update", "-q"], env=self.environment, check=True, capture_output=True
        )

    @property
    def environment(self) -> dict[str, str]:
        """The variables under which every apt tool uses this root."""
        return {**os.environ, "APT_CONFIG": str(self.config), "LC_ALL": "C"}

    def record_installs(self, fails: str = "") -> None:
        """Put an apt-get in ``programs`` that asks the real one, and logs what it would change.

        Args:
            fails: What it prints instead of installing.
        """
        end = f"echo 'E: {fails}' >&2; exit 100" if fails else "exit 0"
        self.program(
            "apt-get",
            f'case " $* " in *" -s "*|*" update "*) exec {APT_GET} "$@" ;; esac\n'
            f'echo "apt-get $*" >>{self.log}\n{end}',
        )
        self.program("systemctl", f'echo "systemctl $*" >>{self.log}')

    def program(self, name: str, text: str = "true") -> Path:
        """Put a program into ``programs``."""
        file = self.programs / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
        return file

    @property
    def logged(self) -> list[str]:
        """What was changed through ``programs``, one command a line."""
        return self.log.read_text().splitlines() if self.log.exists() else []


def _paragraph(name: str, fields: Fields) -> str:
    usual = {
        "Architecture": "amd64", "Maintainer": "T <t@example.org>", "Description": name,
        "Version": "1",
    }  # fmt: skip
    lines = [f"{key}: {value}\n" for key, value in {**usual, **fields}.items()]
    return f"Package: {name}\n{''.join(lines)}\n"
