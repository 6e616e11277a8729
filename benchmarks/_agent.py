"""The options of benchmarks that run the agent on a CPU themselves."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks._runs import Unmeasured


def agent_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser that knows ``--agent`` and ``--cpu``.

    Args:
        module: The benchmark's name.
        description: What it measures.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=description)
    parser.add_argument("--agent", type=Path, default=Path(sys.executable).parent / "tare-agent")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)))
    return parser


def agent_of(options: argparse.Namespace) -> Path:
    """Return the agent that was chosen.

    Raises:
        Unmeasured: There is none.
    """
    agent: Path = options.agent
    if not agent.is_file():
        raise Unmeasured(f"{agent} is missing: run make setup")
    return agent.resolve()
