"""Verify a job's output by comparing it with the output of programs that do not use Hadoop."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tare.workloads.values import words

EXPECTED, MADE = "expected", "counted"
"""The steps that print the SHA-256 of the expected output and of the job's output."""


def made_sum(folder: str) -> str:
    """Return a shell script that prints the SHA-256 of the sorted lines of a job's output."""
    kept = "/tmp/hadoop/made"
    return f"parts {folder} >{kept} && sort {kept} | sha256sum; code=$?; rm -f {kept}; exit $code\n"


def differing(results: Mapping[str, Any], wrong: str) -> str:
    """Compare the checksums of an output and the expected one; return a message, or empty if equal.

    Args:
        results: The results of the steps :data:`EXPECTED` and :data:`MADE`.
        wrong: The beginning of the message if they differ.
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
