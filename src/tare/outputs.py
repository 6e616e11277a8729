"""Files for the user, written whole or not at all."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tare.errors import InputError


def put(path: Path, content: bytes | memoryview | str) -> None:
    """Write a file aside and give it its name once it is whole.

    What is no regular file, such as a pipe or a device, is written to as it is.

    Args:
        path: The file; replaced if it exists. Of a symbolic link, what it names.
        content: Bytes, or text that is encoded as UTF-8.

    Raises:
        OSError: It cannot be written; what was there before is still there.
    """
    data = content.encode() if isinstance(content, str) else content
    with aside(path) as file:
        file.write(data)


@contextmanager
def aside(path: Path) -> Iterator[IO[bytes]]:
    """Hold a file to write into, which is given the name ``path`` once all went well.

    Args:
        path: As of :func:`put`.

    Raises:
        OSError: It cannot be written; what was there before is still there.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    part = path.with_name(f".tare-{secrets.token_hex(4)}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def put_for_user(path: Path, content: bytes | str, hint: str) -> None:
    """Write a file that the user asked for by name, as :func:`put` does.

    Args:
        path: The file.
        content: Bytes, or text.
        hint: What to do where that fails.

    Raises:
        InputError: It cannot be written; says why.
    """
    try:
        put(path, content)
    except OSError as error:
        raise unwritable(path, error, hint) from error


def unwritable(path: Path, error: OSError, hint: str) -> InputError:
    """Return the error to raise for a place that cannot be written.

    Args:
        path: The place as the user knows it.
        error: What the system said.
        hint: What to do about it.
    """
    return InputError(f"cannot write {path}: {error.strerror or error}", hint)


def unusable(error: OSError) -> InputError:
    """Return the error to raise for what the system refused where nobody knew of it better."""
    where = f"{error.filename}: " if error.filename else ""
    return InputError(
        f"{where}{error.strerror or error}",
        "look at that place's permissions and room; $XDG_CACHE_HOME and $XDG_STATE_HOME move "
        "what Tare keeps between runs",
    )
