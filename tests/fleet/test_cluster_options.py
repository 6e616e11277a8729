"""A wrong option about a cluster is reported with what to type instead; nothing is begun."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from distributed import Security

from fleet.fleet_cluster import study_file
from fleet.test_resume_command import begun
from run.run_driving import tare
from tare.cli import fleet
from tare.cli.fleet_checks import require_usable
from tare.errors import InputError
from tare.events import EventLog
from tare.fleet.connections import keep_to
from tare.fleet.labs import require_labs_of
from tare.run.catalog import build_catalog
from tare.run.lifecycle.folder import first_event
from tare.study.reading.changes import Changes
from tare.study.reading.load import load_study

ADDRESSES = [
    (
        "",
        "--cluster '' is not a scheduler's address",
        "tcp://NAME:PORT or tls://NAME:PORT, or local:N",
    ),
    ("local", "is not a scheduler's address", "or local:N for labs of this computer"),
    ("LOCAL:2", "is not a scheduler's address", "or local:N"),
    ("xen1", "is not a scheduler's address", "tcp://NAME:PORT"),
    ("tcp://xen1", "is not a scheduler's address", "tcp://NAME:PORT"),
    ("http://xen1:8786", "is not a scheduler's address", "tcp://NAME:PORT"),
    ("tcp://:8786", "has no host name", "tcp://127.0.0.1:8786"),
    ("tcp://fd00::1:8786", "is not a scheduler's address", "tcp://[fd00::1]:8786"),
]


@pytest.mark.parametrize(("address", "text", "hint"), ADDRESSES)
def test_invalid_cluster_addresses_are_refused(address: str, text: str, hint: str) -> None:
    with pytest.raises(InputError) as refused:
        fleet.choice_of(address, None, None, None, wait=False)
    assert text in refused.value.message and hint in refused.value.hint


@pytest.mark.parametrize("number", ["0", "65", "x", "", "-1", "2.5", "²"])
def test_a_number_of_labs_is_one(number: str, tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    started = first_event(folder / "events.jsonl")
    assert started is not None
    with pytest.raises(InputError, match="is not a number of labs") as refused:
        require_labs_of(started, f"local:{number}", folder)
    assert "--cluster local:2" in refused.value.hint


def test_an_empty_cluster_is_not_this_computer(tmp_path: Path) -> None:
    # As of a script whose variable is not set.
    result = tare("run", study_file(tmp_path, 2, ""), "--cluster", "", "--out", tmp_path / "run")
    assert (
        result.returncode == 2 and "--cluster '' is not a scheduler's address" in result.stderr
    ), result
    assert not (tmp_path / "run").exists()


def test_hosts_that_share_a_study_are_not_left_out_without_a_cluster(tmp_path: Path) -> None:
    path = study_file(tmp_path, 2, "spread: split\nhosts: [xen1, xen2]")
    result = tare("run", path, "--out", tmp_path / "run")
    assert result.returncode == 2, result
    assert "hosts of a cluster share this study: xen1, xen2" in result.stderr
    assert "--cluster ADDRESS" in result.stderr
    assert not (tmp_path / "run").exists()
    alone = load_study(path, build_catalog(), Changes(host="local"))
    fleet.require_no_cluster(alone)
    fleet.require_no_cluster(load_study(study_file(tmp_path, 2), build_catalog()))


def test_one_host_for_all_arms_is_not_asked_of_a_cluster() -> None:
    with pytest.raises(InputError, match="--host xen1 runs all arms on one host") as refused:
        fleet.require_workers_hosts("tcp://10.0.0.1:8786", "xen1")
    assert "`hosts: [xen1]`" in refused.value.hint
    fleet.require_workers_hosts("local:2", "lab")
    fleet.require_workers_hosts("tcp://10.0.0.1:8786", "")


def labs(tmp_path: Path, *names: str) -> Path:
    """Write the first event of a run that hosts of these names share."""
    first = first_event(begun(tmp_path / "before") / "events.jsonl")
    assert first is not None
    facts = {"worker": "tcp://10.0.0.2:40000", "spread": "split"}
    folder = tmp_path / "run"
    folder.mkdir()
    with EventLog(folder / "events.jsonl") as log:
        log.append(first.model_copy(update={"host": dict.fromkeys(names, facts)}))
    return folder


def test_run_resumes_in_as_many_labs_as_it_began_in(tmp_path: Path) -> None:
    folder = labs(tmp_path, "lab-1", "lab-2")
    started = first_event(folder / "events.jsonl")
    assert started is not None
    require_labs_of(started, "local:2", folder)
    require_labs_of(started, "tcp://10.0.0.1:8786", folder)
    for number in (1, 3):
        with pytest.raises(InputError, match=f"in 2 labs, not in {number}") as refused:
            require_labs_of(started, f"local:{number}", folder)
        assert refused.value.hint == f"write: tare resume {folder} --cluster local:2"
    result = tare("resume", folder, "--cluster", "local:3")
    assert result.returncode == 2 and "was started in 2 labs" in result.stderr, result


def test_run_of_other_hosts_does_not_resume_in_labs(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    started = first_event(folder / "events.jsonl")
    assert started is not None
    with pytest.raises(InputError, match="is on the hosts h1") as refused:
        require_labs_of(started, "local:1", folder)
    assert "--cluster ADDRESS, with the address of their scheduler" in refused.value.hint


def pems(folder: Path, name: str = "") -> tuple[Path, Path, Path]:
    """Write a CA, a certificate and its key."""
    made = Security.temporary()
    found = []
    for kind, text in (
        ("ca", made.tls_ca_file),
        ("cert", made.tls_client_cert),
        ("key", made.tls_client_key),
    ):
        path = folder / f"{name}{kind}.pem"
        path.write_text(text)
        found.append(path)
    return found[0], found[1], found[2]


def test_certificates_are_used_where_they_are_and_refused_where_they_are_not(
    tmp_path: Path,
) -> None:
    ca, cert, key = pems(tmp_path)
    made = fleet.security_of("tls://10.0.0.1:8786", ca, cert, key)
    assert made is not None and made.require_encryption
    assert made.get_tls_config_for_role("worker")["key"] == str(key)
    with pytest.raises(InputError, match=r"tls://10\.0\.0\.1:8786 needs --tls-cert"):
        fleet.security_of("tls://10.0.0.1:8786", ca, None, key)
    with pytest.raises(InputError, match=r"tcp://10\.0\.0\.1:8786 is not encrypted") as refused:
        fleet.security_of("tcp://10.0.0.1:8786", ca, cert, key)
    assert "write tls://10.0.0.1:8786" in refused.value.hint
    # They are set in the environment for another cluster: labs of this computer need none.
    choice = fleet.choice_of("local:2", ca, cert, key, wait=False)
    assert choice.security is None


def test_an_invalid_certificate_file_is_named(tmp_path: Path) -> None:
    ca, cert, key = pems(tmp_path)
    other = pems(tmp_path, "other-")[2]
    text, none = tmp_path / "text", tmp_path / "none"
    text.write_text("no certificate")
    sealed = tmp_path / "sealed.pem"
    call = f"openssl pkey -in {key} -aes256 -passout pass:secret -out {sealed}"
    subprocess.run(call.split(), check=True, capture_output=True)
    for files, message in (
        ((none, cert, key), f"--tls-ca {none}: there is no such file"),
        ((text, cert, key), f"--tls-ca {text} holds no certificate"),
        ((ca, text, key), f"--tls-cert {text} holds no certificate"),
        ((ca, key, key), f"--tls-cert {key} holds no certificate"),
        ((ca, cert, text), f"--tls-key {text} holds no key"),
        ((ca, cert, cert), f"--tls-key {cert} holds no key"),
        ((ca, cert, other), f"--tls-key {other} is not the key of --tls-cert {cert}"),
        ((ca, cert, sealed), f"--tls-key {sealed} is protected by a passphrase"),
    ):
        with pytest.raises(InputError) as refused:
            require_usable(*files)
        assert refused.value.message.startswith(message), refused.value
        assert refused.value.hint


def test_a_worker_keeps_to_cpus_that_there_are() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(InputError, match="cannot run on CPU 100000") as refused:
        keep_to([min(before), 100_000])
    assert refused.value.hint == f"name some of: {', '.join(map(str, sorted(before)))}"
    with pytest.raises(InputError, match="cannot run on CPU"):
        keep_to([10**30])
    assert os.sched_getaffinity(0) == before
    try:
        assert keep_to([min(before)]) == tuple(sorted(before))
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)
