//! Both ends against each other, over the loopback.

use super::*;
use crate::contract::Run;
use crate::workloads::testing::{run_with, until_enough, Collected};
use serde_json::{json, Value};
use std::net::TcpListener;

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Run a client against a server; what both found.
fn run_pair(client: Run, server: Value, params: Value) -> (Value, Value) {
    let port = free_port();
    let with_port = |mut params: Value| {
        params["port"] = port.into();
        params
    };
    let (server, params) = (with_port(server), with_port(params));
    let collected = Collected::default();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| collected.run(run_server, &server, &[]));
        let (found, _) = run_with(client, &params, &[]);
        collected.stop();
        (found, serving.join().unwrap())
    })
}

#[test]
fn exchanges_are_counted_at_both_ends() {
    let sizes = json!({"request_bytes": 100, "response_bytes": 300_000});
    let mut params = sizes.clone();
    params["connections"] = 2.into();
    params["seconds"] = 0.2.into();
    params["warmup_s"] = 0.into();
    params["probe_bytes"] = 1500.into();
    let (found, served) = run_pair(run_kept, sizes, params);
    assert_eq!(found["exchanges"], served["requests"], "{found} {served}");
    assert_eq!(found["exchange"]["count"], found["exchanges"]);
    assert_eq!(served["connections"], 2, "{served}");
    assert_eq!(served["packets"], 0, "probes do not count: {served}");
}

#[test]
fn each_exchange_may_have_a_connection_of_its_own() {
    let (found, served) = until_enough(
        |seconds| {
            let params = json!({"seconds": seconds, "warmup_s": 0.0});
            run_pair(run_connecting, json!({"once": true}), params)
        },
        |(found, _)| found["exchanges"].as_u64() > Some(10),
    );
    let exchanges = found["exchanges"].as_u64().unwrap();
    assert!(exchanges > 10, "{found}");
    // One more, to see whether the server is there.
    assert_eq!(served["connections"], exchanges + 1, "{found} {served}");
    assert_eq!(found["connect"]["count"], found["exchanges"]);
}

#[test]
fn packets_that_arrive_are_counted() {
    let (found, served) = until_enough(
        |seconds| {
            let params = json!({"seconds": seconds, "bytes": 18});
            run_pair(run_packets, json!({}), params)
        },
        |(_, served)| served["packets"].as_u64() > Some(100),
    );
    let (sent, came) = (
        found["sent"].as_u64().unwrap(),
        served["packets"].as_u64().unwrap(),
    );
    assert!(came > 100 && came <= sent, "{found} {served}");
    let (rate, span_s) = (&served["packets_per_s"], &served["packets_span_s"]);
    let counted = rate.as_f64().unwrap() * span_s.as_f64().unwrap();
    assert!((counted - (came - 1) as f64).abs() < 1e-3, "{served}");
}

#[test]
fn a_missing_server_is_an_error() {
    for client in [run_kept, run_connecting, run_packets] {
        let params = json!({"port": free_port(), "patience_s": 0.05});
        let (found, _) = run_with(client, &params, &[]);
        assert!(
            found["error"].as_str().unwrap().contains("cannot connect"),
            "{found}"
        );
    }
}

#[test]
fn a_too_small_mtu_is_reported() {
    // Larger than the loopback's MTU of 65,536 no datagram can be, so its headers are counted in.
    let params = json!({"seconds": 0.1, "probe_bytes": 70_000});
    let (found, _) = run_pair(run_kept, json!({}), params);
    let reason = found["error"].as_str().unwrap();
    assert!(
        reason.contains("70000") && reason.contains("MTU"),
        "{found}"
    );
}

#[test]
fn an_address_of_another_machine_cannot_be_served() {
    let (found, _) = run_with(run_server, &json!({"address": "192.0.2.1", "port": 1}), &[]);
    assert!(
        found["error"]
            .as_str()
            .unwrap()
            .contains("cannot serve at 192.0.2.1:1"),
        "{found}"
    );
}

/// Run a network load against its partner for a moment, and stop it; what both found.
fn run_load_for_a_moment(load: Value, partner: Value) -> (Value, Value) {
    let at = json!({"port": free_port(), "connections": 2});
    let with = |mut params: Value| {
        params["at"] = at.clone();
        params
    };
    let (load, partner) = (with(load), with(partner));
    let (loading, echoing) = (Collected::default(), Collected::default());
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| echoing.run(run_echo, &partner, &[]));
        let server = scope.spawn(|| loading.run(run_load, &load, &[]));
        while loading.barriers() == 0 && !server.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        loading.stop();
        (server.join().unwrap(), echo.join().unwrap())
    })
}

#[test]
fn a_network_load_sends_and_gets_everything_back() {
    let (found, echoed) = run_load_for_a_moment(json!({}), json!({}));
    let (sent, received) = (&found["bytes_sent"], &found["bytes_received"]);
    assert!(sent.as_u64().unwrap() > 1 << 20, "{found}");
    assert_eq!(sent, received, "{found}");
    assert_eq!(echoed["bytes"], *sent, "{found} {echoed}");
}

#[test]
fn a_partner_that_leaves_early_is_a_failure() {
    let (found, _) = run_load_for_a_moment(json!({}), json!({"seconds": 0.05}));
    let reason = found["error"].as_str().unwrap_or_default();
    assert!(
        reason.contains("the partner of the network load"),
        "{found}"
    );
}

#[test]
fn a_network_load_without_a_partner_fails_with_the_reason() {
    let at = json!({"port": free_port(), "patience_s": 0.05});
    let (found, collected) = run_with(run_load, &json!({"at": at}), &[]);
    let reason = found["error"].as_str().unwrap();
    assert!(reason.contains("no partner connected"), "{found}");
    assert_eq!(collected.barriers(), 0);
    let (found, _) = run_with(run_echo, &json!({"at": at}), &[]);
    assert!(
        found["error"].as_str().unwrap().contains("cannot connect"),
        "{found}"
    );
}
