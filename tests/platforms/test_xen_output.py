"""What Xen's tools print is read for what it says, and nothing else upsets the reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.agent.framing import Decoder, FrameKind, encode
from tare.platforms.xen import output as read
from tare.platforms.xen.machine import ATTENTION

LIST = """\
Name                                        ID   Mem VCPUs\tState\tTime(s)   UUID
Domain-0                                     0  1024     1     r-----      14.8 \
00000000-0000-0000-0000-000000000000        -                -
(null)                                       1   256     1     --p--d     151.0 \
c58d0f0b-d501-4e07-b9a2-7114ab3b02d1        -                -
"""
VCPUS = """\
Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)
Domain-0                             0     0    0   r--      14.9  0 / all
tare-x                               9     0    -   --p       0.0  1 / all
"""
POOLS = """\
Name               CPUs   Sched     Active   Domain count
Pool-0               2    credit       y          1
"""
INFO = """\
nr_cpus                : 2
virt_caps              : pv hvm hap gnttab-v1 gnttab-v2
free_memory            : 3028
cpu_topology           :
cpu:    core    socket     node
  0:       0        0        0
  1:       0        0        0
  2:       1        0        1
numa_info              :
node:    memsize    memfree    distances
   0:      6144       3028      10
xen_version            : 4.17.7
"""
REFUSED = """\
Parsing config from /tmp/t.cfg
libxl: error: libxl_dom.c:1:f: Domain 3:not enough memory
libxl: error: libxl_create.c:2:g: Domain 3:failed to build
"""


def test_domains_are_read_also_without_a_name() -> None:
    dom0, dying = read.domains(LIST)
    assert (dom0.name, dom0.id, dom0.memory, dom0.cpu_s) == ("Domain-0", 0, 1 << 30, 14.8)
    assert (dying.name, dying.uuid) == ("", "c58d0f0b-d501-4e07-b9a2-7114ab3b02d1")
    assert dying.words == "dying"


def test_vcpus_are_read_also_where_they_never_ran() -> None:
    assert read.vcpus(VCPUS) == (read.Vcpu(0, 0, 14.9, "0"), read.Vcpu(9, 0, 0.0, "1"))


def test_pools_parameters_and_versions_are_read() -> None:
    assert read.pools(POOLS) == (read.Pool("Pool-0", 2, "credit"),)
    shown = "Cpupool Pool-0: tslice=30ms ratelimit=1000us migration-delay=0us"
    assert read.parameters(shown) == {"tslice": 30_000, "ratelimit": 1000}
    facts = read.info(INFO)
    assert facts["free_memory"] == "3028"
    assert read.version(facts) == "4.17.7"


def test_a_domains_weight_and_cap_end_its_line() -> None:
    shown = (
        "Name                                ID Weight  Cap\n"
        "tare-1121-1-subject                  9    512   50\n"
    )
    assert read.weight_and_cap(shown) == {"weight": 512, "cap_percent": 50}
    assert read.weight_and_cap("Name  ID Weight  Cap\n") == {}


def test_the_hosts_cpus_are_xens_and_not_dom0s() -> None:
    cpus = read.topology(INFO)
    assert cpus is not None
    assert cpus.online == (0, 1, 2)
    assert cpus.siblings[0] == (0, 1)
    assert cpus.node(2) == 1
    assert read.topology("nr_cpus : 2\n") is None


def test_xens_reason_comes_without_its_place() -> None:
    assert read.reason(REFUSED) == "Domain 3:not enough memory; Domain 3:failed to build"
    assert read.reason("xl: unknown thing\n") == "xl: unknown thing"


def test_shutdown_code_of_a_domain_is_read() -> None:
    assert read.shutdown_code("Domain 12 has shut down, reason code 3 0x3") == 3
    assert read.shutdown_code("Domain 12 has been destroyed.") is None
    assert read.created_id("Waiting for domain tare-x (domid 12) to die [pid 9]") == 12


@pytest.mark.fuzz
@given(st.text())
def test_no_text_upsets_a_reader(text: str) -> None:
    read.domains(text)
    read.vcpus(text)
    read.pools(text)
    read.parameters(text)
    read.weight_and_cap(text)
    read.topology(f"cpu_topology{text}")
    read.version(read.info(text))
    read.reason(text)
    read.shutdown_code(text)
    read.created_id(text)


@given(
    st.lists(st.binary(max_size=60), max_size=4),
    st.binary(max_size=20).filter(lambda b: b.find(b"\xf5") < 0),
)
def test_text_between_frames_is_passed_on_unchanged(payloads: list[bytes], text: bytes) -> None:
    heard: list[bytes] = []
    decoder = Decoder(heard.append)
    frames = [encode(FrameKind.SERIES, number, payload) for number, payload in enumerate(payloads)]
    found = decoder.feed(b"".join(text + frame for frame in frames))
    assert [frame.payload for frame in found] == payloads
    assert b"".join(heard) == text * len(payloads)


@given(st.binary(max_size=200))
def test_sent_data_escapes_the_consoles_command_key(data: bytes) -> None:
    pressed, passed = False, bytearray()
    for byte in data.replace(ATTENTION, 2 * ATTENTION):
        if byte == ATTENTION[0]:
            pressed = not pressed
            if pressed:
                continue
        assert not pressed, "the kernel would take this for a command"
        passed.append(byte)
    assert bytes(passed) == data
