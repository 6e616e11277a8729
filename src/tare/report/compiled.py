"""Keep compiled templates beside the compiled modules, as Python keeps those."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from tare.outputs import put

FOLDER = Path(__file__).parent / "__pycache__"


class Compiled(BytecodeCache):
    """Compiled templates in a folder; where nothing can be kept, templates are compiled anew.

    Args:
        folder: Where they are kept; it is not made.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def load_bytecode(self, bucket: Bucket) -> None:
        """Take what is kept; of what is damaged, or of another Python or template, nothing."""
        # Whatever may be wrong with the file, the template itself is there.
        with contextlib.suppress(Exception):
            bucket.bytecode_from_string(self._path(bucket).read_bytes())

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep it, if there is room and leave to."""
        if sys.dont_write_bytecode:
            return
        with contextlib.suppress(OSError):
            put(self._path(bucket), bucket.bytecode_to_string())

    def _path(self, bucket: Bucket) -> Path:
        return self._folder / f"template-{bucket.key}.jinja"
