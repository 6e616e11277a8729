"""A computer whose disks are swapped: two SSH servers; one of them is up in each boot."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path

from hosts.hosts_sshd import Sshd

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass
class Disk:
    """A disk that the computer boots from, with a kernel that distinguishes its boots."""

    folder: Path
    server: Sshd = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.boot_id = self.folder / "boot_id"
        # Only the server's processes see the file in the place of the kernel's.
        shown = f'mount --bind {self.boot_id} {BOOT_ID} && exec "$@"'
        self.server = Sshd(self.folder, ("unshare", "--mount", "sh", "-c", shown, "sh"))

    def boot(self) -> None:
        """Boot the computer from this disk."""
        self.boot_id.write_text(f"{uuid.uuid4()}\n")
        self.server.start()

    def shut_down(self) -> None:
        """Shut the computer down, if it runs from this disk."""
        self.server.stop()

    @property
    def arm(self) -> str:
        """The arm of the machine that this disk boots, as a study has it."""
        return f"{{platform: ssh, {self.server.in_a_study()}, folder: {self.folder}}}"


@dataclass
class Computer:
    """A computer with two disks; one of them is in it."""

    folder: Path

    def __post_init__(self) -> None:
        self.disks = {name: Disk(self.folder / name) for name in ("a", "b")}

    def boot(self, disk: str) -> None:
        """Boot it again from a disk."""
        self.shut_down()
        self.disks[disk].boot()

    def shut_down(self) -> None:
        """Shut it down."""
        for disk in self.disks.values():
            disk.shut_down()
