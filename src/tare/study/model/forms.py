"""Texts of a certain form, with error messages that describe the form in words."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
)
from pydantic_core import CoreSchema, core_schema


class Form:
    """The required form of a text; used in an ``Annotated``.

    Args:
        pattern: A regular expression, from ``^`` to ``$``. Editors get it from the JSON schema.
        words: The description of the form in messages after *must be*, such as ``a name (letters
            and digits)``.
    """

    def __init__(self, pattern: str, words: str) -> None:
        self._pattern = pattern
        self._words = words

    def require(self, text: str) -> str:
        """Return the text; raise ValueError if it has another form."""
        if not re.search(self._pattern, text):
            shown = text if len(text) <= 60 else f"{text[:57]}..."
            raise ValueError(f"must be {self._words}, not {shown!r}")
        return text

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return pydantic's schema of the check."""
        return core_schema.no_info_after_validator_function(self.require, handler(kind))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON schema, which editors check with."""
        return {**handler(schema), "pattern": self._pattern}


Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
"""A short name, safe in file names, cell identities and names of machines."""

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
"""Debian Policy 5.6.1. It cannot be mistaken for an option of apt."""


def host_alone(text: str) -> str:
    """Return the name or address of a computer; raise ValueError if the text holds more.

    A login or an address has other keys for the rest; the message names them.
    """
    if "://" in text or "/" in text:
        host = text.partition("://")[2] or text
        host = host.partition("/")[0].rpartition("@")[2].partition(":")[0]
        like = f", such as `{host}`" if host else ""
        # The message does not repeat the text, because a URL may hold a password.
        raise ValueError(f"must be only a name or an address{like}, not a URL")
    user, at, host = text.rpartition("@")
    if at:
        key = f"`user: {user}`" if user and ":" not in user else "the user under `user`"
        raise ValueError(f"must be only a name or an address: write `{host}`, and {key}")
    host, colon, port = text.partition(":")
    if colon and port.isdecimal() and host:
        raise ValueError(f"must be only a name or an address: write `{host}`, and `port: {port}`")
    return text


def absolute_path(text: str) -> str:
    """Return the absolute path of a folder; raise ValueError for another text."""
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError("must be an absolute path, such as /var/tmp")
    return text


# Paths of this computer, relative to the study

FOLDER = "folder"
"""The key of the study file's folder in the context of a validation."""


def folder_of(info: ValidationInfo) -> Path | None:
    """Return the folder of the study file that is being read; None if no file is being read."""
    context = info.context
    return context.get(FOLDER) if isinstance(context, dict) else None


def _next_to_study(value: str, info: ValidationInfo) -> str:
    folder = folder_of(info)
    if folder is None:
        # The files of a stored study may be gone without harm.
        return value
    path = (folder / value).resolve()
    if not path.exists():
        raise ValueError(f"there is no file {path}; paths are relative to the study's folder")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{path} cannot be read")
    return value


StudyPath = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_next_to_study)]
"""A file or folder, relative to the study. It must exist when a study file is read.

The path is stored as written, so that equal cells on two computers have equal parameters.
"""


def _check_absolute(value: str, info: ValidationInfo) -> str:
    if not value.startswith("/"):
        raise ValueError("must be an absolute path, starting with `/`")
    if folder_of(info) is not None and not Path(value).is_dir():
        raise ValueError(f"there is no folder {value}")
    return value


Absolute = Annotated[str, AfterValidator(_check_absolute)]
"""A folder of this computer by its absolute path. It must exist when a study file is read."""


# Computers that SSH goes through

NONE = "none"
"""No computer to go through, as in ssh_config(5)."""
_JUMP = re.compile(
    r"(?:(?P<user>[^\s@,:/]{1,64})@)?"
    r"(?:\[(?P<six>[0-9A-Fa-f:.%]+[^\s\]]*)\]|(?P<host>[^\s@,:/\[\]-][^\s@,:/\[\]]{0,254}))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True)
class JumpHost:
    """One computer on the way.

    Args:
        host: Its name or address.
        user: The login there; None if not given.
        port: The TCP port of its SSH server; None if not given.
    """

    host: str
    user: str | None = None
    port: int | None = None


def jump_hosts(text: str) -> tuple[JumpHost, ...]:
    """Return the computers in a text of the form that ``ssh -J`` and ``ProxyJump`` take.

    Args:
        text: ``[USER@]HOST[:PORT]``, or several separated by commas, the first hop first. IPv6
            addresses need brackets. ``none`` means no computer.

    Raises:
        ValueError: The text has another form.
    """
    if text.strip().lower() == NONE:
        return ()
    return tuple(_jump_host(part.strip()) for part in text.split(","))


def jump_text(text: str) -> str:
    """Return the text if :func:`jump_hosts` accepts it; raise ValueError if not."""
    jump_hosts(text)
    return text


def _jump_host(part: str) -> JumpHost:
    # ssh(1) also accepts this longer form, which means the same.
    found = _JUMP.fullmatch(part.removeprefix("ssh://"))
    port = int(found["port"]) if found and found["port"] else None
    if found is None or port == 0 or (port or 0) > 65535:
        # The message does not repeat the text, because it may hold a password.
        raise ValueError(
            "must be [USER@]HOST[:PORT], such as `me@bastion.example`, several of them separated "
            "by commas, or `none`"
        )
    return JumpHost(found["six"] or found["host"], found["user"], port)
