//! The agent's main loop: reads requests, starts each workload in its own thread, and answers.
//!
//! While a workload measures, this loop sleeps in a blocking read.

use super::frame::{Decoder, Kind};
use super::outbox::Outbox;
use super::protocol::{self, CountersAction, Request};
use super::runs::{Runs, RESULT_ATTEMPTS, RESULT_INTERVAL};
use crate::measure::counters::Sampler;
use crate::measure::{clock, proof, tsc};
use crate::sys;
use serde_json::{json, Value};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an incomplete frame may stay incomplete before it counts as damaged.
const PARTIAL: Duration = Duration::from_secs(1);
/// How many answers are kept for repeated requests.
const ANSWERS: usize = 256;
/// A hello request that is repeated within this time is not answered again.
const HELLO_PAUSE: Duration = Duration::from_secs(1);
/// How long running workloads may take to stop when the host is gone.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// The agent's role in its machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    Init,
    Process,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Process => "process",
        }
    }
}

/// Why serving ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    HostLost,
    Shutdown,
}

/// What happened before serving: for the proof, and for the breakdown of the boot time.
#[derive(Clone, Default)]
pub struct Origin {
    /// Settings that init changed: objects with `name`, `before`, `after`.
    pub settings: Value,
    /// The machine's network, where the host wants one.
    pub network: Value,
    /// In a live image: where its configuration, its toolbox and its address came from.
    pub live: Value,
    marks: serde_json::Map<String, Value>,
}

impl Origin {
    /// Note that a stage has ended (monotonic raw time, in ns).
    pub fn mark(&mut self, stage: &str) {
        self.marks
            .insert(format!("{stage}_ns"), clock::monotonic_raw_ns().into());
    }
}

pub struct Server {
    role: Role,
    origin: Origin,
    outbox: Arc<Outbox>,
    runs: Arc<Runs>,
    sampler: Option<Sampler>,
    answers: VecDeque<(u64, Value)>,
    /// The last request for a hello, and when it was answered.
    greeted: Option<(u64, Instant)>,
}

impl Server {
    /// `output` is the sending half of the channel.
    pub fn new(output: File, role: Role, origin: Origin) -> Self {
        let outbox = Arc::new(Outbox::new(output));
        Self {
            role,
            origin,
            runs: Arc::new(Runs::new(outbox.clone())),
            outbox,
            sampler: None,
            answers: VecDeque::new(),
            greeted: None,
        }
    }

    /// Report a panic of the agent to the host before the process ends.
    pub fn report_panics(&self) {
        let outbox = self.outbox.clone();
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |failure| {
            let text = failure.to_string().replace('\n', " ");
            outbox.send_fatal(&format!("the agent failed: {text}"));
            usual(failure);
        }));
    }

    /// Say hello and serve until the host is gone or asks for the end.
    pub fn serve(mut self, mut input: File) -> Ending {
        self.hello(None);
        let mut decoder = Decoder::new();
        let mut buffer = vec![0u8; 64 << 10];
        loop {
            let damaged = decoder.damaged;
            while let Some(frame) = decoder.next_frame() {
                if frame.kind != Kind::Message {
                    continue;
                }
                match Request::parse(&frame.payload) {
                    Ok(Request::Shutdown { id }) => {
                        self.runs.stop_all(STOP_GRACE);
                        self.outbox.send_last(&protocol::result(id, json!({})));
                        return Ending::Shutdown;
                    }
                    Ok(request) => self.handle(request),
                    Err(refused) => {
                        self.outbox
                            .send(&protocol::error(refused.id, &refused.reason));
                    }
                }
            }
            if decoder.damaged > damaged {
                self.outbox.send_at_once(&protocol::damaged());
            }
            if decoder.is_partial() && !sys::wait_readable(&input, Some(PARTIAL)).unwrap_or(true) {
                decoder.abandon();
                continue;
            }
            match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => decoder.push(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if sys::wait_readable(&input, None).is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        self.outbox.close();
        self.runs.stop_all(STOP_GRACE);
        Ending::HostLost
    }

    fn hello(&self, id: Option<u64>) {
        let mut message = json!({
            "type": "hello",
            "protocol": protocol::PROTOCOL,
            "agent": env!("CARGO_PKG_VERSION"),
            "role": self.role.name(),
            "workloads": crate::workloads::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            "proof": proof::collect(&self.origin.settings),
            "boot": self.origin.marks,
        });
        if !self.origin.network.is_null() {
            message["proof"]["network"] = self.origin.network.clone();
        }
        if !self.origin.live.is_null() {
            message["proof"]["live"] = self.origin.live.clone();
        }
        message["boot"]["hello_ns"] = clock::monotonic_raw_ns().into();
        if let Some(id) = id {
            message["id"] = id.into();
        }
        self.outbox.send(&message);
    }

    fn handle(&mut self, request: Request) {
        if let Some(id) = request.id() {
            let known = self.answers.iter().find(|(known, _)| *known == id);
            if let Some((_, answer)) = known {
                self.outbox.send(answer);
                return;
            }
        }
        match request {
            Request::Hello { id } => {
                // Repeated requests queue up while a machine boots; one answer is enough.
                let now = Instant::now();
                let recent = self.greeted.is_some_and(|(known, when)| {
                    known == id && now.duration_since(when) < HELLO_PAUSE
                });
                if !recent {
                    self.hello(Some(id));
                    self.greeted = Some((id, now));
                }
            }
            Request::Clock { id } => {
                // Not kept: a repeated request needs a new reading.
                self.outbox.send(&protocol::result(id, tsc::reading()));
            }
            Request::Run {
                id,
                workload,
                params,
                cpus,
                barrier,
            } => {
                self.runs.start(id, &workload, params, cpus, barrier);
                self.move_aside();
            }
            Request::Go {
                id,
                target,
                together,
            } => {
                let found = self.runs.go(target, together);
                self.answer(id, json!({ "found": found }));
            }
            Request::Stop { id, target } => {
                let found = self.runs.stop(target);
                self.answer(id, json!({ "found": found }));
            }
            Request::Counters { id, action } => self.counters(id, action),
            Request::Resend { seqs } => self.outbox.resend(&seqs),
            Request::Ack { seq } => self.outbox.acknowledge(seq),
            Request::Shutdown { .. } => {}
        }
    }

    /// Keep this thread and the sampler off the CPUs on which workloads run, where there are others.
    fn move_aside(&self) {
        let cpus = self.runs.free_cpus();
        let _ = sys::set_affinity(0, &cpus);
        if let Some(sampler) = &self.sampler {
            let _ = sys::set_affinity(sampler.thread(), &cpus);
        }
    }

    fn counters(&mut self, id: u64, action: CountersAction) {
        match action {
            CountersAction::Start {
                interval_ms,
                threads,
            } => {
                if self.sampler.is_some() {
                    return self.refuse(id, "the counters are already sampled");
                }
                match Sampler::start(Duration::from_millis(interval_ms.max(10)), threads) {
                    Ok(sampler) => {
                        self.sampler = Some(sampler);
                        self.move_aside();
                        self.answer(id, json!({}));
                    }
                    Err(error) => {
                        self.refuse(id, &format!("the counters cannot be sampled: {error}"))
                    }
                }
            }
            CountersAction::Stop => {
                let Some(sampler) = self.sampler.take() else {
                    return self.refuse(id, "the counters are not sampled");
                };
                let outbox = self.outbox.clone();
                self.remember(id, json!({"type": "accepted", "id": id}));
                self.outbox.send(&protocol::accepted(id));
                // In a thread: sending waits for acknowledgements, which this loop must read.
                std::thread::spawn(move || {
                    let table = sampler.stop();
                    let columns: Vec<(&str, &str)> = table
                        .columns
                        .iter()
                        .map(|name| (name.as_str(), "u64"))
                        .collect();
                    outbox.send_series(id, "counters", table.rows, &columns, &table.data);
                    let value = json!({"samples": table.rows, "dropped": table.dropped});
                    let seq = outbox.send(&protocol::result(id, value));
                    outbox.see_arrived(seq, RESULT_INTERVAL, RESULT_ATTEMPTS);
                });
            }
        }
    }

    fn answer(&mut self, id: u64, value: Value) {
        let answer = protocol::result(id, value);
        self.outbox.send(&answer);
        self.remember(id, answer);
    }

    fn refuse(&mut self, id: u64, reason: &str) {
        let answer = protocol::error(Some(id), reason);
        self.outbox.send(&answer);
        self.remember(id, answer);
    }

    fn remember(&mut self, id: u64, answer: Value) {
        self.answers.push_back((id, answer));
        if self.answers.len() > ANSWERS {
            self.answers.pop_front();
        }
    }
}
