"""Values of JSON and YAML, by their places."""

from __future__ import annotations

from collections.abc import Iterator

MOST_LEAVES = 5_000
DEEPEST = 60


def leaves(value: object, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield each value with its place, such as ``drives.0.path``.

    Raises:
        ValueError: There are too many, as aliases of YAML can make of a short text.
    """
    count = 0
    stack: list[tuple[str, object, int]] = [(place, value, 0)]
    while stack:
        name, held, depth = stack.pop()
        count += 1
        if count > MOST_LEAVES or depth > DEEPEST:
            raise ValueError("is too large for a description")
        inner: list[tuple[str, object]] = []
        if isinstance(held, dict):
            inner = [(str(key), each) for key, each in held.items()]
        elif isinstance(held, list):
            inner = [(str(key), each) for key, each in enumerate(held)]
        else:
            yield name, text_of(held)
            continue
        if not inner:
            yield name, ""
        for key, each in reversed(inner):
            stack.append((f"{name}.{key}" if name else key, each, depth + 1))


def text_of(value: object) -> str:
    """Return a value as text: ``on`` and ``off`` for true and false."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else str(value)
