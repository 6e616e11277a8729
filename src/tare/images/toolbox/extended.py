"""A toolbox with a study's own packages and files: one of Tare's own, and these laid over it.

What both have in common is stored once, by hard links. So a program that its author changes and
measures again costs a new image, and neither downloads nor unpacking.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.hosts import Host
from tare.images import cache as store
from tare.images.archives import OWN
from tare.images.packages import Package
from tare.images.toolbox import tree as trees
from tare.images.toolbox.expected import require_libraries
from tare.images.toolbox.packages import download_all, toolbox_packages
from tare.images.toolbox.recipe import ABOUT
from tare.images.toolbox.toolbox import (
    IMAGE,
    TREE,
    Toolbox,
    cached_toolbox,
    make_image,
    publish_toolbox,
    toolboxes,
)
from tare.workloads.additions import Additions

FORMAT = 1
"""Raised whenever the same additions are to give other bytes."""
ONLY_INSTALLS = re.compile(
    r"usrmerge|adduser|passwd|debconf|sensible-utils|init-system-helpers|libsemanage.*|dpkg"
)
"""Packages that others depend on for their installation alone."""
_LINK_S = 120.0
_ELF = b"\x7fELF"
_LIBRARY_HINT = "add the package that has it: `toolbox: {packages: [...]}`"


async def extended_toolbox(
    host: Host,
    base: Toolbox,
    additions: Additions,
    *,
    agent: Path,
    cache: Path,
    say: Callable[[str], None],
) -> Toolbox:
    """Find a toolbox that holds all of ``base`` and some additions, or build it.

    Args:
        host: The computer that builds.
        base: One of Tare's own toolboxes, from the cache.
        additions: What it holds besides.
        agent: The agent, which tries whether added programs find their libraries.
        cache: Directory to keep it in.
        say: Receives each stage of a build, in a sentence.

    Raises:
        InputError: A package or file is missing, a library of an added program is, or the cache
            cannot be written.
    """
    began = time.monotonic()
    files = additions.each_file()
    wanted = {
        "base": base.key,
        "packages": sorted(additions.packages),
        "lists": OWN.state() if additions.packages else 0,
        "files": await asyncio.to_thread(_digests, files),
    }
    for known in toolboxes(cache):
        if known.adds == wanted:
            found = await asyncio.to_thread(cached_toolbox, known.image.parent)
            if found is not None:
                return replace(found, took_s=time.monotonic() - began)
            say(f"{known.image.parent} in the cache is damaged: building it again")
    packages = await _more_packages(host, base, additions, say)
    key = store.key_of(
        {
            **{name: wanted[name] for name in ("base", "files")},
            "format": FORMAT,
            "debs": sorted(part.sha256 for part in packages),
        }
    )
    folder = base.image.parent.with_name(key)
    async with store.exclusive(cache) as draft:
        # With packages that apt has newer lists of, it may be there under the same key.
        found = await asyncio.to_thread(cached_toolbox, folder)
        if found is None or found.adds != wanted:
            await asyncio.to_thread(store.require_running, draft)
            build = _Build(host, base, key, packages, files, agent, say)
            await build.into(draft, folder, wanted)
            found = await asyncio.to_thread(cached_toolbox, folder)
    if found is None:
        raise InputError(f"the cache {cache} does not keep what is written to it")
    return replace(found, cached=False, took_s=time.monotonic() - began)


async def _more_packages(
    host: Host, base: Toolbox, additions: Additions, say: Callable[[str], None]
) -> tuple[Package, ...]:
    if not additions.packages:
        return ()
    say("toolbox: resolving the study's own packages")
    found = await toolbox_packages(host, sorted(additions.packages), ONLY_INSTALLS)
    return tuple(package for package in found if package.name not in base.packages)


def _digests(files: Mapping[str, Path]) -> dict[str, list[Any]]:
    """Return the SHA-256 of each file, and whether it is executable."""
    found: dict[str, list[Any]] = {}
    for place, source in files.items():
        try:
            found[place] = [store.file_digest(source), _executable(source)]
        except OSError as error:
            raise InputError(f"{source} cannot be read: {error.strerror}") from error
    return found


def _executable(file: Path) -> bool:
    return bool(file.stat().st_mode & stat.S_IXUSR)


@dataclass(frozen=True)
class _Build:
    host: Host
    base: Toolbox
    key: str
    packages: tuple[Package, ...]
    files: Mapping[str, Path]
    agent: Path
    say: Callable[[str], None]

    async def into(self, draft: Path, folder: Path, wanted: Mapping[str, Any]) -> None:
        """Build in ``draft``, and publish as ``folder``."""
        tree = draft / "box" / TREE
        tree.parent.mkdir()
        linked = await self.host.run(
            ["cp", "-al", str(self.base.tree), str(tree)], timeout_s=_LINK_S
        )
        if not linked.ok:
            raise InputError(f"the toolbox {self.base.tree} cannot be copied: {linked.words()}")
        if self.packages:
            await self._unpack(draft, tree)
        self.say(f"toolbox: adding {len(self.files)} files of the study's own")
        await asyncio.to_thread(self._add_files, tree)
        await asyncio.to_thread(self._describe, tree)
        await asyncio.to_thread(trees.make_uniform, tree)
        programs = await asyncio.to_thread(self._programs)
        await require_libraries(self.host, self.agent, tree, programs, _LIBRARY_HINT)
        self.say("toolbox: making the image")
        await make_image(self.host, tree, tree, tree.parent / IMAGE)
        more = {part.name: part.version for part in self.packages}
        facts = {
            "kind": self.base.kind,
            "packages": {**self.base.packages, **more},
            "notes": list(self.base.notes),
            "adds": wanted,
        }
        await asyncio.to_thread(publish_toolbox, tree, folder, facts)

    async def _unpack(self, draft: Path, tree: Path) -> None:
        self.say(f"toolbox: downloading and unpacking {len(self.packages)} more packages")
        debs, more = draft / "debs", draft / "more"
        debs.mkdir()
        more.mkdir()
        files = await download_all(self.host, self.packages, debs)
        await trees.unpack(self.host, files, more)
        await asyncio.to_thread(lay_over, tree, more)

    def _programs(self) -> list[str]:
        """Return where the added programs are that a loader starts; others have interpreters."""
        found = []
        for place, source in self.files.items():
            with source.open("rb") as file:
                if _executable(source) and file.read(len(_ELF)) == _ELF:
                    found.append(place)
        return found

    def _add_files(self, tree: Path) -> None:
        for place, source in self.files.items():
            target = tree / place.lstrip("/")
            for parent in reversed(target.relative_to(tree).parents):
                folder = tree / parent
                if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                    raise InputError(
                        f"{place} cannot be added to the toolbox: /{parent} is no folder there",
                        "give the file another place",
                    )
                folder.mkdir(exist_ok=True)
            if os.path.lexists(target):
                raise InputError(
                    f"{place} cannot be added to the toolbox: a package has it already",
                    "give the file another place",
                )
            shutil.copyfile(source, target)
            target.chmod(0o755 if _executable(source) else 0o644)

    def _describe(self, tree: Path) -> None:
        about = tree / ABOUT
        description = {**json.loads(about.read_bytes()), "key": self.key}
        # The file itself is the other toolbox's too.
        about.unlink()
        about.write_text(json.dumps(description, indent=1, sort_keys=True) + "\n")


def lay_over(tree: Path, more: Path) -> None:
    """Move everything in ``more`` to its place in ``tree``; files there are replaced, not changed.

    Raises:
        InputError: One has a folder where the other has a file.
    """
    for folder, names, files in os.walk(more):
        inside = Path(folder).relative_to(more)
        links = [name for name in names if (more / inside / name).is_symlink()]
        for name in names:
            if name not in links:
                _make_folder(tree / inside / name)
        for name in (*files, *links):
            target = tree / inside / name
            if target.is_dir() and not target.is_symlink():
                raise InputError(
                    f"/{inside / name} is a folder in the toolbox, and a file in a package"
                )
            (more / inside / name).replace(target)


def _make_folder(path: Path) -> None:
    if not path.is_dir():
        if os.path.lexists(path):
            raise InputError(f"{path.name} is a file in the toolbox, and a folder in a package")
        path.mkdir()
