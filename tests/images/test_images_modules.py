import gzip
import lzma
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from images import images_fakes as fakes
from tare.images.modules import ModuleTree, modinfo
from tare.images.vmlinux import NotExtractable

GRAPHS = st.integers(1, 9).flatmap(
    lambda count: st.tuples(
        *(
            st.sets(st.integers(0, number - 1)) if number else st.just(set())
            for number in range(count)
        )
    )
)


@settings(max_examples=40)
@given(GRAPHS, st.data())
def test_each_module_comes_after_what_it_needs(
    tmp_path_factory: pytest.TempPathFactory, graph: tuple[set[int], ...], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("modules")
    for number, needed in enumerate(graph):
        (root / f"m-{number}.ko").write_bytes(fakes.module([f"m_{each}" for each in needed]))
    wanted = data.draw(st.lists(st.integers(0, len(graph) - 1)))
    order = [
        part.name for part in ModuleTree(root).sort_by_dependency(f"m-{each}" for each in wanted)
    ]
    assert len(set(order)) == len(order)
    assert {f"m_{each}" for each in wanted} <= set(order)
    for name in order:
        for each in graph[int(name[2:])]:
            assert order.index(f"m_{each}") < order.index(name)


def test_modules_that_need_each_other_do_not_hang(tmp_path: Path) -> None:
    (tmp_path / "a.ko").write_bytes(fakes.module(["b"]))
    (tmp_path / "b.ko").write_bytes(fakes.module(["a"]))
    names = [part.name for part in ModuleTree(tmp_path).sort_by_dependency(["a"])]
    assert sorted(names) == ["a", "b"]


def test_compressed_modules_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.ko.xz").write_bytes(lzma.compress(fakes.module(["b"])))
    (tmp_path / "b.ko.gz").write_bytes(gzip.compress(fakes.module(["c"])))
    (tmp_path / "c.ko.zst").write_bytes(zstandard.ZstdCompressor().compress(fakes.module()))
    order = ModuleTree(tmp_path).sort_by_dependency(["a"])
    assert [part.name for part in order] == ["c", "b", "a"]
    assert all(part.data.startswith(b"\x7fELF") for part in order)


def test_built_in_modules_are_neither_loaded_nor_missing(tmp_path: Path) -> None:
    (tmp_path / "modules.builtin").write_text("kernel/drivers/virtio/virtio-pci.ko\n")
    tree = ModuleTree(tmp_path)
    assert tree.missing(["virtio_pci", "e1000"]) == ("e1000",)
    assert tree.sort_by_dependency(["virtio_pci"]) == ()


@pytest.mark.fuzz
@given(st.binary(max_size=400))
def test_any_bytes_give_information_or_a_reason(noise: bytes) -> None:
    for content in (noise, fakes.module()[:70] + noise):
        try:
            modinfo(content)
        except NotExtractable:
            continue


def test_a_text_file_is_not_a_module() -> None:
    with pytest.raises(NotExtractable, match="ELF"):
        modinfo(b"hello")
