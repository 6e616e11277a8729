//! The generator against servers that answer, stall, answer wrongly, or are missing.

use super::*;
use crate::workloads::testing::{run_with, until_enough, with_longest_delay, Collected};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::Arc;
use std::time::Instant;

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server with a thread for each connection; `answer` gets the number of the request.
fn server(
    answer: impl Fn(usize) -> Option<String> + Send + Sync + 'static,
    per_connection: usize,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let shared = Arc::new((answer, AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let shared = shared.clone();
            std::thread::spawn(move || {
                let _ = serve(stream.unwrap(), per_connection, || {
                    (shared.0)(shared.1.fetch_add(1, Ordering::SeqCst))
                });
            });
        }
    });
    port
}

fn serve(
    mut stream: TcpStream,
    most: usize,
    answer: impl Fn() -> Option<String>,
) -> std::io::Result<()> {
    let mut buffer = [0; 1024];
    for _ in 0..most {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        let request = String::from_utf8_lossy(&buffer[..count]).into_owned();
        match answer() {
            Some(text) => stream.write_all(text.as_bytes())?,
            None => break,
        }
        if request.contains("Connection: close") {
            break;
        }
    }
    Ok(())
}

fn load(port: u16, more: Value) -> (Value, Collected) {
    let mut params = json!({
        "port": port, "seconds": 0.3, "warmup_s": 0.0, "connections": 4, "threads": 1,
        "patience_s": 0.0, "interval_s": 0.1, "timeout_s": 2.0,
    });
    for (name, value) in more.as_object().unwrap() {
        params[name] = value.clone();
    }
    run_with(run, &params, &[])
}

fn words(result: &Value) -> &str {
    result["error"].as_str().unwrap_or_default()
}

#[test]
fn each_request_has_a_connection_of_its_own() {
    let port = server(|_| Some(ANSWER.into()), 1);
    let (result, collected) = until_enough(
        |seconds| load(port, json!({"warmup_s": 0.05, "seconds": seconds})),
        |(result, _)| result["completed"].as_u64() > Some(20),
    );
    assert!(result["completed"].as_u64().unwrap() > 20, "{result}");
    assert_eq!(result["failed"], 0, "{result}");
    assert_eq!(result["connect"]["count"], result["completed"]);
    let body = result["completed"].as_u64().unwrap() * 5;
    assert_eq!(result["body_bytes"], body);
    let series = collected.series.lock().unwrap();
    let sum = |name: &str, column: &str| -> u64 {
        let table = series.iter().find(|table| table.name == name).unwrap();
        table.words(column).iter().sum()
    };
    assert_eq!(sum("responses", "due"), result["due"].as_u64().unwrap());
    assert_eq!(sum("responses", "completed"), body / 5);
    let times = series[0].words("time_ns");
    let warmup_ns = 1e9 * 0.05;
    assert!(
        times[0] as f64 >= warmup_ns,
        "since the common start: {times:?}"
    );
    assert_eq!(
        sum("histogram", "count"),
        result["completed"].as_u64().unwrap()
    );
}

#[test]
fn kept_connections_are_used_again_and_replaced_when_the_server_ends_them() {
    let port = server(|_| Some(ANSWER.into()), 10);
    let (result, _) = until_enough(
        |seconds| load(port, json!({"keep_alive": true, "seconds": seconds})),
        |(result, _)| result["completed"].as_u64() > Some(100),
    );
    let (done, connections) = (
        result["completed"].as_u64().unwrap(),
        result["connect"]["count"].as_u64().unwrap(),
    );
    assert_eq!(result["failed"], 0, "{result}");
    assert!(done > 100, "{result}");
    assert!(
        connections >= done / 11 && connections <= done / 9 + 5,
        "{result}"
    );
}

#[test]
fn a_rate_is_kept_to() {
    let port = server(|_| Some(ANSWER.into()), 1);
    let (result, _) = load(
        port,
        json!({"rate": 200.0, "seconds": 0.5, "warmup_s": 0.1, "threads": 2}),
    );
    assert_eq!(result["due"], 100, "{result}");
    assert_eq!(result["completed"], 100, "{result}");
}

#[test]
fn a_server_that_stalls_shows_in_every_request_that_was_due_meanwhile() {
    // From the 50th request on, for 0.5 s, nothing is answered.
    let stalled: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let answer = move |number: usize| {
        if number >= 50 {
            let began = *stalled.get_or_init(Instant::now);
            let until = Duration::from_millis(500);
            std::thread::sleep(until.saturating_sub(began.elapsed()));
        }
        Some(ANSWER.into())
    };
    let port = server(answer, 1);
    // Two connections: nearly all that is due in the stall has to wait for one.
    let params = json!({"rate": 100.0, "seconds": 2.0, "connections": 2, "timeout_s": 5.0});
    let ((result, collected), delay) = with_longest_delay(|| load(port, params));
    assert_eq!(result["due"], 200, "{result}");
    assert_eq!(result["failed"], 0, "{result}");
    // 50 of 200 were due in the stall, their times spread evenly from 0.5 s down to none.
    let total = |name: &str| result["total"][name].as_f64().unwrap();
    assert!(total("p90_s") > 0.2 && total("max_s") > 0.45, "{result}");
    // A busy computer delays requests after the stall as well, but not those that were due before.
    let series = collected.series.lock().unwrap();
    let means = series[0].words("mean_ns").into_iter().map(f64::from_bits);
    let means: Vec<f64> = means.map(|mean_ns| mean_ns * 1e-9).collect();
    let before = means[..3]
        .iter()
        .fold(0.0, |most, mean| f64::max(most, *mean));
    let most = means.iter().fold(0.0, |most, mean| f64::max(most, *mean));
    assert!(most > before + 0.2, "{means:?}");
    if delay < Duration::from_millis(5) {
        assert!(total("p90_s") < 0.55 && total("median_s") < 0.1, "{result}");
    }
    assert!(result["warnings"][0]
        .as_str()
        .unwrap()
        .contains("free connection"));
}

#[test]
fn requests_without_an_answer_time_out_and_count() {
    let answer = |number: usize| {
        if number >= 10 {
            std::thread::sleep(Duration::from_secs(3600));
        }
        Some(ANSWER.into())
    };
    let port = server(answer, 1);
    let (result, _) = load(
        port,
        json!({"rate": 100.0, "timeout_s": 0.8, "connections": 3}),
    );
    assert_eq!(result["due"], 30, "{result}");
    assert_eq!(
        result["completed"], 9,
        "the first one was the probe: {result}"
    );
    assert_eq!(result["errors"]["timeout"], 21, "{result}");
    assert!(
        result["total"]["p99_s"].as_f64().unwrap() >= 0.79,
        "{result}"
    );
}

#[test]
fn errors_are_counted_by_kind() {
    let answer = |number: usize| match number % 4 {
        1 => Some("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".into()),
        2 => Some("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello".into()),
        3 => Some("what?\r\n\r\n".into()),
        _ => Some(ANSWER.into()),
    };
    let port = server(answer, 1);
    let (result, _) = load(
        port,
        json!({"rate": 100.0, "seconds": 0.4, "connections": 1}),
    );
    assert_eq!(result["due"], 40, "{result}");
    for kind in ["wrong_status", "cut_short", "malformed"] {
        assert_eq!(result["errors"][kind], 10, "{result}");
    }
    assert_eq!(result["failed_share"], 0.75);
}

#[test]
fn a_body_of_another_length_is_an_error_of_its_own() {
    let answer = |number: usize| match number % 2 {
        1 => Some("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhel".into()),
        _ => Some(ANSWER.into()),
    };
    let asked = json!({"rate": 100.0, "seconds": 0.4, "connections": 1, "expected_bytes": 5});
    let (result, _) = load(server(answer, 1), asked.clone());
    assert_eq!(result["errors"]["wrong_length"], 20, "{result}");
    assert_eq!(result["completed"], 20, "{result}");
    let (result, _) = load(server(|_| Some(ANSWER.replace('5', "3")), 1), asked);
    assert!(words(&result).contains("malformed") || words(&result).contains("wrong length"));
}

#[test]
fn requests_have_the_requested_version() {
    for (version, kept, said) in [
        ("1.0", false, "HTTP/1.0\r\n"),
        ("1.0", true, "Connection: keep-alive"),
        ("1.1", false, "Connection: close"),
        ("1.1", true, "HTTP/1.1\r\n"),
    ] {
        let params: Params =
            serde_json::from_value(json!({"version": version, "keep_alive": kept})).unwrap();
        let request = String::from_utf8(params.request("/file")).unwrap();
        assert!(
            request.contains(said) && request.ends_with("\r\n\r\n"),
            "{request}"
        );
        assert_eq!(
            request.contains("Connection"),
            kept == (version == "1.0"),
            "{request}"
        );
    }
}

#[test]
fn a_missing_server_is_reported() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let (result, _) = load(port, json!({"patience_s": 0.05}));
    assert!(words(&result).contains("1 refused"), "{result}");
}

#[test]
fn a_server_that_comes_late_is_waited_for() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        for stream in TcpListener::bind(("127.0.0.1", port)).unwrap().incoming() {
            std::thread::spawn(|| serve(stream.unwrap(), 1, || Some(ANSWER.into())));
        }
    });
    let (result, _) = load(port, json!({"patience_s": 5.0}));
    assert!(result["completed"].as_u64().unwrap() > 0, "{result}");
}

#[test]
fn a_wrong_status_at_once_ends_it_with_the_reason() {
    let port = server(
        |_| Some("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".into()),
        1,
    );
    let (result, _) = load(port, json!({"patience_s": 60.0}));
    assert!(words(&result).contains("1 wrong status"), "{result}");
}

#[test]
fn a_server_that_goes_away_is_counted() {
    let answer = |number: usize| (number < 5).then(|| ANSWER.to_string());
    let port = server(answer, 1);
    let (result, _) = load(port, json!({}));
    assert_eq!(result["completed"], 4, "{result}");
    let ended = result["errors"]["cut_short"].as_u64().unwrap()
        + result["errors"]["reset"].as_u64().unwrap();
    assert!(ended > 0, "{result}");
    assert_eq!(
        result["due"].as_u64().unwrap(),
        4 + result["failed"].as_u64().unwrap()
    );
}

#[test]
fn impossible_parameters_are_refused() {
    for (name, value) in [
        ("connections", json!(0)),
        ("threads", json!(0)),
        ("rate", json!(0)),
        ("seconds", json!(-1)),
        ("interval_s", json!(1e-9)),
        ("paths", json!([])),
        ("paths", json!(["/a b"])),
        ("paths", json!(["/\r\nX: y"])),
        ("address", json!("example.org")),
        ("colour", json!("red")),
    ] {
        let (result, _) = load(1, json!({name: value}));
        assert!(words(&result).contains("parameters"), "{name}: {result}");
    }
}
