//! How the host's kernel schedules a thread: policy, priority, nice, and the slice of fair
//! policies (Linux 6.12 and newer). What was set is read back, because a kernel that does not
//! know a value ignores it without an error (sched_setattr(2)).

use crate::sys::{self, scheduling_of, Attributes};
pub use crate::sys::{block_signals, current_cpu, involuntary_switches, yield_now};
use std::io;

/// The highest priority of SCHED_FIFO on Linux (sched(7)).
pub const HIGHEST_PRIORITY: i32 = 99;

/// Let the calling thread run on `cpus` only.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    sys::set_affinity(0, cpus)
}

/// The CPUs the calling thread may run on.
pub fn affinity() -> io::Result<Vec<usize>> {
    sys::affinity(0)
}

/// Scheduling policies by the names that arguments use, those of the C library, and numbers.
const POLICIES: [(&str, &str, i32); 6] = [
    ("other", "SCHED_OTHER", libc::SCHED_OTHER),
    ("fifo", "SCHED_FIFO", libc::SCHED_FIFO),
    ("rr", "SCHED_RR", libc::SCHED_RR),
    ("batch", "SCHED_BATCH", libc::SCHED_BATCH),
    ("idle", "SCHED_IDLE", libc::SCHED_IDLE),
    ("deadline", "SCHED_DEADLINE", libc::SCHED_DEADLINE),
];

/// Children begin under SCHED_OTHER (linux/sched.h).
const RESET_ON_FORK: u64 = 1;

/// The requested scheduling; what is `None` stays unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheduling {
    pub policy: Option<i32>,
    pub priority: Option<i32>,
    pub nice: Option<i32>,
    pub slice_ns: Option<u64>,
}

/// How the kernel schedules a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    pub policy: i32,
    pub priority: i32,
    pub nice: i32,
    /// The time slice of a thread under a fair policy, in ns; 0 if the kernel does not report it.
    pub slice_ns: u64,
}

/// The number of a policy: `other`, `batch`, `fifo`, ...
pub fn policy_number(name: &str) -> Result<i32, String> {
    let known = POLICIES.iter().find(|(word, ..)| *word == name);
    known
        .map(|(.., number)| *number)
        .ok_or_else(|| format!("unknown policy '{name}'; there are other, batch and fifo"))
}

/// The C library's name of a policy.
pub fn policy_name(number: i32) -> &'static str {
    POLICIES
        .iter()
        .find(|(.., known)| *known == number)
        .map_or("unknown", |(_, name, _)| *name)
}

impl Scheduling {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Apply to a thread (0: the calling one) and read back.
    pub fn apply(&self, thread: i32) -> Result<Found, String> {
        let failed = |error: io::Error| format!("cannot set {}: {error}", self.describe());
        let before = scheduling_of(thread).map_err(|error| format!("cannot be read: {error}"))?;
        let policy = self.policy.unwrap_or(before.policy as i32);
        let realtime = policy == libc::SCHED_FIFO || policy == libc::SCHED_RR;
        let wanted = Attributes {
            policy: policy as u32,
            flags: before.flags & RESET_ON_FORK,
            nice: self.nice.unwrap_or(before.nice),
            priority: match (realtime, self.priority) {
                (true, Some(priority)) => priority as u32,
                (true, None) => before.priority.max(1),
                (false, _) => 0,
            },
            // 0 is the kernel's own slice.
            runtime: self.slice_ns.unwrap_or(0),
            ..Attributes::default()
        };
        sys::set_scheduling(thread, &wanted).map_err(failed)?;
        let found = read(thread).map_err(failed)?;
        self.check(&found)?;
        Ok(found)
    }

    /// Check that a thread is scheduled as requested; the error states what differs.
    pub fn check(&self, found: &Found) -> Result<(), String> {
        let differs = |what: &str, wanted: String, got: String| {
            Err(format!(
                "{what} was set to {wanted}, but the kernel says {got}"
            ))
        };
        if let Some(policy) = self.policy.filter(|policy| *policy != found.policy) {
            let names = [policy, found.policy].map(|it| policy_name(it).to_string());
            let [wanted, got] = names;
            return differs("the policy", wanted, got);
        }
        let pairs = [
            (
                "the priority",
                self.priority.map(i64::from),
                i64::from(found.priority),
            ),
            ("nice", self.nice.map(i64::from), i64::from(found.nice)),
            (
                "the slice in ns",
                self.slice_ns.map(|it| it as i64),
                found.slice_ns as i64,
            ),
        ];
        for (what, wanted, got) in pairs {
            if let Some(wanted) = wanted.filter(|wanted| *wanted != got) {
                return differs(what, wanted.to_string(), got.to_string());
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let mut parts = Vec::new();
        if let Some(policy) = self.policy {
            parts.push(policy_name(policy).to_string());
        }
        for (name, value) in [
            ("priority", self.priority.map(i64::from)),
            ("nice", self.nice.map(i64::from)),
            ("slice in ns", self.slice_ns.map(|it| it as i64)),
        ] {
            parts.extend(value.map(|value| format!("{name} {value}")));
        }
        parts.join(", ")
    }
}

/// Read how the kernel schedules a thread (0: the calling one).
pub fn read(thread: i32) -> io::Result<Found> {
    let attributes = scheduling_of(thread)?;
    let fair = matches!(
        attributes.policy as i32,
        libc::SCHED_OTHER | libc::SCHED_BATCH
    );
    Ok(Found {
        policy: attributes.policy as i32,
        priority: attributes.priority as i32,
        nice: attributes.nice,
        slice_ns: if fair { attributes.runtime } else { 0 },
    })
}

/// Whether the calling thread has a real-time policy.
pub fn is_realtime() -> bool {
    let realtime = |found: Found| matches!(found.policy, libc::SCHED_FIFO | libc::SCHED_RR);
    read(0).is_ok_and(realtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(work).join().unwrap()
    }

    #[test]
    fn pins_and_reads_back() {
        std::thread::spawn(|| {
            let cpu = *affinity().unwrap().last().unwrap();
            pin(&[cpu]).unwrap();
            assert_eq!(affinity().unwrap(), vec![cpu]);
            assert_eq!(current_cpu(), cpu);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn refuses_cpus_that_cannot_be() {
        assert!(pin(&[100_000]).is_err());
    }

    #[test]
    fn a_policy_and_nice_are_set_and_read_back() {
        let (found, again) = in_a_thread(|| {
            let requested = Scheduling {
                policy: Some(libc::SCHED_BATCH),
                nice: Some(3),
                ..Scheduling::default()
            };
            (requested.apply(0).unwrap(), read(sys::thread_id()).unwrap())
        });
        assert_eq!(found, again);
        assert_eq!((found.policy, found.nice), (libc::SCHED_BATCH, 3));
    }

    #[test]
    fn a_slice_is_set_or_refused_with_an_error() {
        // Before Linux 6.12 the kernel ignores it: then this is an error, and never silence.
        let applied = in_a_thread(|| {
            let requested = Scheduling {
                slice_ns: Some(5_000_000),
                ..Scheduling::default()
            };
            requested.apply(0)
        });
        match applied {
            Ok(found) => assert_eq!(found.slice_ns, 5_000_000),
            Err(reason) => assert!(reason.contains("slice"), "{reason}"),
        }
    }

    #[test]
    fn a_value_that_the_kernel_changes_is_an_error() {
        // The kernel keeps slices to 0.1 to 100 ms (kernel/sched/syscalls.c).
        let reason = in_a_thread(|| {
            let requested = Scheduling {
                slice_ns: Some(3_000_000_000),
                ..Scheduling::default()
            };
            requested.apply(0).unwrap_err()
        });
        assert!(reason.contains("3000000000"), "{reason}");
    }
}
