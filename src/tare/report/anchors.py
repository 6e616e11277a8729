"""What an effect is called in links, the same in every page that is made of its study."""

from __future__ import annotations

import hashlib

from tare.analysis.model import Key


def anchor_of(key: Key, arm: str, baseline: str = "") -> str:
    """Return an effect's name in links: letters and digits, whatever it is made of.

    Args:
        key: What was measured.
        arm: The arm.
        baseline: What it is compared with; empty for the comparison's baseline.
    """
    text = "\0".join((*key, arm, baseline))
    return f"e{hashlib.blake2b(text.encode('utf-8', 'replace'), digest_size=6).hexdigest()}"
