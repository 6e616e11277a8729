"""The toolbox: the applications as one read-only file system, the same bits for every machine.

Machines with disks get the file system image; containers and the bare host, which share the host's
kernel, get the tree that it was made from.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.hosts import Host
from tare.images import cache as store
from tare.images.archives import OWN
from tare.images.bundle.index import damaged, read_index
from tare.images.packages import Package, distribution
from tare.images.toolbox import analytics, hadoop
from tare.images.toolbox import tree as trees
from tare.images.toolbox.analytics import add_analytics, fetch_analytics
from tare.images.toolbox.check import snapshot, tree_problems
from tare.images.toolbox.class_archive import add_class_archive, require_class_archive
from tare.images.toolbox.expected import expected_outputs
from tare.images.toolbox.hadoop import add_hadoop, fetch_hadoop
from tare.images.toolbox.packages import download_all, toolbox_packages
from tare.images.toolbox.recipe import (
    ABOUT,
    INPUTS,
    KINDS,
    PACKAGES,
    PROGRAMS,
    VOLUME_UUID,
    WITH_HADOOP,
    Kind,
    recipe_digest,
)
from tare.images.toolbox.scimark import fetch_scimark

IMAGE = "toolbox.erofs"
TREE = "tree"
LISTING = "tree.json"
_MAKE_S = 300.0


@dataclass(frozen=True)
class Toolbox:
    """One built toolbox.

    Args:
        kind: One of :data:`tare.images.toolbox.recipe.KINDS`.
        key: SHA-256 (hex) of everything it was made from.
        image: The file system image.
        digest: SHA-256 (hex) of the image.
        tree: The same files as a directory.
        packages: Name to version of every package in it.
        notes: What it lacks and why, one sentence each.
        adds: What it was made of besides a toolbox of Tare's own; empty: it is one of these.
        cached: Whether it was found ready.
        took_s: Seconds spent finding or building it.
    """

    kind: Kind
    key: str
    image: Path
    digest: str
    tree: Path
    packages: Mapping[str, str]
    notes: tuple[str, ...]
    adds: Mapping[str, Any] = field(default_factory=dict)
    cached: bool = True
    took_s: float = 0.0


def _silent(_: str) -> None:
    return


async def prepare_toolbox(
    host: Host, kind: Kind, *, agent: Path, cache: Path, say: Callable[[str], None] = _silent
) -> Toolbox:
    """Find a toolbox in the cache, or build it: once for each set of packages.

    Args:
        host: The computer that builds; its distribution provides the packages.
        kind: One of :data:`tare.images.toolbox.recipe.KINDS`.
        agent: The agent, which runs every application once to see what it writes.
        cache: Directory to keep it in; see :func:`tare.images.cache.default_cache`.
        say: Receives each stage of a build, in a sentence.

    Raises:
        InputError: A package is missing or damaged, a program does not run, or the cache cannot
            be written.
    """
    began = time.monotonic()
    folder = cache / "toolbox"
    remembered = folder / f"{kind}.json"
    lists = OWN.state()
    recipe = recipe_of(kind)
    if imported := await _imported(host, kind, recipe, cache):
        return _timed(imported, began, cached=True)
    key = _recall(remembered, lists, recipe)
    if key is not None:
        found = await asyncio.to_thread(cached_toolbox, folder / key)
        if found is not None:
            return _timed(found, began, cached=True)
        if (folder / key).exists():
            say(f"the toolbox {kind} in the cache is damaged: building it again")
    say(f"toolbox {kind}: resolving its packages")
    packages = await toolbox_packages(host, PACKAGES[kind])
    jar, lacking = await fetch_scimark(host, cache)
    key = _key(kind, recipe, packages, jar)
    found = await asyncio.to_thread(cached_toolbox, folder / key)
    cached = found is not None
    if found is None:
        async with store.exclusive(cache) as draft:
            # Another builder may have been first.
            found = await asyncio.to_thread(cached_toolbox, folder / key)
            cached = found is not None
            if found is None:
                await asyncio.to_thread(store.require_running, draft)
                notes = (lacking,) if lacking else ()
                build = _Build(host, kind, key, packages, jar, agent, notes, say, cache)
                await build.into(draft, folder / key)
                found = await asyncio.to_thread(cached_toolbox, folder / key)
    if found is None:
        raise InputError(f"the cache {cache} does not keep what is written to it")
    async with store.exclusive(cache) as draft:
        note = draft / "note"
        note.write_text(json.dumps({"lists": lists, "recipe": recipe, "key": key}))
        note.replace(remembered)
    return _timed(found, began, cached=cached)


async def _imported(host: Host, kind: Kind, recipe: str, cache: Path) -> Toolbox | None:
    """Return the toolbox that a bundle brought, if it is made as this Tare makes it."""
    key, made_by = read_index(cache).toolboxes.get(kind, ("", ""))
    if not key:
        return None
    if made_by == recipe:
        found = await asyncio.to_thread(cached_toolbox, cache / "toolbox" / key)
        if found is None:
            raise damaged(cache, f"toolbox {kind}")
        return found
    try:
        await distribution(host)
    except InputError as error:
        raise InputError(
            f"the imported toolbox {kind} is of another version of Tare, and {error.message}",
            "import a bundle that this version of Tare exported, or install the versions of "
            "hypertare and hypertare-images that belong together",
        ) from error
    return None


def recipe_of(kind: Kind) -> str:
    """Return what changes when this Tare makes a toolbox otherwise."""
    return "".join((recipe_digest(), *_sources_digests(kind)))


def _timed(found: Toolbox, began: float, *, cached: bool) -> Toolbox:
    return replace(found, cached=cached, took_s=time.monotonic() - began)


def _sources_digests(kind: Kind) -> Iterator[str]:
    if kind in WITH_HADOOP:
        yield hadoop.sources_digest()
    if kind == "analytics":
        yield analytics.sources_digest()


def _key(kind: Kind, recipe: str, packages: tuple[Package, ...], jar: Path | None) -> str:
    return store.key_of(
        {
            "kind": kind,
            "recipe": recipe,
            "debs": sorted(part.sha256 for part in packages),
            "scimark": jar is not None,
        }
    )


def _recall(remembered: Path, lists: int, recipe: str) -> str | None:
    try:
        note = json.loads(remembered.read_bytes())
        fits = note["recipe"] == recipe and (not lists or note["lists"] == lists)
        return str(note["key"]) if fits else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def cached_toolbox(folder: Path) -> Toolbox | None:
    """Return a toolbox whose image and tree are intact: every byte of both is read."""
    facts = store.load(folder)
    if facts is None or tree_problems(folder / TREE, folder / LISTING, thorough=True):
        return None
    return _described(folder, facts)


def _described(folder: Path, facts: Mapping[str, Any]) -> Toolbox:
    return Toolbox(
        kind=facts["kind"],
        key=folder.name,
        image=folder / IMAGE,
        digest=facts["digest"],
        tree=folder / TREE,
        packages=facts["packages"],
        notes=tuple(facts["notes"]),
        adds=facts.get("adds", {}),
    )


def toolboxes(cache: Path) -> tuple[Toolbox, ...]:
    """Return what is in the cache, unverified, the kinds in their order and the newest last."""
    found: list[tuple[int, float, Toolbox]] = []
    for manifest in (cache / "toolbox").glob(f"*/{store.MANIFEST}"):
        try:
            facts = json.loads(manifest.read_bytes())["facts"]
            place = KINDS.index(facts["kind"])
            found.append((place, manifest.stat().st_mtime, _described(manifest.parent, facts)))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return tuple(box for _, _, box in sorted(found, key=lambda entry: entry[:2]))


def verify_toolbox(toolbox: Toolbox) -> tuple[str, ...]:
    """Read every byte of a toolbox and return what is wrong, one sentence each."""
    problems: list[str] = []
    try:
        if store.file_digest(toolbox.image) != toolbox.digest:
            problems.append(f"{toolbox.image} is not what was built")
    except OSError as error:
        problems.append(f"{toolbox.image} cannot be read: {error.strerror}")
    listing = toolbox.tree.parent / LISTING
    problems += tree_problems(toolbox.tree, listing, thorough=True)
    return tuple(problems)


def discard_toolbox(toolbox: Toolbox) -> None:
    """Remove a toolbox from the cache."""
    shutil.rmtree(toolbox.image.parent, ignore_errors=True)


async def make_image(host: Host, tools: Path, tree: Path, image: Path) -> None:
    """Make a toolbox's image by a toolbox's own mkfs, so that every builder uses the same one.

    Args:
        host: The computer that builds.
        tools: The tree of a toolbox, whose mkfs is used; it may be ``tree`` itself.
        tree: What the image is to hold.
        image: The file to write.

    Raises:
        InputError: The image cannot be made.
    """
    libraries = sorted(tools.glob("usr/lib/*-linux-gnu*"))
    loaders = sorted((*tools.glob("usr/lib64/ld-linux*"), *tools.glob("usr/lib/ld-linux*")))
    if not loaders:
        raise InputError("the toolbox has no dynamic loader", "tare image build")
    made = await host.run(
        [
            str(trees.resolve_inside(tools, f"/{loaders[0].relative_to(tools)}")),
            *("--library-path", ":".join(map(str, libraries))),
            str(tools / "usr/bin/mkfs.erofs"),
            *("-T", "0", "--all-root", "-x", "-1", "-U", VOLUME_UUID),
            str(image),
            str(tree),
        ],
        timeout_s=_MAKE_S,
    )
    if not made.ok:
        store.require_disk(made.words(), image.parent)
        raise InputError(
            f"the toolbox's image could not be made: {made.words()[-300:]}",
            "free some space in the cache directory",
        )


def publish_toolbox(tree: Path, folder: Path, facts: Mapping[str, Any]) -> None:
    """Put a finished tree, with its image next to it, where toolboxes are found.

    Args:
        tree: The tree; the folder that holds it moves.
        folder: Where that goes: under the toolbox's key.
        facts: What is recorded about it, besides the image's digest.
    """
    box = tree.parent
    (box / LISTING).write_text(json.dumps(snapshot(tree), indent=0, sort_keys=True))
    digest = store.file_digest(box / IMAGE)
    files = {IMAGE: digest, LISTING: store.file_digest(box / LISTING)}
    manifest = {"files": files, "facts": {**facts, "digest": digest}}
    (box / store.MANIFEST).write_text(f"{json.dumps(manifest, indent=1, sort_keys=True)}\n")
    if folder.exists():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    box.rename(folder)


@dataclass(frozen=True)
class _Build:
    host: Host
    kind: Kind
    key: str
    packages: tuple[Package, ...]
    jar: Path | None
    agent: Path
    notes: tuple[str, ...]
    say: Callable[[str], None]
    cache: Path

    async def into(self, draft: Path, folder: Path) -> None:
        """Build in ``draft``, and publish as ``folder``."""
        tree = draft / "box" / TREE
        debs = draft / "debs"
        debs.mkdir()
        count = len(self.packages)
        self.say(f"toolbox {self.kind}: downloading {count} packages")
        files = await download_all(self.host, self.packages, debs)
        self.say(f"toolbox {self.kind}: unpacking {count} packages")
        tree.mkdir(parents=True)
        await trees.unpack(self.host, files, tree)
        if self.kind == "build":
            self.say(f"toolbox {self.kind}: unpacking the kernel's source")
            await trees.unpack_kernel(self.host, tree)
        if self.kind in WITH_HADOOP:
            self.say(f"toolbox {self.kind}: letting Maven fetch Hadoop")
            await fetch_hadoop(self.host, self.cache, draft / "hadoop")
            await asyncio.to_thread(add_hadoop, tree, draft / "hadoop")
        if self.kind == "analytics":
            self.say(f"toolbox {self.kind}: letting Maven fetch Spark, Mahout and Hive")
            await fetch_analytics(self.host, self.cache, draft / "analytics")
            await add_analytics(self.host, tree, draft / "analytics")
        shutil.rmtree(debs)
        self.say(f"toolbox {self.kind}: making the applications' inputs")
        await asyncio.to_thread(trees.settle, tree)
        await asyncio.to_thread(trees.add_inputs, tree)
        if self.jar is not None:
            shutil.copyfile(self.jar, tree / INPUTS / "scimark.jar")
        await asyncio.to_thread(trees.require_programs, tree, self.kind)
        self.say(f"toolbox {self.kind}: running every program once")
        about = tree / ABOUT
        about.parent.mkdir(parents=True, exist_ok=True)
        about.write_text(self._description({}))
        expected = await expected_outputs(
            self.host, self.agent, tree, self.kind, self.jar is not None
        )
        about.write_text(self._description(expected))
        await asyncio.to_thread(trees.make_uniform, tree)
        if self.kind in WITH_HADOOP:
            self.say(f"toolbox {self.kind}: running Hadoop once, to keep its daemons' classes")
            await add_class_archive(self.host, self.agent, tree, draft / "scratch")
            await asyncio.to_thread(trees.make_uniform, tree)
            await require_class_archive(self.host, self.agent, tree)
        self.say(f"toolbox {self.kind}: making the image")
        await make_image(self.host, tree, tree, tree.parent / IMAGE)
        facts = {
            "kind": self.kind,
            "packages": {part.name: part.version for part in self.packages},
            "notes": list(self.notes),
        }
        await asyncio.to_thread(publish_toolbox, tree, folder, facts)

    def _description(self, expected: Mapping[str, str]) -> str:
        description = {
            "kind": self.kind,
            "key": self.key,
            "programs": {
                name: {"path": program.path, "package": program.package}
                for name, program in PROGRAMS[self.kind].items()
            },
            "expected": dict(expected),
        }
        return json.dumps(description, indent=1, sort_keys=True) + "\n"
