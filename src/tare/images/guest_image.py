"""Build the files that a machine boots: a kernel, and an initramfs that holds the agent as PID 1.

The same inputs give the same bytes on every computer. The cache finds an image by the digest of
its inputs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.hosts import Host
from tare.images import cache as store
from tare.images import cpio
from tare.images.host_kernel import HOST, host_kernel
from tare.images.kernels import Kernel, elf_kernel, find_kernel
from tare.images.modules import NEEDS, Module, ModuleTree
from tare.images.vmlinux import NotExtractable, has_pvh_entry
from tare.study.model.releases import Release

FORMAT = 1
"""Increase it when the same inputs must give other bytes, so that old images are not reused."""

MODULE_LIST = "etc/tare/modules"


@dataclass(frozen=True)
class GuestImage:
    """The files that a machine boots.

    Args:
        kernel: The kernel as the distribution made it.
        boot_kernel: The uncompressed ELF if it has a PVH entry, else ``kernel``.
        initramfs: The agent as ``/init``, the modules, and the list of their load order.
        digest: SHA-256 (hex) of all inputs.
        kernel_version: The release that ``uname -r`` will show.
        cached: Whether it was in the cache already.
        took_s: Seconds spent finding or building it.
        notes: Notes for a reader of the results, one sentence each.
    """

    kernel: Path
    boot_kernel: Path
    initramfs: Path
    digest: str
    kernel_version: str
    cached: bool
    took_s: float
    notes: tuple[str, ...] = ()


async def build_guest_image(
    host: Host,
    kernel: str | Path,
    *,
    needs: frozenset[str],
    agent: Path,
    cache: Path,
    release: Release | None = None,
    runs_on: Host | None = None,
) -> GuestImage:
    """Find an image in the cache, or build it.

    Args:
        host: The computer that builds; its distribution provides the kernel.
        kernel: ``host``, ``rt``, ``cloud``, ``generic``, a package's name, or a kernel file.
        needs: Features that the machines need, from the keys of :data:`tare.images.modules.NEEDS`.
        agent: The file of the static agent program.
        cache: The cache folder; see :func:`tare.images.cache.default_cache`.
        release: The release of the kernel's package; None: the computer's own release.
        runs_on: The host whose kernel ``host`` means; None: the computer that builds.

    Raises:
        InputError: The kernel or the agent does not exist, the kernel lacks a module that is
            needed, or the cache cannot be written.
    """
    began = time.monotonic()
    if kernel == HOST:
        source = await host_kernel(runs_on or host, cache)
    else:
        source = await find_kernel(host, kernel, cache, release)
    try:
        agent_digest = await asyncio.to_thread(store.file_digest, agent)
    except OSError as error:
        raise InputError(
            f"the agent {agent} cannot be read: {error.strerror}", "run `make setup`"
        ) from error
    digest = store.key_of(
        {
            "format": FORMAT,
            "kernel": source.digest,
            "agent": agent_digest,
            "modules": {need: NEEDS[need] for need in sorted(needs)},
        }
    )
    folder = cache / "images" / digest

    async def build(draft: Path) -> dict[str, Any]:
        facts = await asyncio.to_thread(_build, source, agent, needs, draft)
        await asyncio.to_thread(store.publish, draft, folder, facts)
        return facts

    facts, cached, rebuilt = await store.load_or_build(cache, folder, build)
    return GuestImage(
        kernel=source.file,
        boot_kernel=folder / "vmlinux" if facts["elf"] else source.file,
        initramfs=folder / "initramfs",
        digest=digest,
        kernel_version=source.version,
        cached=cached,
        took_s=time.monotonic() - began,
        notes=(*source.notes, *facts["notes"], *rebuilt),
    )


def _build(source: Kernel, agent: Path, needs: frozenset[str], draft: Path) -> dict[str, Any]:
    notes: list[str] = []
    kernel, reason = elf_kernel(source)
    if kernel is not None and not has_pvh_entry(kernel):
        kernel, reason = None, "The bzImage boots as it is, since its ELF has no PVH entry."
    if kernel is None:
        notes.append(reason)
    else:
        (draft / "vmlinux").write_bytes(kernel)
    modules = _modules(source, needs)
    (draft / "initramfs").write_bytes(initramfs(agent.read_bytes(), modules))
    return {"elf": kernel is not None, "notes": notes, "modules": [part.name for part in modules]}


def _modules(source: Kernel, needs: frozenset[str]) -> tuple[Module, ...]:
    if source.modules is None:
        return ()
    # Use the order of NEEDS, not the set's, so that the same inputs give the same bytes.
    names = [name for need in NEEDS if need in needs for name in NEEDS[need]]
    tree = ModuleTree(source.modules)
    if missing := tree.missing(names):
        raise InputError(
            f"the kernel {source.version} has no module {', '.join(missing)}",
            "write `kernel: generic` or `kernel: rt`, or use other devices",
        )
    try:
        return tree.sort_by_dependency(names)
    except NotExtractable as error:
        raise InputError(
            f"a module of the kernel {source.version} cannot be used: {error}"
        ) from error


def initramfs(agent: bytes, modules: Iterable[Module]) -> bytes:
    """Return the archive that the kernel unpacks: the agent as ``/init``, and the modules.

    Args:
        agent: The content of the static agent program.
        modules: The modules, in the order in which the agent loads them.
    """
    held = tuple(modules)
    paths = [f"lib/modules/{module.name}.ko" for module in held]
    return cpio.archive(
        [
            cpio.file("init", agent, executable=True),
            # The kernel opens this for PID 1 before anything can mount devtmpfs.
            cpio.character_device("dev/console", 5, 1),
            *(cpio.directory(name) for name in ("proc", "sys", "dev", "run", "tmp")),
            cpio.file(MODULE_LIST, "".join(f"/{path}\n" for path in paths).encode()),
            *(cpio.file(path, module.data) for path, module in zip(paths, held, strict=True)),
        ]
    )
