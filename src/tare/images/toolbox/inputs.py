"""The applications' inputs, made by Tare from nothing: the same bytes on every computer.

Integer arithmetic only, because a sine may differ in its last bit from one processor to the next.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

import numpy as np

from tare.images.toolbox.raw_picture import bayer_scene, dng

AUDIO_S = 20
AUDIO_RATE = 44_100
TEXT_BYTES = 8 << 20
PAGE_ITEMS = 6000
PICTURE = (2400, 1600)
SCENE_BALLS = 120
GAME_MOVES = 8


def hashes(count: int, seed: int) -> np.ndarray:
    """Return ``count`` pseudo-random 64-bit numbers.

    Source: splitmix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number generators",
    OOPSLA 2014) of a counter.
    """
    with np.errstate(over="ignore"):
        mixed = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def audio() -> bytes:
    """Return a WAV file: stereo, 16 bits, chords of triangle waves with noise between."""
    count = AUDIO_S * AUDIO_RATE
    time = np.arange(count, dtype=np.int64)
    beat = time // (AUDIO_RATE // 2)
    left = np.zeros(count, dtype=np.int64)
    right = np.zeros(count, dtype=np.int64)
    for voice, base in enumerate((220, 277, 330, 440, 554, 659, 880)):
        pitch = base + (beat * (voice + 3)) % 12 * (base // 12)
        phase = (time * pitch * 65_536 // AUDIO_RATE) & 0xFFFF
        wave = np.abs(phase - 32_768) - 16_384
        fade = 1000 - (time % (AUDIO_RATE // 2)) * 900 // (AUDIO_RATE // 2)
        loud = wave * fade // 8000
        left += loud * (8 - voice) // 8
        right += loud * (voice + 1) // 8
    noise = (hashes(2 * count, 1) % np.uint64(601)).astype(np.int64).reshape(2, count) - 300
    both = np.stack([left + noise[0], right + noise[1]], axis=1)
    data = np.clip(both, -32_768, 32_767).astype("<i2").tobytes()
    form = struct.pack("<HHIIHH", 1, 2, AUDIO_RATE, 4 * AUDIO_RATE, 4, 16)
    made: bytes = (
        b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<I", 16) + form
        + b"data" + struct.pack("<I", len(data)) + data
    )  # fmt: skip
    return made


_SYLLABLES = [
    "ba",
    "be",
    "bo",
    "da",
    "de",
    "di",
    "ka",
    "ko",
    "ku",
    "la",
    "le",
    "lo",
    "ma",
    "mi",
    "mu",
    "na",
    "ne",
    "no",
    "ra",
    "re",
    "ro",
    "sa",
    "se",
    "ta",
    "ti",
    "to",
    "ven",
]


def words(count: int, seed: int) -> list[str]:
    """Return made-up words, few of them often and many of them seldom."""
    numbers = hashes(4096 * 4, 77).reshape(4096, 4)
    known = [
        "".join(_SYLLABLES[int(part) % len(_SYLLABLES)] for part in row[: 1 + int(row[0]) % 4])
        for row in numbers
    ]
    drawn = hashes(2 * count, seed).reshape(2, count) % np.uint64(4096)
    chosen = drawn[0] * drawn[1] // np.uint64(4096)
    return [known[index] for index in chosen.tolist()]


def text() -> bytes:
    """Return a text of made-up words with numbers in it, for compressors."""
    drawn = words(TEXT_BYTES // 4, 2)
    for index in range(0, len(drawn), 17):
        drawn[index] = f"{drawn[index]}.\n{index * 7919 % 1_000_003}"
    return " ".join(drawn).encode()[:TEXT_BYTES]


def page() -> bytes:
    """Return an HTML page as people write it: tags left open, attributes without quotes."""
    drawn = words(PAGE_ITEMS * 12, 3)
    parts = ["<html><head><title>A page<body bgcolor=white><h1>Things<ul>"]
    for item in range(PAGE_ITEMS):
        some = drawn[item * 12 : item * 12 + 12]
        parts.append(
            f"<li><b>{some[0]} <i>{some[1]}</b></i> <a href={some[2]}.html>{some[3]}</a>"
            f"<p align=left>{' '.join(some[4:10])} & {some[10]}<br><font size=2>{some[11]}</font>"
        )
        if item % 40 == 39:
            parts.append(f"</ul><table border=1><tr><td>{some[5]}<td>{some[6]}</table><ul>")
    return "\n".join(parts).encode()


def picture() -> bytes:
    """Return a camera's raw picture."""
    return dng(bayer_scene(*PICTURE))


def scene() -> bytes:
    """Return a POV-Ray scene: mirrors and glass over a checkered floor, with soft shadows."""
    drawn = hashes(SCENE_BALLS * 5, 4).reshape(SCENE_BALLS, 5) % np.uint64(1000)
    lines = [
        "#version 3.7;",
        "global_settings { assumed_gamma 1.0 max_trace_level 6 }",
        "camera { location <0, 5, -14> look_at <0, 1.5, 0> angle 50 }",
        "light_source { <12, 16, -10>, 1 area_light <2, 0, 0>, <0, 0, 2>, 3, 3 }",
        "light_source { <-14, 9, -6>, 0.4 }",
        "background { color rgb <0.4, 0.5, 0.7> }",
        "plane { y, 0 pigment { checker color rgb 0.9 color rgb 0.2 } finish { reflection 0.1 } }",
    ]
    for x, z, size, tone, kind in drawn.tolist():
        radius = 0.2 + size / 1400
        surface = (
            "pigment { color rgbf <0.95, 0.98, 0.96, 0.85> } interior { ior 1.5 } "
            "finish { specular 0.6 }"
            if kind < 250
            else f"pigment {{ color rgb <{tone / 1000:.3f}, {kind / 1000:.3f}, 0.500> }} "
            f"finish {{ phong 0.7 reflection {kind / 3000:.3f} }}"
        )
        where = f"<{x / 80 - 6.25:.3f}, {radius:.3f}, {z / 80 - 4:.3f}>"
        lines.append(f"sphere {{ {where}, {radius:.3f} {surface} }}")
    return "\n".join((*lines, "")).encode()


def game() -> bytes:
    """Return what a Go program is asked: to play both sides from an opening, in GTP 2."""
    opening = ("black D4", "white K10", "black K4", "white D10", "black G7", "white F3")
    lines = ["boardsize 13", "komi 6.5", *(f"play {move}" for move in opening)]
    lines += [f"genmove {('black', 'white')[number % 2]}" for number in range(GAME_MOVES)]
    return "\n".join((*lines, "showboard", "quit", "")).encode()


INPUTS: Mapping[str, Callable[[], bytes]] = {
    "audio.wav": audio,
    "game.gtp": game,
    "page.html": page,
    "picture.dng": picture,
    "scene.pov": scene,
    "text.txt": text,
}
"""Each input's file name, and what makes it."""
