"""One file per platform, and the protocol they implement."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tare.platforms.bare import Bare
from tare.platforms.base import Platform
from tare.platforms.oci import Oci
from tare.platforms.qemu import Qemu
from tare.platforms.xen import Xen

PLATFORMS: Mapping[str, Platform] = MappingProxyType(
    {platform.name: platform for platform in (Bare(), Oci(), Qemu(), Xen())}
)
"""Every platform by its name; a new one is one more file, and one more word here."""
