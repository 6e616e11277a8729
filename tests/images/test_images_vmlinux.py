import pytest
from hypothesis import given
from hypothesis import strategies as st

from images import images_fakes as fakes
from tare.images.vmlinux import NotExtractable, extract, has_pvh_entry

KERNEL = fakes.pvh_kernel()


@pytest.mark.parametrize("name", fakes.COMPRESSORS)
def test_the_elf_comes_out_of_every_compression(name: str) -> None:
    payload = fakes.with_size(fakes.COMPRESSORS[name](KERNEL), KERNEL)
    assert extract(fakes.bzimage(payload)) == KERNEL


def test_lz4_blocks_of_eight_mebibytes_are_joined() -> None:
    kernel = KERNEL + bytes(20 << 20)
    payload = fakes.with_size(fakes.lz4_legacy(kernel), kernel)
    assert extract(fakes.bzimage(payload)) == kernel


def test_an_elf_is_taken_as_it_is() -> None:
    assert extract(KERNEL) == KERNEL


@pytest.mark.parametrize("name", fakes.COMPRESSORS)
def test_a_truncated_payload_is_reported(name: str) -> None:
    compressed = fakes.COMPRESSORS[name](KERNEL)
    with pytest.raises(NotExtractable, match=f"{name} payload is damaged"):
        extract(fakes.bzimage(compressed[:-8]))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "neither a bzImage nor an ELF"),
        (b"#!/bin/sh\n" * 100, "neither a bzImage nor an ELF"),
        (fakes.bzimage(b"\x89LZO" + bytes(60)), "lzo"),
        (fakes.bzimage(b"what" + bytes(60)), "not known"),
        (fakes.bzimage(b""), "cut short"),
        (fakes.bzimage(fakes.COMPRESSORS["gzip"](b"no kernel")), "not an ELF"),
        (fakes.bzimage(bytes(900))[:2300], "cut short"),
    ],
)
def test_content_without_a_kernel_is_refused_with_the_reason(content: bytes, reason: str) -> None:
    with pytest.raises(NotExtractable, match=reason):
        extract(content)


@pytest.mark.fuzz
@given(st.sampled_from(sorted(fakes.COMPRESSORS)), st.data())
def test_damage_is_never_more_than_a_reason(name: str, data: st.DataObject) -> None:
    image = bytearray(fakes.bzimage(fakes.with_size(fakes.COMPRESSORS[name](KERNEL), KERNEL)))
    for _ in range(data.draw(st.integers(1, 8))):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    try:
        kernel = extract(bytes(image[: data.draw(st.integers(0, len(image)))]))
    except NotExtractable:
        return
    has_pvh_entry(kernel)


@pytest.mark.fuzz
@given(st.binary(max_size=300))
def test_the_note_is_sought_in_any_bytes(noise: bytes) -> None:
    assert not has_pvh_entry(noise)
    has_pvh_entry(KERNEL[:64] + noise)


def test_the_pvh_note_is_found() -> None:
    assert has_pvh_entry(KERNEL)
    assert not has_pvh_entry(fakes.elf({b".notes": b"\4\0\0\0\4\0\0\0\1\0\0\0GNU\0abcd"}))
