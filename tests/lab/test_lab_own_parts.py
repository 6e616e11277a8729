"""What the lab takes of the user's own: a Xen unpacked, a kernel laid out, sources asked for."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import InputError
from tare.hosts import LocalHost
from tare.images import cache as store
from tare.images.kernels import Kernel
from tare.lab import own_xen, xen_source
from tare.lab.host import check_room
from tare.lab.image import LabImage, _digest, _stage
from tare.lab.options import LabOptions

IMAGE = LabImage(Path("/x"), "d", "6.1", "4.17", {}, (), True, 0.0)


@pytest.mark.parametrize("packed", [False, True])
async def test_an_own_xen_is_booted_uncompressed_and_named_by_its_digest(
    tmp_path: Path, packed: bool
) -> None:
    content = b"\x7fELF and more"
    file = tmp_path / "xen"
    file.write_bytes(gzip.compress(content) if packed else content)
    options = LabOptions("xen", xen=str(file))
    cache = tmp_path / "cache"
    found = await own_xen.with_own_xen(LocalHost(), options, IMAGE, cache, None)
    assert found.xen.read_bytes() == content
    assert found.built == {
        "file": str(file),
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }
    # Again, from the cache; and with other content at the same name, from scratch.
    again = await own_xen.with_own_xen(LocalHost(), options, IMAGE, cache, None)
    assert again.xen == found.xen
    file.write_bytes(content + b"!")
    other = await own_xen.with_own_xen(LocalHost(), options, IMAGE, cache, None)
    assert other.xen.read_bytes() == content + b"!"


async def test_debians_xen_is_booted_where_nothing_else_was_asked(tmp_path: Path) -> None:
    for options in (LabOptions("xen"), LabOptions("xen", scheduler="credit"), LabOptions("kvm")):
        assert await own_xen.with_own_xen(LocalHost(), options, IMAGE, tmp_path, None) == IMAGE


async def test_a_xen_binary_that_has_disappeared_is_reported(tmp_path: Path) -> None:
    options = LabOptions("xen", xen=str(tmp_path / "none"))
    with pytest.raises(InputError, match="cannot be read"):
        await own_xen.with_own_xen(LocalHost(), options, IMAGE, tmp_path, None)


async def test_rtds_takes_the_xen_that_was_built_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "xen").write_bytes(b"built")
    facts = {"source": "xen_4", "sha256": "s"}
    store.publish(kept, tmp_path / "xens" / "key", facts)
    known = {"lists": own_xen._lists_state(), "recipe": own_xen.RECIPE, "key": "key"}
    (tmp_path / "xens" / "rtds.json").write_text(json.dumps(known))
    for options in (LabOptions("xen", scheduler="rtds"), LabOptions("xen", xen="rtds")):
        found = await own_xen.with_own_xen(LocalHost(), options, IMAGE, tmp_path, None)
        assert found.xen.read_bytes() == b"built"
        assert found.built == facts

    async def builds(*_: object) -> tuple[str, dict[str, object]]:
        raise InputError("it would be built")

    # Damaged, or of another recipe: it is not taken.
    monkeypatch.setattr(own_xen, "_build", builds)
    (tmp_path / "xens" / "key" / "xen").write_bytes(b"other")
    # A computer that cannot build one says that first.
    with pytest.raises(InputError, match=r"would be built|there is no dpkg-source"):
        await own_xen.xen_with_rtds(LocalHost(), tmp_path)


def test_a_kernel_of_ones_own_needs_its_modules(tmp_path: Path) -> None:
    file, modules = tmp_path / "vmlinuz", tmp_path / "modules"
    file.write_bytes(b"linux")
    (modules / "kernel").mkdir(parents=True)
    kernel = Kernel(file, modules, "6.6.1", "one")
    _stage(kernel, tmp_path / "staged")
    assert (tmp_path / "staged" / "boot" / "vmlinuz-6.6.1").read_bytes() == b"linux"
    assert (tmp_path / "staged" / "lib" / "modules" / "6.6.1" / "kernel").is_dir()
    with pytest.raises(InputError, match=r"no modules of 6\.6\.1"):
        _stage(replace(kernel, modules=None), tmp_path / "other")
    assert _digest((), (), kernel) != _digest((), (), replace(kernel, digest="two"))
    # A package that is asked for is kept whole, so its being named is part of the image.
    assert _digest((), (), kernel) != _digest((), (), kernel, ("lvm2",))


async def test_a_qemu_of_ones_own_is_asked_what_it_is(tmp_path: Path) -> None:
    for script, says in (("echo hello", "does not say that it is QEMU"), (None, "does not run")):
        file = tmp_path / f"qemu-{says[-4:]}"
        if script is not None:
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)
        with pytest.raises(InputError, match=says):
            await check_room(LocalHost(), LabOptions("kvm", qemu=str(file)), tmp_path)


def test_the_computers_archives_are_asked_for_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = tmp_path / "etc"
    (apt / "sources.list.d").mkdir(parents=True)
    (apt / "sources.list").write_text(
        "# one\ndeb [arch=amd64] mirror:x main\ndeb-src mirror:y main\n"
    )
    (apt / "sources.list.d" / "own.sources").write_text("Types: deb\nURIs: mirror:z\n")
    monkeypatch.setattr(xen_source, "_APT", apt)
    options = xen_source.private_lists(tmp_path / "own")
    assert f"Dir::State::Lists={tmp_path / 'own' / 'lists'}" in options
    lines, deb822 = sorted((tmp_path / "own" / "parts").iterdir())
    assert lines.read_text().splitlines()[1:] == [
        "deb-src [arch=amd64] mirror:x main",
        "deb-src mirror:y main",
    ]
    assert deb822.read_text().startswith("Types: deb-src\n")


@given(st.lists(st.from_regex(r"[0-9][0-9a-z.+~-]{0,12}", fullmatch=True), max_size=6))
def test_versions_are_read_as_apt_lists_them(versions: list[str]) -> None:
    shown = "".join(f"Package: xen\nVersion: {one}\nFormat: 3.0\n\n" for one in versions)
    assert list(xen_source.versions_of(shown)) == list(dict.fromkeys(versions))
