"""Guests of KVM in a lab, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from lab.lab_inside import OWN, PATIENCE_S, SHAPE, Inside
from tare.errors import MachineFault
from tare.platforms.contract import Shape
from tare.platforms.qemu.machine import QemuMachine
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.platform import Qemu, launch


def kvm(**options: Any) -> QemuOptions:
    """Return the options of a guest of KVM."""
    return QemuOptions.model_validate({"accelerator": "kvm", **options})


@asynccontextmanager
async def booted(
    lab: Inside,
    options: QemuOptions,
    role: str = "subject",
    cpu: int = OWN,
    shape: Shape = SHAPE,
) -> AsyncIterator[tuple[QemuMachine, Mapping[str, Any]]]:
    """Boot a guest in the lab and stop it afterwards; yield it with its proof."""
    prepared = await Qemu().prepare(lab.context, options, shape, True)
    image, program = prepared.extra["image"], prepared.extra["program"]

    async def begun() -> tuple[QemuMachine, Mapping[str, Any]]:
        spec = lab.spec(role, shape, cpu)
        machine = await launch(lab.context, options, image, spec, program=program)
        try:
            return machine, (await machine.ready(PATIENCE_S)).proof
        except BaseException:
            await machine.stop()
            raise

    try:
        machine, proof = await begun()
    except MachineFault as fault:
        # As a run does: one guest in some 25 falls at its boot there (`tare help lab`).
        if not fault.transient:
            raise
        machine, proof = await begun()
    try:
        yield machine, proof
    finally:
        await machine.stop()
