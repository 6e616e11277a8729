"""Verification of a job's output against that of other programs, which do not use Hadoop."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tare.workloads.values import words

EXPECTED, MADE = "expected", "counted"
"""The steps that print the SHA-256 of what must come, and of what came."""


def made_sum(folder: str) -> str:
    """Return a shell's script that prints the SHA-256 of a job's output, its lines in order."""
    kept = "/tmp/hadoop/made"
    return f"parts {folder} >{kept} && sort {kept} | sha256sum; code=$?; rm -f {kept}; exit $code\n"


def differing(results: Mapping[str, Any], wrong: str) -> str:
    """Return how an output differs from the expected one by the sums of both; empty if not.

    Args:
        results: The results of the steps :data:`EXPECTED` and :data:`MADE`.
        wrong: The message if they do.
    """
    sums = [
        re.findall(r"\b[0-9a-f]{64}\b", words(results[step], "output")) for step in (EXPECTED, MADE)
    ]
    if any(len(found) != 1 for found in sums):
        return "the output could not be compared: one of the checksums is missing"
    (expected,), (made,) = sums
    if expected != made:
        return f"{wrong}: the output's SHA-256 is {made}, not {expected}"
    return ""
