"""What every hypervisor offers whose guests are made over its API, and what none of them does."""

from __future__ import annotations

NO_NETWORK = "workloads over the network are skipped: Tare makes no network on that host"
NO_DISK = "machines have no disk of their own yet: disk workloads and the toolbox are skipped"
WITHHELD = (
    "cells during which the VM migrated, was snapshotted or backed up, ballooned or swapped are "
    "withheld"
)
DIALS = "the agent dials back to `callback` over TLS, with a key of its own on a CD (TARE-CFG)"
CHANNEL = "TLS, dialled by the agent to `callback`"
NOTES = (NO_NETWORK, NO_DISK, WITHHELD)
