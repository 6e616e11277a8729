"""The files of one lab host: its keys, the agent, and its start-up scripts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import asyncssh

from tare.images import cpio
from tare.lab.image import LabImage
from tare.lab.options import LabOptions

READY = "tare-lab: ready"
FAILED = "tare-lab: failed: "

_APPLETS = ("sh", "cat", "cp", "echo", "insmod", "mkdir", "mount", "sleep", "switch_root")
_INITTAB = "::sysinit:/etc/tare/start\n::ctrlaltdel:/usr/sbin/poweroff\n"
# If time counts instructions, the idle seconds of a login pass at once, so logins have no limit.
_SSHD = """\
LoginGraceTime 0
HostKey /etc/tare/host_key
AuthorizedKeysFile /etc/tare/authorized_keys
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PrintMotd no
MaxStartups 100
MaxSessions 100
PidFile /run/sshd.pid
LogLevel ERROR
SetEnv PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin DM_DISABLE_UDEV=1
"""


@dataclass(frozen=True)
class Keys:
    """The keys of one lab host: its host key, and the client's key."""

    host: asyncssh.SSHKey
    client: asyncssh.SSHKey

    def known_hosts(self, port: int) -> str:
        """Return the known_hosts line of the host at a port of this computer."""
        return f"[127.0.0.1]:{port} {_public(self.host)}\n"


def make_keys() -> Keys:
    """Generate keys."""
    return Keys(*(asyncssh.generate_private_key("ssh-ed25519", "tare-lab") for _ in range(2)))


def initramfs(image: LabImage, options: LabOptions, keys: Keys, agent: Path) -> bytes:
    """Return the initramfs.

    Args:
        image: The lab's image.
        options: The lab host's options.
        keys: Its keys; the private host key is in the archive.
        agent: The agent's program. It goes where an SSH session looks for it, so it need not be
            copied over the connection.
    """
    program = agent.read_bytes()
    digest = hashlib.sha256(program).hexdigest()
    seed = {
        "etc/inittab": _INITTAB.encode(),
        "etc/tare/lab": f"hypervisor={options.hypervisor}\n".encode(),
        "etc/tare/sshd_config": _SSHD.encode(),
        "etc/tare/authorized_keys": f"{_public(keys.client)}\n".encode(),
    }
    scripts = {name: files("tare.lab").joinpath(name).read_bytes() for name in _SCRIPTS}
    return cpio.archive(
        [
            cpio.file("init", scripts["early.sh"], executable=True),
            cpio.file("bin/busybox", image.busybox.read_bytes(), executable=True),
            *(cpio.symlink(f"bin/{applet}", "busybox") for applet in _APPLETS),
            cpio.character_device("dev/console", 5, 1),
            *(cpio.directory(name) for name in ("proc", "sys", "dev")),
            cpio.file("modules", "".join(f"{name}\n" for name in image.early).encode()),
            *(
                cpio.file(f"early/{name}.ko", image.module(name).read_bytes())
                for name in image.early
            ),
            *(cpio.file(f"seed/{path}", content) for path, content in seed.items()),
            cpio.file("seed/etc/tare/start", scripts["start.sh"], executable=True),
            cpio.CpioEntry(
                "seed/etc/tare/host_key", 0o100600, keys.host.export_private_key("openssh")
            ),
            # As tare.hosts.ssh.connect looks for it.
            cpio.file(
                f"seed/root/.cache/tare-agent-{digest[:32]}/tare-agent", program, executable=True
            ),
        ]
    )


_SCRIPTS = ("early.sh", "start.sh")


def _public(key: asyncssh.SSHKey) -> str:
    return key.export_public_key("openssh").decode().strip()
