"""Libvirt's own QEMU driver within this process: no daemon, and everything in one folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CONFIGURED = """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
namespaces = []
security_driver = "none"
stdio_handler = "file"
cgroup_controllers = []
"""
_events: list[threading.Thread] = []


def library() -> Any:
    """Return libvirt with its events being served, which the embedded driver needs."""
    libvirt = pytest.importorskip("libvirt")
    if not _events:
        libvirt.virEventRegisterDefaultImpl()

        def serve() -> None:
            while True:
                libvirt.virEventRunDefaultImpl()

        _events.append(threading.Thread(target=serve, daemon=True))
        _events[0].start()
    return libvirt


@contextmanager
def embedded(root: Path) -> Iterator[str]:
    """Hold a driver below a folder of its own; yields its URI."""
    libvirt = library()
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "qemu.conf").write_text(CONFIGURED)
    uri = f"qemu:///embed?root={root}"
    try:
        held = libvirt.open(uri)
    except libvirt.libvirtError as error:
        pytest.skip(f"libvirt's QEMU driver does not start here: {error}")
    try:
        yield uri
        assert held.listAllDomains() == []
    finally:
        held.close()
