"""The image that a host's guests boot: found in the cache, or built."""

from __future__ import annotations

from typing import Any

from tare.images.guest_image import GuestImage, build_guest_image
from tare.platforms.contract import Context, Prepared, Shape
from tare.platforms.linux.disk import require_room
from tare.platforms.linux.toolbox import image_needs


async def image_for(
    context: Context, kernel: str, devices: frozenset[str], shape: Shape
) -> GuestImage:
    """Find the guests' image in the cache, or build it.

    Args:
        context: The host, and the needs of the study's workloads.
        kernel: `host`, a package's flavour or a file; see :func:`build_guest_image`.
        devices: The kernel modules that the guest's devices need, as ``images`` names them.
        shape: The guest's size; the host must have room for its disk.

    Raises:
        InputError: There is no such kernel, it lacks a required module, or the host lacks room or
            tools for the disk.
    """
    await require_room(context.host, shape.disk)
    return await build_guest_image(
        context.builder,
        kernel,
        needs=devices | ({"ext4"} if shape.disk else frozenset()) | image_needs(context),
        agent=context.agent,
        cache=context.cache,
        release=context.release,
        runs_on=context.host,
    )


def prepared_by(image: GuestImage, /, **extra: Any) -> Prepared:
    """Describe what a platform prepared: an image, and other data for its machines."""
    return Prepared(
        kernel=image.kernel_version,
        digest=image.digest,
        cached=image.cached,
        took_s=image.took_s,
        extra=extra,
    )
