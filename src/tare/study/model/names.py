"""What names in a study look like."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]
"""A short name, safe in file names, cell identities and names of machines."""
