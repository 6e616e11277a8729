"""Files and folders of this computer that a study names, relative to the study itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

FOLDER = "folder"
"""Where the context of a validation says in which folder the study file is."""


def folder_of(info: ValidationInfo) -> Path | None:
    """Return the folder of the study file that is being read; None where none is."""
    context = info.context
    return context.get(FOLDER) if isinstance(context, dict) else None


def _beside(value: str, info: ValidationInfo) -> str:
    folder = folder_of(info)
    if folder is None:
        # A stored study, whose files may be gone without harm.
        return value
    path = (folder / value).resolve()
    if not path.exists():
        raise ValueError(f"there is no file {path}; paths are relative to the study's folder")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{path} cannot be read")
    return value


StudyPath = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_beside)]
"""A file or folder, relative to the study; where a study file is read, it exists.

It stays as it was written, so that the same cells of two computers have the same parameters.
"""


def _whole(value: str, info: ValidationInfo) -> str:
    if not value.startswith("/"):
        raise ValueError("this is no whole path: begin it with `/`")
    if folder_of(info) is not None and not Path(value).is_dir():
        raise ValueError(f"there is no folder {value}")
    return value


Absolute = Annotated[str, AfterValidator(_whole)]
"""A folder of this computer by its whole path; where a study file is read, it exists."""
