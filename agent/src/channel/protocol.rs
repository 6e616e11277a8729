//! The messages inside the frames; `tare help protocol` describes them.

use serde::Deserialize;
use serde_json::{json, Map, Value};

pub const PROTOCOL: u32 = 1;

/// What the host may ask for.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Request {
    Hello {
        id: u64,
    },
    Run {
        id: u64,
        workload: String,
        #[serde(default = "empty")]
        params: Value,
        #[serde(default)]
        cpus: Vec<usize>,
        #[serde(default)]
        barrier: bool,
    },
    Go {
        id: u64,
        target: u64,
        /// Runs of other machines begin by the same signal.
        #[serde(default)]
        together: bool,
    },
    Stop {
        id: u64,
        target: u64,
    },
    Clock {
        id: u64,
    },
    Counters {
        id: u64,
        #[serde(flatten)]
        action: CountersAction,
    },
    Shutdown {
        id: u64,
    },
    Resend {
        seqs: Vec<u32>,
    },
    Ack {
        seq: u32,
    },
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum CountersAction {
    Start {
        #[serde(default = "one_second")]
        interval_ms: u64,
        /// Threads (process id, thread id) whose run delay is sampled too.
        #[serde(default)]
        threads: Vec<(i32, i32)>,
    },
    Stop,
}

fn empty() -> Value {
    Value::Object(Map::new())
}

fn one_second() -> u64 {
    1000
}

/// A payload that is not a request: its id, if it has a readable one, and what is wrong.
#[derive(Debug, PartialEq)]
pub struct Malformed {
    pub id: Option<u64>,
    pub reason: String,
}

impl Request {
    /// Read a message payload.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let value: Value = serde_json::from_slice(payload).map_err(|error| Malformed {
            id: None,
            reason: format!("not a JSON message: {error}"),
        })?;
        let id = value.get("id").and_then(Value::as_u64);
        serde_json::from_value(value).map_err(|error| Malformed {
            id,
            reason: format!("not a known request: {error}"),
        })
    }

    /// The id to answer under; `resend` and `ack` have none.
    pub fn id(&self) -> Option<u64> {
        match self {
            Self::Hello { id }
            | Self::Run { id, .. }
            | Self::Go { id, .. }
            | Self::Stop { id, .. }
            | Self::Clock { id }
            | Self::Counters { id, .. }
            | Self::Shutdown { id } => Some(*id),
            Self::Resend { .. } | Self::Ack { .. } => None,
        }
    }
}

pub fn accepted(id: u64) -> Value {
    json!({"type": "accepted", "id": id})
}

pub fn progress(id: u64, done: f64, fields: Value) -> Value {
    let mut message = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    message.insert("type".into(), "progress".into());
    message.insert("id".into(), id.into());
    message.insert("done".into(), done.into());
    Value::Object(message)
}

pub fn ready(id: u64) -> Value {
    json!({"type": "ready", "id": id})
}

pub fn result(id: u64, value: Value) -> Value {
    json!({"type": "result", "id": id, "value": value})
}

pub fn error(id: Option<u64>, reason: &str) -> Value {
    json!({"type": "error", "id": id, "reason": reason})
}

pub fn fatal(reason: &str) -> Value {
    json!({"type": "fatal", "reason": reason})
}

/// Ask the host to repeat unanswered requests, because a frame arrived damaged.
pub fn damaged() -> Value {
    json!({"type": "damaged"})
}

/// Frames that were asked for again and are no longer kept.
pub fn gone(seqs: &[u32]) -> Value {
    json!({"type": "gone", "seqs": seqs})
}

/// The payload of one series chunk: a JSON line, then raw bytes.
pub fn series_payload(header: &Value, chunk: &[u8]) -> Vec<u8> {
    let mut payload = header.to_string().into_bytes();
    payload.push(b'\n');
    payload.extend_from_slice(chunk);
    payload
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_run_has_defaults() {
        let request = Request::parse(br#"{"op":"run","id":3,"workload":"tick"}"#).unwrap();
        assert_eq!(
            request,
            Request::Run {
                id: 3,
                workload: "tick".into(),
                params: json!({}),
                cpus: vec![],
                barrier: false
            }
        );
    }

    #[test]
    fn counters_name_their_action() {
        let request = Request::parse(br#"{"op":"counters","id":1,"action":"start"}"#).unwrap();
        let action = CountersAction::Start {
            interval_ms: 1000,
            threads: vec![],
        };
        assert_eq!(request, Request::Counters { id: 1, action });
    }

    #[test]
    fn a_malformed_request_keeps_its_id() {
        let refused = Request::parse(br#"{"op":"fly","id":9}"#).unwrap_err();
        assert_eq!(refused.id, Some(9));
        assert!(refused.reason.contains("fly"));
    }

    #[test]
    fn progress_cannot_be_forged_by_its_fields() {
        let message = progress(4, 0.5, json!({"type": "result", "rate": 2}));
        assert_eq!(
            message,
            json!({"type": "progress", "id": 4, "done": 0.5, "rate": 2})
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::hash_map(
                    prop_oneof![
                        Just("op".to_string()),
                        Just("id".to_string()),
                        Just("seqs".to_string()),
                        Just("action".to_string()),
                        "[a-z]{1,6}"
                    ],
                    inner,
                    0..5
                )
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_fail(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Request::parse(&bytes);
        }

        #[test]
        fn no_json_makes_the_parser_fail(value in any_json(), op in "hello|run|go|stop|clock|counters|resend|ack|shutdown") {
            let _ = Request::parse(value.to_string().as_bytes());
            if let Value::Object(mut map) = value {
                map.insert("op".into(), op.into());
                let _ = Request::parse(Value::Object(map).to_string().as_bytes());
            }
        }
    }
}
