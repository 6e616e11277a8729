"""Texts of a certain form: whoever writes another is told in words what to write, not a pattern."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Form:
    """What a text must look like; stands in an ``Annotated``.

    Args:
        pattern: A regular expression, from ``^`` to ``$``; editors get it with the schema.
        words: What to write, after *must be*, such as ``a name (letters and digits)``.
    """

    def __init__(self, pattern: str, words: str) -> None:
        self._pattern = pattern
        self._words = words

    def require(self, text: str) -> str:
        """Return the text; raises ValueError where it is of another form."""
        if not re.search(self._pattern, text):
            shown = text if len(text) <= 60 else f"{text[:57]}..."
            raise ValueError(f"must be {self._words}, not {shown!r}")
        return text

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return how pydantic checks it."""
        return core_schema.no_info_after_validator_function(self.require, handler(kind))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return what editors check it by."""
        return {**handler(schema), "pattern": self._pattern}


NAME = Form(
    r"^[A-Za-z][A-Za-z0-9._-]*$", "a name (letters, digits, `-`, `_`, `.`; a letter comes first)"
)
WORD = Form(
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
    "a name (letters, digits, `-`, `_`, `.`; a letter or digit comes first)",
)


PACKAGE = Form(
    r"^[a-z0-9][a-z0-9+.-]{1,99}$",
    "a package's name (lower-case letters, digits, `+`, `-`, `.`; a letter or digit comes first)",
)
"""Debian Policy 5.6.1; never an option of apt's."""


def host_alone(text: str) -> str:
    """Return a name or address of a computer; raises ValueError where more is said than that.

    What else belongs to a login or an address has keys of its own, which the message names.
    """
    if "://" in text or "/" in text:
        host = text.partition("://")[2] or text
        host = host.partition("/")[0].rpartition("@")[2].partition(":")[0]
        like = f", such as `{host}`" if host else ""
        # What was written is not repeated: a URL may hold a password.
        raise ValueError(f"must be a name or an address alone{like}, and no URL")
    user, at, host = text.rpartition("@")
    if at:
        said = f"`user: {user}`" if user and ":" not in user else "who logs in by `user`"
        raise ValueError(f"must be a name or an address alone: write `{host}`, and {said}")
    host, colon, port = text.partition(":")
    if colon and port.isdecimal() and host:
        raise ValueError(f"must be a name or an address alone: write `{host}`, and `port: {port}`")
    return text


def absolute_path(text: str) -> str:
    """Return the absolute path of a folder; raises ValueError where it is another text."""
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError("must be an absolute path, such as /var/tmp")
    return text
