"""A host's part on this computer, whose kernel is what a file says: ``TARE_TEST_KERNEL``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tare.fleet import site
from tare.run.hosts.host_facts import host_facts
from tare.run.lifecycle import session


def _facts() -> dict[str, Any]:
    return {**host_facts(), "kernel": Path(os.environ["TARE_TEST_KERNEL"]).read_text()}


if __name__ == "__main__":
    session.host_facts = _facts
    site.main()
