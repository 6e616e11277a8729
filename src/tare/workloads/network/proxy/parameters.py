"""The parameters of the load through a proxy."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tare.units import Duration, Size
from tare.workloads.contract import Parameters

MOST_ADDRESSES = 16
"""The maximum number of the origin's addresses, which requests use in turn."""

MOST_ROUNDS = 100


def _version(value: object) -> object:
    """Return a version of HTTP as text, which YAML without quotes takes for a number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {1.0: "1.0", 1.1: "1.1", 2.0: "2"}.get(float(value), value)
    return value


class ProxyParameters(Parameters):
    """What is asked for through the proxy, by how many at once, and for how long."""

    size: Size = Field(
        default=1024,
        ge=0,
        le=1 << 30,
        description="Size of the requested object; it may be empty.",
    )
    requests: Literal["connection", "keep-alive"] = Field(
        default="connection",
        description="Whether each request has its own TCP connection, or requests share "
        "connections; then those to the origin are shared too.",
    )
    http: Annotated[Literal["1.0", "1.1", "2"], BeforeValidator(_version)] = Field(
        default="1.0",
        description="The client's HTTP version; the origin always uses HTTP/1. HTTP/2 has one "
        "request at a time on each connection, and needs `keep-alive`.",
    )
    tls: Literal["none", "ecdsa-p256", "rsa-2048"] = Field(
        default="none",
        description="The key with which HAProxy terminates TLS 1.3 on the client's side; `none`: "
        "no TLS. The connection to the origin is not encrypted.",
    )
    tls_cipher: Literal["aes-128-gcm", "aes-256-gcm", "chacha20-poly1305"] = Field(
        default="aes-128-gcm", description="The cipher of TLS."
    )
    tls_resumption: bool = Field(
        default=False,
        description="Resume earlier TLS sessions, which need no signature; the number of "
        "resumptions is recorded.",
    )
    haproxy_threads: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Number of HAProxy's threads. Default: HAProxy's own, one per CPU that it may "
        "use.",
    )
    origin_workers: int = Field(
        default=1, ge=1, le=256, description="Number of processes of the origin, an nginx."
    )
    origin_addresses: int = Field(
        default=1,
        ge=1,
        le=MOST_ADDRESSES,
        description="Number of addresses of the origin, which HAProxy uses in turn. All of its "
        "ports are available for each address, so more addresses allow more connections per "
        "second. An origin that is a machine has one address, and listens on as many ports.",
    )
    most_connections: int = Field(
        default=256,
        ge=4,
        le=16_384,
        description="Maximum number of requests in flight. The number starts at 4 and is doubled "
        "until the rate stops rising.",
    )
    step: Duration = Field(
        default=1.0, ge=0.1, le=600, description="Duration of each step of that search."
    )
    duration: Duration = Field(
        default=5.0,
        ge=0.5,
        le=1e5,
        description="Duration of the measured loads: the one that keeps the proxy full, and those "
        "at 50, 70 and 90 % of it.",
    )
    warmup: Duration = Field(
        default=0.5, ge=0, le=3600, description="Duration of the load before each of them."
    )
    offered: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Requests per second offered to every arm, so that latencies are comparable "
        "even if a client or the origin was the limit. Default: not measured.",
    )
    rounds: int = Field(
        default=1,
        ge=1,
        le=MOST_ROUNDS,
        description="Number of rounds: the rate that all arms are offered and the load that keeps "
        "the proxy full are repeated in turn, and each figure is the mean over the rounds. With "
        "`blocks: {turns: true}`, arms change places after each round; many short rounds then "
        "compare them better than one long load if the host’s speed varies.",
    )
    at_shares: bool = Field(
        default=True,
        description="Measure response times at 50, 70 and 90 % of the proxy's capacity.",
    )
    timeout: Duration = Field(default=10.0, gt=0, le=3600, description="Time limit of a request.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.http == "2" and self.requests != "keep-alive":
            raise ValueError("HTTP/2 has many requests a connection: write `requests: keep-alive`")
        if self.tls == "none" and self.tls_resumption:
            raise ValueError("`tls-resumption` needs TLS: write `tls: ecdsa-p256`, or remove it")
        return self
