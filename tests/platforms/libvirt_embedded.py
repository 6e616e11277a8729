"""Libvirt's own QEMU driver within this process: no daemon, and everything in one folder."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
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


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of the driver, which goes when the process ends.

    Libvirt keeps to the first one for as long as the process lives. Its name is short, for sockets'
    names are; pytest's are not.
    """
    folder = tempfile.TemporaryDirectory(prefix="lv-")
    (Path(folder.name) / "etc").mkdir()
    (Path(folder.name) / "etc" / "qemu.conf").write_text(CONFIGURED)
    return folder


@contextmanager
def embedded() -> Iterator[str]:
    """Hold the driver; yields its URI."""
    libvirt = library()
    uri = f"qemu:///embed?root={_folder().name}"
    try:
        held = libvirt.open(uri)
    except libvirt.libvirtError as error:
        pytest.skip(f"libvirt's QEMU driver does not start here: {error}")
    try:
        yield uri
        assert held.listAllDomains() == []
    finally:
        held.close()
