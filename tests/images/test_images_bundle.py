"""Bundles: the same bytes each time, and nothing but an intact one is imported."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from images import images_fakes as fakes
from images.host_trees import image
from tare.errors import InputError
from tare.hosts import LocalHost
from tare.images import cache as store
from tare.images.bundle import exporting, importing, installed
from tare.images.bundle.archive import (
    LICENCES,
    BundleEntry,
    BundleMember,
    BundleReader,
    KernelPart,
    Manifest,
    ToolboxPart,
    header_of,
    parse_manifest,
    write_bundle,
)
from tare.images.bundle.exporting import export_bundle
from tare.images.bundle.importing import import_bundle
from tare.images.bundle.index import INDEX, read_index
from tare.images.bundle.installed import import_installed
from tare.images.kernels import Kernel, find_kernel, missing_kernels
from tare.images.toolbox.toolbox import IMAGE, Toolbox, prepare_toolbox, recipe_of, toolboxes

KEY, BOX = "a1" * 32, "b2" * 32
TREE = f"toolbox/{BOX}/tree"
MACHINE = os.uname().machine
V = fakes.VERSION
Content = bytes | str | Path | None
CONTENTS: dict[str, Content] = {
    f"kernels/{KEY}": None,
    f"kernels/{KEY}/copyright": None,
    f"kernels/{KEY}/copyright/linux-image": b"GPL-2\n",
    f"kernels/{KEY}/modules": None,
    f"kernels/{KEY}/modules/{V}": None,
    f"kernels/{KEY}/modules/{V}/virtio.ko": fakes.module(),
    f"kernels/{KEY}/vmlinuz": image(),
    f"toolbox/{BOX}": None,
    f"toolbox/{BOX}/tree": None,
    f"toolbox/{BOX}/tree/bin": "usr/bin",
    f"toolbox/{BOX}/tree/usr": None,
    f"toolbox/{BOX}/tree/usr/bin": None,
    f"toolbox/{BOX}/tree/usr/bin/awk": "/usr/bin/mawk",
    f"toolbox/{BOX}/tree/usr/bin/mawk": b"\x7fELF awk",
    f"toolbox/{BOX}/tree/usr/empty": b"",
    f"toolbox/{BOX}/tree/usr/same": Path("usr/bin/mawk"),
}
"""What the small bundle of these tests holds: folders, links (text), files (bytes), and another
name of a file (a path in the tree)."""


def entry(path: str, content: Content, **more: Any) -> BundleEntry:
    if content is None:
        return BundleEntry(path=path, kind="folder")
    if isinstance(content, Path):
        return BundleEntry(path=path, kind="hardlink", target=f"{TREE}/{content}")
    if isinstance(content, str):
        return BundleEntry(path=path, kind="link", target=content)
    digest = hashlib.sha256(content).hexdigest()
    given: dict[str, Any] = {"path": path, "size": len(content), "sha256": digest, **more}
    return BundleEntry(**{"executable": path.endswith("mawk"), **given})


async def fake_image(host: object, tools: Path, tree: Path, image: Path) -> None:
    """Stand for mkfs: what is in the tree, with modes and links, by which an image is known."""
    shown = {
        path.relative_to(tree).as_posix(): (
            str(path.readlink()) if path.is_symlink() else path.stat().st_mode,
            path.lstat().st_nlink if path.is_file() else 0,
            path.read_bytes().hex() if path.is_file() and not path.is_symlink() else "",
        )
        for path in sorted(tree.rglob("*"))
    }
    image.write_text(json.dumps(shown))


@pytest.fixture(autouse=True)
def no_mkfs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "make_image", fake_image)


def image_digest(tmp_path: Path) -> str:
    tree = tmp_path / "for-digest"
    for path, content in CONTENTS.items():
        inside = path.removeprefix(f"toolbox/{BOX}/tree")
        if inside == path or not inside:
            continue
        place = tree / inside[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            place.mkdir(exist_ok=True)
        elif isinstance(content, Path):
            place.hardlink_to(tree / content)
        elif isinstance(content, str):
            place.symlink_to(content)
        else:
            place.write_bytes(content)
            place.chmod(0o755 if place.name == "mawk" else 0o644)
    for folder in [path for path in tree.rglob("*") if path.is_dir() and not path.is_symlink()]:
        folder.chmod(0o755)
    asyncio.run(fake_image(None, tree, tree, tmp_path / "image"))
    return store.file_digest(tmp_path / "image")


def manifest_of(digest: str = "c3" * 32, **more: Any) -> Manifest:
    content: dict[str, Any] = {
        "format": 1,
        "made_by": "Tare 0",
        "machine": MACHINE,
        "kernels": {"rt": KernelPart(key=KEY, version=V, packages={"linux-image": "1"})},
        "toolboxes": {
            "base": ToolboxPart(
                key=BOX, recipe=recipe_of("base"), digest=digest, packages={"mawk": "1"}, notes=[]
            )
        },
        "entries": [entry(LICENCES, b"all"), *(entry(*each) for each in CONTENTS.items())],
    }
    return Manifest(**(content | more))


def written(folder: Path, manifest: Manifest, contents: Sequence[Content]) -> bytes:
    folder.mkdir(exist_ok=True)
    members = []
    for number, (each, content) in enumerate(zip(manifest.entries, contents, strict=True)):
        source = None
        if isinstance(content, bytes):
            source = folder / str(number)
            source.write_bytes(content)
        members.append(BundleMember(each, source))
    out = io.BytesIO()
    for _ in write_bundle(out, manifest, members):
        pass
    return out.getvalue()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("bundle")
    manifest = manifest_of(image_digest(folder))
    return written(folder / "parts", manifest, [b"all", *CONTENTS.values()])


async def imported(content: bytes, tmp_path: Path) -> Path:
    file, cache = tmp_path / "x.bundle", tmp_path / "cache"
    file.write_bytes(content)
    await import_bundle(LocalHost(), file, cache, say=lambda _: None)
    return cache


def nothing_imported(cache: Path) -> bool:
    left = [path for path in cache.rglob("*") if path.name != "lock"] if cache.exists() else []
    return left == []


async def test_an_imported_bundle_is_used_on_a_host_without_apt(
    bundle: bytes, tmp_path: Path
) -> None:
    cache = await imported(bundle, tmp_path)
    host = fakes.FakeHost(no_such_command, {"/etc/os-release": b"ID=fedora\nPRETTY_NAME=Fedora\n"})
    kernel = await find_kernel(host, "rt", cache)
    assert kernel.file.read_bytes() == image()
    assert kernel.version == V
    box = await prepare_toolbox(host, "base", agent=tmp_path, cache=cache)
    assert box.cached and (box.tree / "usr/bin/awk").readlink() == Path("/usr/bin/mawk")
    assert {each.name for each in box.tree.iterdir()} == {"bin", "usr"}
    assert (box.tree / "usr/bin/mawk").stat().st_mode & 0o777 == 0o755
    assert (box.tree / "usr/same").samefile(box.tree / "usr/bin/mawk")
    assert [each.key for each in toolboxes(cache)] == [BOX]
    found = await missing_kernels(host, cache, None)
    missing = found.missing
    assert "rt" not in missing
    assert "Fedora has no apt" in missing["generic"]
    assert "tare image import FILE" in found.remedy
    assert (cache / f"imported-{LICENCES}").read_bytes() == b"all"


def no_such_command(argv: Sequence[str]) -> Any:
    if argv[0] in ("uname",):
        return subprocess.CompletedProcess(argv, 0, MACHINE.encode(), b"")
    raise InputError(f"there is no command {argv[0]}")


async def test_a_bundle_is_an_ordinary_archive(bundle: bytes, tmp_path: Path) -> None:
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(bundle)
    listed = subprocess.run(["tar", "-tf", "-"], input=plain, capture_output=True, check=True)
    names = [name.rstrip("/") for name in listed.stdout.decode().splitlines()]
    assert names == ["manifest.json", LICENCES, *CONTENTS]


def test_the_same_content_gives_the_same_bytes(tmp_path: Path, bundle: bytes) -> None:
    folder = tmp_path / "again"
    folder.mkdir()
    manifest = manifest_of(image_digest(folder))
    assert written(folder / "parts", manifest, [b"all", *CONTENTS.values()]) == bundle


def unpacked(bundle: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(bundle)


def packed(plain: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(plain)


def with_manifest(bundle: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Return a bundle whose manifest says something else, and whose other bytes are the same."""
    plain = unpacked(bundle)
    size = int(plain[124:136].rstrip(b"\0 "), 8)
    manifest = json.loads(plain[512 : 512 + size])
    change(manifest)
    text = json.dumps(manifest).encode()
    head = header_of(BundleEntry(path="manifest.json", size=len(text))) + text
    rest = plain[512 + size + (-size % 512) :]
    return packed(head + b"\0" * (-len(text) % 512) + rest)


def sets(*path: Any) -> Callable[[dict[str, Any]], None]:
    *way, last, value = path

    def change(manifest: dict[str, Any]) -> None:
        place: Any = manifest
        for step in way:
            place = place[step]
        place[last] = value

    return change


def adds(*entries: BundleEntry) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["entries"].extend(each.model_dump() for each in entries)


WRONG: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "another architecture": (sets("machine", "riscv64"), "is for riscv64, and this computer is"),
    "a newer format": (sets("format", 2), "has format 2.*update Tare here"),
    "an older format": (sets("format", 0), "has format 0.*export it again"),
    "no format": (lambda manifest: manifest.pop("format"), "manifest .* is damaged"),
    "a path out": (adds(entry(f"{TREE}/../../../../etc/passwd", b"x")), "leads out of it"),
    "an absolute path": (adds(entry("/etc/passwd", b"x")), "leads out of it"),
    "a path to nowhere": (adds(entry(f"{TREE}//x", b"x")), "leads out of it"),
    "a control character": (adds(entry(f"{TREE}/a\nb", b"x")), "leads out of it"),
    "a path of its own": (adds(entry("lock", b"x")), "belongs to no kernel or toolbox"),
    "a path of another key": (adds(entry(f"kernels/{'d' * 64}", None)), "belongs to no kernel"),
    "a link that leads out": (adds(entry(f"{TREE}/l", "../../../../etc")), "link .* leads out"),
    "a link out of a folder": (adds(entry(f"{TREE}/usr/l", "../../x")), "link .* leads out"),
    "a link in a kernel": (adds(entry(f"kernels/{KEY}/l", "vmlinuz")), "link .* leads out"),
    "a file below a link": (
        adds(entry(f"{TREE}/l", "/etc"), entry(f"{TREE}/l/passwd", b"x")),
        "folder of .* is not listed before it",
    ),
    "a file without its folder": (adds(entry(f"{TREE}/no/x", b"x")), "folder of .* not listed"),
    "a file twice": (adds(entry(f"{TREE}/usr/bin/mawk", b"x")), "lists .* twice"),
    "another name of what is elsewhere": (
        adds(BundleEntry(path=f"{TREE}/h", kind="hardlink", target="/etc/passwd")),
        "no earlier file",
    ),
    "another name of what is in no toolbox": (
        adds(BundleEntry(path=f"{TREE}/h", kind="hardlink", target=LICENCES)), "no earlier file",
    ),
    "another name of a link": (
        adds(BundleEntry(path=f"{TREE}/h", kind="hardlink", target=f"{TREE}/bin")),
        "no earlier file",
    ),
    "a folder with content": (
        adds(BundleEntry(path=f"{TREE}/x", kind="folder", size=1, sha256="a" * 64)),
        "is not a file",
    ),
    "a file without digest": (adds(BundleEntry(path=f"{TREE}/x", size=1)), "lacks its digest"),
    "a link to nothing": (
        adds(BundleEntry(path=f"{TREE}/x", kind="link")), "lacks its digest or target",
    ),
    "a kernel that is not in it": (
        sets("kernels", "generic", {"key": "e" * 64, "version": V, "packages": {}}), "is not in it",
    ),
    "a kernel named like an option": (sets("kernels", "--x", {}), "damaged at kernels"),
    "a version that is a path": (sets("kernels", "rt", "version", "../../x"), "damaged at kernels"),
    "an unknown toolbox": (sets("toolboxes", "evil", {}), "damaged at toolboxes"),
    "a negative size": (sets("entries", 0, "size", -1), "damaged at entries"),
    "a huge size": (sets("entries", 0, "size", 1 << 60), "damaged at entries"),
    "an unknown key": (sets("entries", 0, "owner", "root"), "damaged at entries"),
    "a device": (sets("entries", 0, "kind", "device"), "damaged at entries"),
    "another size": (sets("entries", 0, "size", 4), "does not hold what it lists"),
    "another digest": (sets("entries", 0, "sha256", "f" * 64), "the digest of LICENCES.txt"),
    "another kernel": (sets("kernels", "rt", "version", "1.2.3"), "its kernel 1.2.3 is not one"),
    "another image": (sets("toolboxes", "base", "digest", "0" * 64), "gives another image here"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
async def test_a_faulty_bundle_is_one_clear_error_and_nothing_is_imported(
    bundle: bytes, tmp_path: Path, name: str
) -> None:
    change, message = WRONG[name]
    with pytest.raises(InputError, match=message):
        await imported(with_manifest(bundle, change), tmp_path)
    assert nothing_imported(tmp_path / "cache")
    assert not (tmp_path / "etc").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", packed(b"x" * 2000)])
async def test_a_file_that_is_not_a_bundle_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match="is not a bundle of Tare"):
        await imported(content, tmp_path)
    assert nothing_imported(tmp_path / "cache")


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.bundle cannot be read: No such file"):
        await import_bundle(LocalHost(), tmp_path / "no.bundle", tmp_path, say=print)


@settings(max_examples=60, deadline=None)
@given(st.data())
@pytest.mark.fuzz
def test_no_damage_is_imported(
    bundle: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    plain = data.draw(st.booleans())
    content = bytearray(unpacked(bundle) if plain else bundle)
    match data.draw(st.sampled_from(["cut", "flip", "insert", "append"])):
        case "cut":
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        case "flip":
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        case "insert":
            at = data.draw(st.integers(0, len(content)))
            content[at:at] = data.draw(st.binary(min_size=1, max_size=600))
        case "append":
            content += data.draw(st.binary(min_size=1, max_size=600))
    broken = packed(bytes(content)) if plain else bytes(content)
    folder = tmp_path_factory.mktemp("damaged")
    try:
        cache = asyncio.run(imported(broken, folder))
    except InputError:
        assert nothing_imported(folder / "cache")
    else:
        # Bytes behind a zstd frame, or of its header that mean nothing, change no content.
        assert not plain or unpacked(broken) == unpacked(bundle)
        assert (cache / "kernels" / KEY / "vmlinuz").read_bytes() == image()


@pytest.mark.fuzz
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["format", "made_by", "machine", "kernels", "toolboxes", "entries"])
                | st.text(max_size=5),
                inner,
                max_size=6,
            )
        ),
        max_leaves=20,
    )
)
def test_any_manifest_is_read_or_refused(given_value: object) -> None:
    with suppress(InputError):
        parse_manifest(json.dumps(given_value).encode(), MACHINE, "x")


@pytest.mark.fuzz
@given(st.binary(max_size=2000))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for each in (content, packed(content)):
        with suppress(InputError):
            BundleReader(io.BytesIO(each), "x").manifest(MACHINE)


async def test_an_import_that_is_interrupted_leaves_nothing(
    bundle: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: object) -> None:
        await asyncio.sleep(600)

    monkeypatch.setattr(importing, "make_image", hangs)
    task = asyncio.ensure_future(imported(bundle, tmp_path))
    while not list((tmp_path / "cache").glob("draft-*/toolbox/*/tree/usr/empty")):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert nothing_imported(tmp_path / "cache")


async def test_where_the_last_step_fails_the_first_ones_are_taken_back(
    bundle: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(importing, "publish_toolbox", full)
    with pytest.raises(InputError, match="No space left"):
        await imported(bundle, tmp_path)
    assert not list((tmp_path / "cache").rglob("vmlinuz"))
    assert not (tmp_path / "cache" / INDEX).exists()


async def test_an_import_needs_room_and_says_how_much(
    bundle: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(InputError, match=r"importing needs 2\d\d MiB .* 1 MiB are free"):
        await imported(bundle, tmp_path)


@pytest.mark.parametrize("what", ["kernel rt", "toolbox base"])
async def test_entries_damaged_after_their_import_are_not_used(
    bundle: bytes, tmp_path: Path, what: str
) -> None:
    cache = await imported(bundle, tmp_path)
    (cache / "kernels" / KEY / "vmlinuz").write_bytes(b"rubbish")
    (cache / "toolbox" / BOX / IMAGE).write_bytes(b"rubbish")
    with pytest.raises(InputError, match=f"imported {what} .* damaged.*tare image import"):
        if what.startswith("kernel"):
            await find_kernel(LocalHost(), "rt", cache)
        else:
            await prepare_toolbox(LocalHost(), "base", agent=tmp_path, cache=cache)
    await imported(bundle, tmp_path)
    assert (await find_kernel(LocalHost(), "rt", cache)).file.read_bytes() == image()


async def test_imported_entries_are_never_removed_for_disuse(bundle: bytes, tmp_path: Path) -> None:
    cache = await imported(bundle, tmp_path)
    for folder in (cache / "kernels" / KEY, cache / "toolbox" / BOX):
        os.utime(folder, (1, 1))
    async with store.exclusive(cache):
        pass
    assert read_index(cache).keys == {KEY, BOX}
    assert (cache / "kernels" / KEY).is_dir() and (cache / "toolbox" / BOX).is_dir()


async def test_a_toolbox_of_another_tare_is_named_where_none_can_be_built(
    bundle: bytes, tmp_path: Path
) -> None:
    other = with_manifest(bundle, sets("toolboxes", "base", "recipe", "of last year"))
    cache = await imported(other, tmp_path)
    host = fakes.FakeHost(no_such_command, {"/etc/os-release": b"PRETTY_NAME=Arch\n"})
    with pytest.raises(
        InputError, match=r"toolbox base is of another version of Tare.*Arch has no"
    ):
        await prepare_toolbox(host, "base", agent=tmp_path, cache=cache)


async def test_an_installed_package_brings_its_bundle_once(
    bundle: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "images.bundle"
    file.write_bytes(bundle)

    class Point:
        name = "images"
        dist = None

        def load(self) -> Callable[[], Path]:
            return lambda: file

    monkeypatch.setattr(installed, "entry_points", lambda group: [Point()])
    messages: list[str] = []
    cache = tmp_path / "cache"
    for _ in range(2):
        await import_installed(LocalHost(), cache, messages.append)
    assert [each for each in messages if "package images" in each] == [messages[0]]
    # What the cache lost is brought again.
    (cache / "kernels" / KEY).rename(cache / "gone")
    await import_installed(LocalHost(), cache)
    assert (await find_kernel(LocalHost(), "rt", cache)).version == V
    file.write_bytes(bundle[:-9])
    os.utime(file, (1, 1))
    with pytest.raises(
        InputError, match=r"images\.bundle is not a bundle of Tare, or its beginning is damaged"
    ):
        await import_installed(LocalHost(), cache)


@pytest.fixture
def small_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay a kernel and a toolbox into a cache, as they are built from packages."""
    cache = tmp_path / "own-cache"
    for path, content in CONTENTS.items():
        if content is None:
            (cache / path).mkdir(parents=True)
        elif isinstance(content, Path):
            (cache / path).hardlink_to(cache / TREE / content)
        elif isinstance(content, str):
            (cache / path).symlink_to(content)
        else:
            (cache / path).write_bytes(content)
    (cache / TREE / "usr/bin/mawk").chmod(0o755)
    top, box = cache / "kernels" / KEY, cache / "toolbox" / BOX

    async def kernel(*_: object) -> Kernel:
        modules = top / "modules" / V
        return Kernel(top / "vmlinuz", modules, V, KEY, (), {"linux-image": "1"})

    async def toolbox(*_: object, **__: object) -> Toolbox:
        await fake_image(None, box, box / "tree", tmp_path / "own-image")
        digest = store.file_digest(tmp_path / "own-image")
        return Toolbox("base", BOX, box / IMAGE, digest, box / "tree", {"mawk": "1"}, ())

    monkeypatch.setattr(exporting, "find_kernel", kernel)
    monkeypatch.setattr(exporting, "prepare_toolbox", toolbox)
    return cache


async def exported(cache: Path, out: Path) -> Manifest:
    return await export_bundle(
        LocalHost(), out, made_by="Tare 1", kernels=["rt", "rt"], toolboxes=["base"],
        agent=cache, cache=cache, say=lambda _: None,
    )  # fmt: skip


async def test_an_export_is_imported_and_gives_the_same_bytes_again(
    small_parts: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one.bundle", tmp_path / "two.bundle"
    await exported(small_parts, one)
    await exported(small_parts, two)
    assert one.read_bytes() == two.read_bytes()
    cache = await imported(one.read_bytes(), tmp_path)
    assert read_index(cache).kernels == {"rt": KEY}
    notice = (cache / f"imported-{LICENCES}").read_text()
    assert f"licence: kernels/{KEY}/copyright/linux-image" in notice
    assert "linux-image 1\n    source: linux-image 1" in notice
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize("moment", ["cancelled", "changed"])
async def test_an_export_that_does_not_end_leaves_no_file(
    small_parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    out = tmp_path / "x.bundle"

    def breaks(*arguments: Any) -> Any:
        for number, done in enumerate(write_bundle(*arguments)):
            if number == 1 and moment == "cancelled":
                raise KeyboardInterrupt
            if number == 1:
                (small_parts / "kernels" / KEY / "vmlinuz").write_bytes(b"another")
            yield done

    monkeypatch.setattr(exporting, "write_bundle", breaks)
    with pytest.raises((KeyboardInterrupt, InputError)):
        await exported(small_parts, out)
    assert [path.name for path in tmp_path.iterdir() if "bundle" in path.name] == []


async def test_an_export_into_no_folder_says_so(small_parts: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere/x cannot be written: No such file"):
        await exported(small_parts, tmp_path / "nowhere" / "x")
