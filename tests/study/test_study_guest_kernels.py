"""Which kernel guests boot where the study names none: one for all, and the reason is stated."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.study.model.notes import GENERAL_KERNEL, HOST_KERNEL
from tare.study.planning.guest_kernels import GuestKernels, KernelChoice, choose_kernel

OWN = GuestKernels(own="6.1.0-9")
REFUSED = GuestKernels(no_own="it lacks the module e1000")
NO_APT = {"rt": "Fedora has no apt", "generic": "Fedora has no apt"}


def test_the_hosts_own_kernel_comes_first() -> None:
    choice = choose_kernel({"tcg": OWN, "kvm": OWN}, realtime=False, general=False)
    assert choice.name == "host"
    assert choice.note == f"{HOST_KERNEL}, Linux 6.1.0-9, which was tried"
    assert not choice.skipped


def test_real_time_work_gets_a_real_time_kernel_where_there_is_one() -> None:
    assert choose_kernel({"kvm": OWN}, realtime=True, general=False) == KernelChoice()


def test_without_a_real_time_kernel_real_time_work_gets_the_hosts() -> None:
    kernels = GuestKernels(own="6.1.0-9", missing={"rt": "no package"})
    choice = choose_kernel({"kvm": kernels}, realtime=True, general=False)
    assert choice.name == "host"
    assert choice.note.endswith("; no real-time kernel: no package")


def test_one_arm_that_cannot_boot_it_keeps_all_to_the_general_one() -> None:
    choice = choose_kernel({"kvm": OWN, "emulated": REFUSED}, realtime=False, general=False)
    assert choice.name is None
    assert choice.note == f"{GENERAL_KERNEL}: it lacks the module e1000"


def test_without_packages_only_arms_that_cannot_boot_it_are_skipped() -> None:
    own = GuestKernels(own="6.1.0-9", missing=NO_APT)
    refused = GuestKernels(no_own="it lacks the module e1000", missing=NO_APT)
    choice = choose_kernel({"kvm": own, "emulated": refused}, realtime=False, general=False)
    assert choice.name == "host"
    (arm,) = choice.skipped
    assert arm == "emulated"
    assert choice.skipped[arm] == (
        "no kernel is available for its machines: it lacks the module e1000; Fedora has no apt"
    )


@pytest.mark.parametrize("realtime", [True, False])
def test_without_any_kernel_every_arm_is_skipped_with_both_reasons(realtime: bool) -> None:
    kernels = GuestKernels(
        no_own="only root can read /boot/vmlinuz",
        todo="run Tare as root",
        missing=NO_APT,
        remedy="import a bundle",
    )
    choice = choose_kernel({"kvm": kernels}, realtime=realtime, general=False)
    assert choice.skipped["kvm"] == (
        "no kernel is available for its machines: only root can read /boot/vmlinuz (run Tare as "
        "root); Fedora has no apt (import a bundle)"
    )


def test_hosts_with_different_kernels_are_compared_on_the_packaged_one() -> None:
    other = GuestKernels(own="6.12.1")
    choice = choose_kernel({"here": OWN, "there": other}, realtime=False, general=False)
    assert choice.name is None
    assert "the hosts run different ones (6.1.0-9, 6.12.1)" in choice.note


def test_xen_and_live_image_keep_their_kernel() -> None:
    for realtime in (True, False):
        choice = choose_kernel({"kvm": OWN}, realtime=realtime, general=True)
        assert choice == KernelChoice()


def test_records_of_older_runs_give_the_kernels_that_they_booted() -> None:
    for realtime, general in product((True, False), repeat=2):
        choice = choose_kernel({"kvm": GuestKernels()}, realtime=realtime, general=general)
        assert choice == KernelChoice()


KERNELS = st.builds(
    GuestKernels,
    own=st.sampled_from(["", "1", "2"]),
    no_own=st.sampled_from(["", "why"]),
    missing=st.dictionaries(st.sampled_from(["rt", "generic"]), st.just("no package")),
)


@given(st.dictionaries(st.sampled_from("abc"), KERNELS), st.booleans(), st.booleans())
def test_no_arm_is_left_with_a_kernel_that_it_cannot_boot(
    arms: dict[str, GuestKernels], realtime: bool, general: bool
) -> None:
    # Builders are one computer: what cannot be had there cannot be had for any arm.
    missing = {name: why for each in arms.values() for name, why in each.missing.items()}
    choice = choose_kernel(arms, realtime=realtime, general=general)
    wanted = choice.name or ("rt" if realtime and not general else "generic")
    for arm, each in arms.items():
        boots = bool(each.own) if wanted == "host" else wanted not in missing
        assert boots != (arm in choice.skipped)
