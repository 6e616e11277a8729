"""Archives to upload to a server, in its own formats: a container's image, and a small disk."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

AGENT_INSIDE = "/sbin/init"
CONFIGURATION = "/tare.json"
FOLDERS = ("dev", "etc", "mnt", "proc", "root", "run", "sbin", "sys", "tmp")
_METADATA = "architecture: {}\ncreation_date: 1\nproperties:\n  description: Tare's agent\n"
_VOLUME = """\
name: {name}
backend: dir
pool: {pool}
optimized: false
optimized_header: false
type: custom
config:
  volume:
    name: {name}
    type: custom
    content_type: block
    config:
      size: "{size}"
"""


def container_image(agent: bytes, architecture: str) -> bytes:
    """Return the image of a container that holds only the agent.

    It is one archive with ``metadata.yaml`` and ``rootfs/`` (linuxcontainers.org/incus/docs,
    "Image format"). The same agent always gives the same bytes.

    Args:
        agent: The agent's program.
        architecture: The architecture as the server names it, such as ``x86_64``.
    """
    files = {
        "metadata.yaml": _METADATA.format(architecture).encode(),
        "rootfs": None,
        **{f"rootfs/{folder}": None for folder in FOLDERS},
        f"rootfs{AGENT_INSIDE}": agent,
    }
    return _archive(files)


def volume_backup(name: str, pool: str, content: bytes) -> bytes:
    """Return the backup of a block volume, from which a server makes the volume.

    All server versions accept it for every storage driver; ISO volumes came later.

    Args:
        name: The volume's name.
        pool: The storage pool for the volume.
        content: The volume's bytes.
    """
    index = _VOLUME.format(name=name, pool=pool, size=len(content))
    return _archive({"backup/index.yaml": index.encode(), "backup/volume.img": content})


def _archive(files: Mapping[str, bytes | None]) -> bytes:
    """Return a tar archive; an entry without content is a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.mode = 0o1777 if name == "rootfs/tmp" else 0o755
            if content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()
