"""Test whether a host's own kernel boots as a guest there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from tare.errors import InputError, MachineFault
from tare.images.host_kernel import HOST
from tare.platforms.contract import Context, GuestKernels, Prepared, Shape
from tare.platforms.linux.booting import image_for
from tare.platforms.qemu import kvm_memory
from tare.platforms.qemu import kvm_trial as probe
from tare.platforms.qemu.options import QemuOptions

TCG_DEADLINES_S: Mapping[probe.Depth, float] = MappingProxyType({"real": 30.0, "virtual": 30.0})
"""How long a guest that tries the host's kernel may take if QEMU emulates the processor, in
seconds; a distribution's kernel takes 3 to 6 s there."""

Boot = Callable[[Prepared, float], Awaitable[probe.TrialResult]]
"""Boots the prepared image once; the second argument is the deadline in seconds."""


async def guest_kernels(
    context: Context,
    options: QemuOptions,
    shape: Shape,
    *,
    prepare: Callable[[Context], Awaitable[Prepared]],
    boot: Boot,
    qemu: str,
) -> GuestKernels:
    """Return the kernels that guests can boot; a trial boot of the host's kernel is cached.

    Args:
        context: The host, and the study's requirements on its machines.
        options: The guests' options; the kernel must have modules for their devices.
        shape: The size of the trial guest.
        prepare: Builds the trial guest's image from the context's kernel.
        boot: Boots the trial guest.
        qemu: QEMU's version.
    """
    depth = await probe.depth_of(context.host, context.host_agent)
    # An emulated host is a lab, whose own kernel is the generic one. A study that names a release
    # compares releases, so it boots that release's kernel.
    if depth == "emulated" or context.release is not None:
        return GuestKernels()
    own = replace(context, kernel=HOST)
    try:
        image = await image_for(own, HOST, options.needs, shape)
        prepared = await prepare(own)
    except (InputError, MachineFault) as error:
        return GuestKernels(no_own=error.message, todo=error.hint)

    async def once() -> probe.TrialResult:
        limits = {"kvm": probe.BOOT_DEADLINES_S[depth][0], "tcg": TCG_DEADLINES_S[depth]}
        return await boot(prepared, limits[options.accelerator])

    facts = trial_facts(qemu, prepared, options)
    answer = await kvm_memory.known_or_booted(context.cache, context.host, depth, facts, once)
    if answer.usable:
        return GuestKernels(own=image.kernel_version)
    notes = " ".join(image.notes)
    quoted = f"; {answer.speaker}: {answer.words}" if answer.words else ""
    why = f"Linux {image.kernel_version} was tried: {answer.reason}{quoted}. {notes}"
    return GuestKernels(no_own=why.strip().rstrip("."))


def trial_facts(qemu: str, prepared: Prepared, options: QemuOptions) -> dict[str, str]:
    """Return everything that a trial's result depends on, except the host."""
    facts = {"qemu": qemu, "image": prepared.digest, "cpu": options.model}
    return facts if options.accelerator == "kvm" else {**facts, "accelerator": options.accelerator}
