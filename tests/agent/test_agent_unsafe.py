"""What of the agent the compiler cannot check: no more than measuring needs."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "agent" / "src"
MOST = 44
"""Blocks that may be unsafe; of the kernel's calls rustix has all others (`tare help security`)."""
_BLOCK = re.compile(r"\bunsafe\s*(\{|fn|impl)")


def test_no_more_is_unsafe_than_measuring_needs() -> None:
    found = {
        str(path.relative_to(SOURCE)): len(_BLOCK.findall(path.read_text()))
        for path in SOURCE.rglob("*.rs")
    }
    assert sum(found.values()) == MOST, {name: count for name, count in found.items() if count}
    says = (Path(__file__).parents[2] / "docs" / "explanation" / "security.md").read_text()
    assert f"{MOST} blocks" in says
