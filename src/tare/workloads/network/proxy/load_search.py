"""Choose the stages of the load: first without the proxy, then through it, with rising concurrency.

Without the proxy there are two paths from client to origin: straight, over a pair of interfaces
that leads nowhere else, and direct, over the same switching that the machine uses.

The number of requests in flight is doubled until the rate stops rising. Then single requests are
timed at 50, 70 and 90 % of the rate that was reached, and at one rate that all arms are offered.
The last stage is the measured load, which keeps the proxy full while the use of the CPUs is
recorded, together with a probe of one request in a hundred. The last two stages are repeated in as
many rounds as requested, and each of their figures is the mean over the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from tare.workloads.network.ends import HTTP_PORT, ORIGIN_PORT, End, Results, Stage
from tare.workloads.network.proxy.parameters import ProxyParameters
from tare.workloads.values import number

FEWEST = 4
RISES = 1.05
"""A rate counts as a rise if it is at least this factor times the best so far."""
STEPS_WITHOUT = 2
"""The number of steps without a rise that ends the search; a single one may be an accident."""
SHARES = (50, 70, 90)
FULL, OFFERED, PROBE = "full", "offered", "probe"
LEAST_PROBE = 2.0
"""Requests per second of the probe, so that short cells of slow machines have some, too."""
PROBE_ROOM = 10
"""The probe gets this many times the connections that it needs on average. Otherwise the time a
request waits for a free connection would count as the proxy's."""
STEP_WARMUP_S = 0.0
"""No warm-up: requests begin with the step, so that even a computer that stalls answers some."""
MARGIN_S, MARGIN_SHARE = 0.05, 0.1
"""The time between the start of a load and the start of its account, and between their ends: the
longer of these seconds and this share of the load. Several agents have to start, each at its own
pace, and reading all threads of a busy host takes a while as well."""
OVERHEAD_S = 0.1
"""Seconds of a stage in addition to its load, for the plan."""
USUAL_STEPS = 5

Path = Literal["straight", "direct", "proxied"]
PATHS: tuple[Path, ...] = ("straight", "direct", "proxied")
To = Literal["machine", "origin", "straight"]
TO: Mapping[Path, To] = {"straight": "straight", "direct": "origin", "proxied": "machine"}
"""Maps each path to the server at its end."""


def shares_of(parameters: ProxyParameters) -> tuple[int, ...]:
    """Return the shares of the proxy's capacity, in per cent, at which requests are timed."""
    return SHARES if parameters.at_shares else ()


def stage_at_share(percent: int) -> str:
    """Return the name of the stage at a share of the proxy's capacity, in per cent."""
    return f"at-{percent}"


def step(path: Path, connections: int) -> str:
    """Return the name of a step of the search: its path and its number of connections."""
    return f"{path}-{connections}"


def stage_in_round(name: str, nth: int) -> str:
    """Return the name of a repeated stage in round ``nth``, counted from 1."""
    return name if nth == 1 else f"{name}.{nth}"


def rounds_of(name: str, stages: Iterable[str]) -> list[str]:
    """Return the names of all rounds of a repeated stage among ``stages``, in order.

    If there are none, return the first round's name, so that its use shows that it is missing.
    """
    return [each for each in stages if each.partition(".")[0] == name] or [name]


def steps_of(path: Path, results: Results) -> dict[int, float]:
    """Return the rate of each number of connections that was tried on a path."""
    found = {}
    for name, result in results.items():
        kind, _, tried = name.partition("-")
        if kind == path:
            found[int(tried)] = number(result, "requests_per_s")
    return found


def fewest_for(rates: Mapping[int, float]) -> int:
    """Return the fewest connections whose rate is less than one rise below the highest rate.

    On a plateau of the rate, chance decides in each cell which step is the highest. With that step,
    equal arms could be loaded with half or twice the connections of each other.
    """
    best = max(rates.values())
    return min(tried for tried, rate in rates.items() if rate * RISES >= best)


def next_connections(rates: Mapping[int, float], most: int) -> int | None:
    """Return the number of connections to try next; None: the search has ended.

    Args:
        rates: Rate by number of connections so far, in the order in which they were tried.
        most: The maximum number of connections.
    """
    if steps_without(rates) >= STEPS_WITHOUT or most in rates:
        return None
    return min(most, 2 * max(rates)) if rates else FEWEST


def steps_without(rates: Mapping[int, float]) -> int:
    """Return the number of steps without a rise at the end of the search so far."""
    best, still = 0.0, 0
    for rate in rates.values():
        still = 0 if rate >= best * RISES else still + 1
        best = max(best, rate)
    return still


def following(
    parameters: ProxyParameters, results: Results, straight: bool = False, certificate: str = ""
) -> Stage | None:
    """Return the stage after those that are done; None after the last.

    Args:
        parameters: The parameters of the load.
        results: The results of the stages that are done.
        straight: Whether there is a path from client to origin without any switching.
        certificate: SHA-256 (hex) of the proxy's certificate; empty: no TLS.

    Raises:
        KeyError, ValueError: A stage's result lacks its rate.
    """
    stage = _following(parameters, results, straight)
    if stage is None or not certificate or stage.to != "machine":
        return stage
    probe = None if stage.probe is None else _secured(parameters, stage.probe, certificate)
    return replace(stage, client=_secured(parameters, stage.client, certificate), probe=probe)


def _secured(parameters: ProxyParameters, client: End, certificate: str) -> End:
    tls = {
        "certificate": certificate,
        "suite": parameters.tls_cipher,
        "resumption": parameters.tls_resumption,
    }
    return replace(client, params={**client.params, "tls": tls})


def _following(parameters: ProxyParameters, results: Results, straight: bool) -> Stage | None:
    for path in PATHS if straight else PATHS[1:]:
        rates = steps_of(path, results)
        tried = next_connections(rates, parameters.most_connections)
        if tried is not None:
            return _step(parameters, path, tried)
    proxied = steps_of("proxied", results)
    connections = fewest_for(proxied)
    rate = proxied[connections]
    for percent in shares_of(parameters):
        if stage_at_share(percent) not in results:
            return _timed(parameters, stage_at_share(percent), rate * percent / 100)
    for nth in range(1, parameters.rounds + 1):
        offered, full = (stage_in_round(name, nth) for name in (OFFERED, FULL))
        if parameters.offered is not None and offered not in results:
            return replace(_timed(parameters, offered, parameters.offered), in_sync=True)
        if full not in results:
            return _full(parameters, nth, connections, rate)
    return None


def expected_s(parameters: ProxyParameters) -> float:
    """Estimate the seconds of all stages."""
    search = len(PATHS) * USUAL_STEPS * (parameters.step + STEP_WARMUP_S + OVERHEAD_S)
    counted = len(shares_of(parameters)) + parameters.rounds * (
        1 + (parameters.offered is not None)
    )
    return search + counted * (parameters.duration + parameters.warmup + OVERHEAD_S)


def _step(parameters: ProxyParameters, path: Path, connections: int) -> Stage:
    to = TO[path]
    client = _client(
        parameters,
        to=to,
        connections=connections,
        seconds=parameters.step,
        warmup_s=STEP_WARMUP_S,
    )
    return Stage(step(path, connections), client, to)


def _timed(parameters: ProxyParameters, name: str, rate: float) -> Stage:
    client = _client(
        parameters,
        connections=parameters.most_connections,
        rate=rate,
        arrivals="poisson",
        seconds=parameters.duration,
        warmup_s=parameters.warmup,
    )
    return Stage(name, client, kept=True)


def _full(parameters: ProxyParameters, nth: int, connections: int, rate: float) -> Stage:
    seconds, warmup = parameters.duration, parameters.warmup
    client = _client(parameters, connections=connections, seconds=seconds, warmup_s=warmup)
    probes = max(LEAST_PROBE, rate / 100)
    probe = _client(
        parameters,
        connections=_room_for(probes, connections, rate),
        rate=probes,
        threads=1,
        seconds=seconds,
        warmup_s=warmup,
    )
    margin_s = max(MARGIN_S, MARGIN_SHARE * seconds)
    window = (warmup + margin_s, seconds - 2 * margin_s)
    name, probe_name = (stage_in_round(each, nth) for each in (FULL, PROBE))
    return Stage(name, client, probe=probe, probe_name=probe_name, account=window, in_sync=True)


def _room_for(probes: float, connections: int, rate: float) -> int:
    """Return the maximum number of the probe's connections.

    By Little's law, the load's mean response time is its connections divided by its rate. The
    probe's rate times that is the mean number of its requests in flight.

    Args:
        probes: The probe's requests per second.
        connections: The number of the load's connections.
        rate: The load's requests per second; 0: none was answered.
    """
    needed = PROBE_ROOM * probes * connections / rate if rate > 0 else connections
    return max(FEWEST, min(connections, math.ceil(needed)))


def _client(parameters: ProxyParameters, *, to: To = "machine", **more: Any) -> End:
    proxied = to == "machine"
    # The origin uses HTTP/1.
    version = "1.1" if parameters.http == "2" and not proxied else parameters.http
    asked = {
        "address": {"machine": "{address}", "origin": "{origin}", "straight": "{straight}"}[to],
        "port": HTTP_PORT if proxied else ORIGIN_PORT,
        "paths": ["/file"],
        "host": "tare",
        "version": version,
        "keep_alive": parameters.requests == "keep-alive",
        "expected_bytes": parameters.size,
        "timeout_s": parameters.timeout,
        "interval_s": max(0.1, more["seconds"] / 3000),
    }
    return End("http-load", {**asked, **more})
