"""What every hypervisor offers whose guests are made over its API, and what none of them does."""

from __future__ import annotations

NO_NETWORK = "workloads over the network are skipped: Tare makes no network on that host"
NO_DISK = "machines have no disk of their own yet: disk workloads and the toolbox are skipped"
WITHHELD = (
    "cells are withheld during which, as its API tells, the machine migrated, was snapshotted or "
    "backed up, started anew, or had its memory changed"
)
SWAP_UNTOLD = (
    "what its host swaps out of a machine its API does not tell: no cell is withheld for it"
)
DIALS = "the agent dials back to `callback` over TLS, with a key of its own on a CD (TARE-CFG)"
CHANNEL = "TLS, dialled by the agent to `callback`"
NOTES = (NO_NETWORK, NO_DISK, WITHHELD)
