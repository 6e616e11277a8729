"""Processes that hold thousands of connections, begun where few files may be open."""

from __future__ import annotations

import resource
import subprocess

from tare.hosts.processes import MOST_DESCRIPTORS, with_most_descriptors

FEW = 256


def test_a_process_may_open_as_many_files_as_it_may_get() -> None:
    hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 4096)

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))

    output = subprocess.run(
        with_most_descriptors(
            ["sh", "-c", 'echo "$(ulimit -S -n) $(ulimit -H -n) $1"', "sh", "a b"]
        ),
        preexec_fn=lower,
        capture_output=True,
        check=True,
        text=True,
    )
    soft, most, words = output.stdout.strip().split(" ", 2)
    # Root raises the hard limit too, unless its container forbids it.
    assert (int(soft), int(most)) in {(hard, hard), (MOST_DESCRIPTORS, MOST_DESCRIPTORS)}
    assert words == "a b", "a command's words are kept as they are"
