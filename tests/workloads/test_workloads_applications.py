"""The applications' requests, and what is read from what they say."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tare.images.toolbox.inputs import AUDIO_RATE, AUDIO_S, GAME_MOVES, INPUTS, PICTURE, TEXT_BYTES
from tare.workloads import WORKLOADS
from tare.workloads.applications.programs import INPUTS as INPUTS_AT
from tare.workloads.applications.programs import PROGRAMS

RESULT: dict[str, Any] = {
    "wall_s": 2.0,
    "cpu_s": 1.5,
    "system_s": 0.25,
    "max_rss_bytes": 1 << 20,
    "output": "",
    "checks": [{"path": "/tmp/x", "bytes": 1, "sha256": "0" * 64, "verified": True}],
}
NAMES = [*(program.name for program in PROGRAMS), "openssl-aes", "scimark", "kernel-compile"]

SCIMARK = """
SciMark 2.0a

Composite Score: 871.8667513939203
FFT (1024): 819.6618549718961
SOR (100x100):   769.5508111445113
Monte Carlo : 354.1365336080989
Sparse matmult (N=1000, nz=5000): 1.2E3
LU (100x100): 1544.495027551196

java.vendor: Debian
"""


def request(name: str, **parameters: Any) -> dict[str, Any]:
    workload = WORKLOADS[name]
    return workload.request(workload.parameters.model_validate(parameters))


@pytest.mark.parametrize("name", NAMES)
def test_each_is_the_agents_program_and_needs_the_toolbox(name: str) -> None:
    workload = WORKLOADS[name]
    assert workload.agent_name == "program"
    assert "toolbox" in workload.needs
    assert workload.memory >= 128 << 20
    assert request(name)["repeats"] >= 1
    assert workload.expected_s(workload.parameters()) > 0


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program.name))
def test_outputs_are_verified_and_inputs_exist(program: Any) -> None:
    asked = request(program.name)
    assert asked["checks"] == [{"path": program.output, "expected": program.name}]
    words = [*asked["steps"][0]["argv"], asked["steps"][0].get("stdin", "")]
    for word in words:
        if INPUTS_AT in word:
            assert word.rpartition("/")[2] in INPUTS
    assert program.output.startswith("/tmp/")


def test_amounts_are_those_of_the_inputs() -> None:
    amounts = {program.name: program.amount for program in PROGRAMS}
    assert amounts["oggenc"] == AUDIO_S * AUDIO_RATE * 4
    assert amounts["bzip2-compress"] == amounts["bzip2-decompress"] == TEXT_BYTES
    assert amounts["dcraw"] == PICTURE[0] * PICTURE[1]
    assert amounts["gnugo"] == GAME_MOVES


def test_a_rate_is_work_by_time() -> None:
    workload = WORKLOADS["bzip2-compress"]
    values = workload.observe(workload.parameters(), RESULT)
    assert values["rate"] == TEXT_BYTES / 2
    assert values["wall-time"] == 2.0
    assert set(values) == {metric.name for metric in workload.metrics}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "kernel-compile"])
@pytest.mark.parametrize(
    "checks", [[], None, [{"path": "/tmp/x", "verified": False}], [{"path": "/tmp/x"}], ["x"]]
)
def test_unverified_results_do_not_count(name: str, checks: Any) -> None:
    workload = WORKLOADS[name]
    result = {**RESULT, "output": SCIMARK + "AES-128-CBC  1k\n"}
    assert workload.observe(workload.parameters(), result)
    with pytest.raises(ValueError, match="verified"):
        workload.observe(workload.parameters(), {**result, "checks": checks})


def test_scimark_is_read_whole_or_refused() -> None:
    workload = WORKLOADS["scimark"]
    values = workload.observe(workload.parameters(), {**RESULT, "output": SCIMARK})
    assert values["composite"] == pytest.approx(871.8667513939203e6)
    assert values["sparse"] == pytest.approx(1200e6)
    assert set(values) == {metric.name for metric in workload.metrics}
    with pytest.raises(KeyError):
        workload.observe(workload.parameters(), {**RESULT, "output": SCIMARK[:100]})


def test_openssl_is_read_in_bytes() -> None:
    workload = WORKLOADS["openssl-aes"]
    output = "type  16384 bytes\nAES-128-CBC     778061.56k\n"
    values = workload.observe(workload.parameters(), {**RESULT, "output": output})
    assert values["rate"] == pytest.approx(778061560)
    with pytest.raises(KeyError):
        workload.observe(workload.parameters(), RESULT)


def test_kernel_is_compiled_in_memory_by_all_cpus_by_default() -> None:
    whole = request("kernel-compile")
    assert "$(nproc)" in whole["steps"][0]["argv"][2]
    assert whole["checks"] == [{"path": "/tmp/tare-linux/vmlinux"}]
    part = request("kernel-compile", targets=["lib/"], jobs=3)
    assert "-j3" in part["steps"][0]["argv"][2]
    assert part["steps"][0]["argv"][-1] == "lib/"
    assert part["checks"] == []
    assert part["clean"] == ["/tmp/tare-linux"]


def test_a_program_is_passed_on_as_it_was_written() -> None:
    asked = request(
        "program",
        argv=["fio", "--version"],
        env={"A": "b"},
        output="/tmp/x",
        sha256="0" * 64,
        codes=[0, 3],
        timeout="2s",
    )
    assert asked["steps"] == [
        {"argv": ["fio", "--version"], "cwd": "/tmp", "env": {"A": "b"}, "codes": [0, 3]}
    ]
    assert asked["checks"] == [{"path": "/tmp/x", "sha256": "0" * 64}]
    assert asked["timeout_s"] == 2.0
    program = WORKLOADS["program"]
    values = program.observe(program.parameters.model_validate({"argv": ["x"]}), RESULT)
    assert values["rate"] == 0.5


@pytest.mark.parametrize(
    "wrong", [{}, {"argv": []}, {"argv": ["x"], "cwd": "tmp"}, {"argv": ["x"], "sha256": "1"}]
)
def test_a_program_that_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WORKLOADS["program"].parameters.model_validate(wrong)
