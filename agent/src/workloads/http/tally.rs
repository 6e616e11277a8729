//! The outcomes of the requests: durations, errors by kind, and both over time.

use hdrhistogram::Histogram;
use serde_json::{json, Map, Value};
use std::io;

/// Durations longer than this (ns) count as this long.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant digits of the histograms: of the whole run, and of one interval.
const DIGITS: [u8; 2] = [3, 2];

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestError {
    Refused,
    Reset,
    /// No answer in time, by the other end or by the network.
    TimedOut,
    WrongStatus,
    /// The body is whole, and not as long as it should be.
    WrongLength,
    /// The server closed before its response was whole.
    CutShort,
    Malformed,
    /// This computer has no port left to connect from.
    NoPort,
    /// This process, or this computer, has no descriptor left.
    NoDescriptor,
    /// The kernel has no memory left for one more connection.
    Exhausted,
    Unreachable,
    /// The server's certificate, version or cipher is not what was agreed.
    Handshake,
    Other,
}

/// The names of all errors, in the order of their numbers.
pub const ERROR_NAMES: [&str; 13] = [
    "refused",
    "reset",
    "timeout",
    "wrong_status",
    "wrong_length",
    "cut_short",
    "malformed",
    "no_port",
    "no_descriptor",
    "exhausted",
    "unreachable",
    "handshake",
    "other",
];

impl RequestError {
    /// What the kernel's error means to a request.
    pub fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => Self::Refused,
            Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => Self::Reset,
            Some(libc::ETIMEDOUT) => Self::TimedOut,
            Some(libc::EADDRNOTAVAIL) => Self::NoPort,
            Some(libc::EMFILE | libc::ENFILE) => Self::NoDescriptor,
            Some(libc::ENOBUFS | libc::ENOMEM) => Self::Exhausted,
            Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN) => Self::Unreachable,
            _ => Self::Other,
        }
    }
}

/// An empty histogram of durations in nanoseconds.
pub fn durations() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS[0]).expect("these bounds are sound")
}

/// Count a duration.
pub fn count(histogram: &mut Histogram<u64>, ns: u64) {
    histogram.saturating_record(ns.max(1));
}

/// Median, percentiles and extremes of a histogram of nanoseconds, in seconds.
pub fn summary(histogram: &Histogram<u64>) -> Value {
    let at = |share| histogram.value_at_quantile(share) as f64 * 1e-9;
    if histogram.is_empty() {
        return json!({"count": 0});
    }
    json!({
        "count": histogram.len(),
        "mean_s": histogram.mean() * 1e-9,
        "min_s": histogram.min() as f64 * 1e-9,
        "median_s": at(0.5),
        "p90_s": at(0.9),
        "p99_s": at(0.99),
        "p999_s": at(0.999),
        "max_s": histogram.max() as f64 * 1e-9,
    })
}

/// The outcomes of the requests that were due within one interval.
pub struct Interval {
    pub due: u64,
    pub failed: u64,
    /// Connections that were made for those of its requests that were answered.
    pub connections: u64,
    pub body_bytes: u64,
    pub total: Histogram<u32>,
}

impl Interval {
    fn new() -> Self {
        let bounds = Histogram::new_with_bounds(1_000, LONGEST_NS, DIGITS[1]);
        Self {
            due: 0,
            failed: 0,
            connections: 0,
            body_bytes: 0,
            total: bounds.expect("these bounds are sound"),
        }
    }
}

/// The outcomes of one thread's requests, or of all threads' together.
pub struct Tally {
    start_ns: u64,
    end_ns: u64,
    interval_ns: u64,
    pub connect: Histogram<u64>,
    /// The time from the TCP connection to the end of the TLS handshake.
    pub handshake: Histogram<u64>,
    /// Handshakes that took an earlier one up again.
    pub resumed: u64,
    /// The cipher suite of the last handshake.
    pub suite: String,
    pub first_byte: Histogram<u64>,
    pub total: Histogram<u64>,
    /// How long after they were due requests were begun.
    pub late: Histogram<u64>,
    pub due: u64,
    pub completed: u64,
    pub body_bytes: u64,
    pub connections: u64,
    pub errors_by_kind: [u64; ERROR_NAMES.len()],
    pub intervals: Vec<Interval>,
}

/// The moments of one request, in nanoseconds of one clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timestamps {
    pub due: u64,
    pub begun: u64,
    /// 0: it used an open connection.
    pub connected: u64,
    pub first_byte: u64,
}

impl Tally {
    /// Only requests that are due from `start_ns` until before `end_ns` are counted.
    pub fn new(start_ns: u64, end_ns: u64, interval_ns: u64) -> Self {
        Self {
            start_ns,
            end_ns,
            interval_ns,
            connect: durations(),
            handshake: durations(),
            resumed: 0,
            suite: String::new(),
            first_byte: durations(),
            total: durations(),
            late: durations(),
            due: 0,
            completed: 0,
            body_bytes: 0,
            connections: 0,
            errors_by_kind: [0; ERROR_NAMES.len()],
            intervals: Vec::new(),
        }
    }

    fn counts(&self, due: u64) -> bool {
        (self.start_ns..self.end_ns).contains(&due)
    }

    fn interval(&mut self, due: u64) -> &mut Interval {
        let index = ((due - self.start_ns) / self.interval_ns) as usize;
        if index >= self.intervals.len() {
            self.intervals.resize_with(index + 1, Interval::new);
        }
        &mut self.intervals[index]
    }

    /// A request was answered as expected.
    pub fn answered(&mut self, timestamps: Timestamps, ended: u64, body: u64) {
        if !self.counts(timestamps.due) {
            return;
        }
        let total = ended.saturating_sub(timestamps.due);
        self.due += 1;
        self.completed += 1;
        self.body_bytes += body;
        count(
            &mut self.late,
            timestamps.begun.saturating_sub(timestamps.due),
        );
        if timestamps.connected > 0 {
            self.connections += 1;
            let took = timestamps.connected.saturating_sub(timestamps.begun);
            count(&mut self.connect, took);
        }
        count(
            &mut self.first_byte,
            timestamps.first_byte.saturating_sub(timestamps.due),
        );
        count(&mut self.total, total);
        let interval = self.interval(timestamps.due);
        interval.due += 1;
        interval.connections += u64::from(timestamps.connected > 0);
        interval.body_bytes += body;
        interval.total.saturating_record(total.max(1));
    }

    /// A connection was secured for a request.
    pub fn secured(&mut self, timestamps: Timestamps, now: u64, resumed: bool, suite: String) {
        self.suite = suite;
        if self.counts(timestamps.due) {
            self.resumed += u64::from(resumed);
            count(
                &mut self.handshake,
                now.saturating_sub(timestamps.connected),
            );
        }
    }

    /// A request failed. A timeout counts with the time that it waited, so that failures do not improve
    /// the percentiles.
    pub fn failed(&mut self, timestamps: Timestamps, ended: u64, error: RequestError) {
        if !self.counts(timestamps.due) {
            return;
        }
        self.due += 1;
        self.errors_by_kind[error as usize] += 1;
        let waited = ended.saturating_sub(timestamps.due);
        if error == RequestError::TimedOut {
            count(&mut self.total, waited);
        }
        let interval = self.interval(timestamps.due);
        interval.due += 1;
        interval.failed += 1;
        if error == RequestError::TimedOut {
            interval.total.saturating_record(waited.max(1));
        }
    }

    /// Add another thread's, which counted the same span.
    pub fn add(&mut self, other: Tally) {
        for (own, others) in [
            (&mut self.connect, &other.connect),
            (&mut self.handshake, &other.handshake),
            (&mut self.first_byte, &other.first_byte),
            (&mut self.total, &other.total),
            (&mut self.late, &other.late),
        ] {
            own.add(others).expect("histograms of the same bounds");
        }
        self.due += other.due;
        self.completed += other.completed;
        self.body_bytes += other.body_bytes;
        self.connections += other.connections;
        self.resumed += other.resumed;
        if self.suite.is_empty() {
            self.suite = other.suite;
        }
        for (own, others) in self.errors_by_kind.iter_mut().zip(other.errors_by_kind) {
            *own += others;
        }
        if self.intervals.len() < other.intervals.len() {
            self.intervals
                .resize_with(other.intervals.len(), Interval::new);
        }
        for (own, others) in self.intervals.iter_mut().zip(other.intervals) {
            own.due += others.due;
            own.failed += others.failed;
            own.connections += others.connections;
            own.body_bytes += others.body_bytes;
            own.total
                .add(&others.total)
                .expect("histograms of the same bounds");
        }
    }

    pub fn failures(&self) -> u64 {
        self.errors_by_kind.iter().sum()
    }

    /// Errors by kind; all kinds are named.
    pub fn errors(&self) -> Value {
        let named = ERROR_NAMES.iter().zip(self.errors_by_kind);
        let errors: Map<String, Value> = named
            .map(|(name, count)| ((*name).into(), count.into()))
            .collect();
        Value::Object(errors)
    }

    /// A description of the errors; empty if there were none.
    pub fn errors_in_words(&self) -> String {
        let named = ERROR_NAMES.iter().zip(self.errors_by_kind);
        let words: Vec<String> = named
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{count} {}", name.replace('_', " ")))
            .collect();
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(due: u64) -> Timestamps {
        Timestamps {
            due,
            begun: due + 10,
            connected: due + 30,
            first_byte: due + 50,
        }
    }

    #[test]
    fn only_what_is_due_in_the_span_counts() {
        let mut tally = Tally::new(1000, 2000, 500);
        for due in [0, 999, 1000, 1999, 2000] {
            tally.answered(request(due), due + 100, 7);
        }
        assert_eq!((tally.due, tally.completed, tally.body_bytes), (2, 2, 14));
        assert_eq!(tally.intervals.len(), 2);
        assert_eq!(tally.total.max(), 100);
        assert_eq!(tally.connect.max(), 20);
        let (connections, bytes) = tally.intervals.iter().fold((0, 0), |sum, each| {
            (sum.0 + each.connections, sum.1 + each.body_bytes)
        });
        assert_eq!((connections, bytes), (2, 14));
    }

    #[test]
    fn handshakes_count_with_the_requests_that_they_were_made_for() {
        let mut tally = Tally::new(1000, 2000, 500);
        for (due, resumed) in [(999, true), (1000, false), (1500, true)] {
            tally.secured(request(due), due + 42, resumed, "S".into());
        }
        assert_eq!((tally.handshake.len(), tally.handshake.max()), (2, 12));
        assert_eq!((tally.resumed, tally.suite.as_str()), (1, "S"));
    }

    #[test]
    fn exhausted_ports_descriptors_and_memory_are_distinguished() {
        for (code, name) in [
            (libc::EADDRNOTAVAIL, "no_port"),
            (libc::EMFILE, "no_descriptor"),
            (libc::ENFILE, "no_descriptor"),
            (libc::ENOBUFS, "exhausted"),
            (libc::ENOMEM, "exhausted"),
            (libc::ECONNREFUSED, "refused"),
            (libc::EPIPE, "reset"),
        ] {
            let error = RequestError::of(&io::Error::from_raw_os_error(code));
            assert_eq!(ERROR_NAMES[error as usize], name);
        }
        // Numbers and names go together to the last.
        assert_eq!(ERROR_NAMES.len(), RequestError::Other as usize + 1);
        assert_eq!(ERROR_NAMES[RequestError::Other as usize], "other");
    }

    #[test]
    fn a_timeout_makes_the_percentiles_worse() {
        let mut tally = Tally::new(0, 10_000, 1000);
        tally.answered(request(5), 105, 0);
        tally.failed(request(10), 5_000_000_010, RequestError::TimedOut);
        tally.failed(request(11), 12, RequestError::Refused);
        assert_eq!((tally.due, tally.completed, tally.failures()), (3, 1, 2));
        assert!(tally.total.max() >= 5_000_000_000 && tally.total.len() == 2);
        assert_eq!(tally.errors_in_words(), "1 refused, 1 timeout");
        assert_eq!(tally.errors()["refused"], 1);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_when_tallies_are_added(dues in prop::collection::vec((0u64..5000, 1u64..100_000, any::<bool>()), 0..60)) {
            let (mut whole, mut parts) = (Tally::new(0, 4000, 300), [Tally::new(0, 4000, 300), Tally::new(0, 4000, 300)]);
            for (number, (due, took, fine)) in dues.iter().enumerate() {
                for tally in [&mut whole, &mut parts[number % 2]] {
                    if *fine {
                        tally.answered(request(*due), due + took, 1);
                    } else {
                        tally.failed(request(*due), due + took, RequestError::Reset);
                    }
                }
            }
            let [mut one, other] = parts;
            one.add(other);
            prop_assert_eq!(one.due, whole.due);
            prop_assert_eq!(one.due, one.completed + one.failures());
            prop_assert_eq!(&one.total, &whole.total);
            prop_assert_eq!(one.intervals.iter().map(|i| i.due).sum::<u64>(), one.due);
            prop_assert_eq!(one.errors(), whole.errors());
        }
    }
}
