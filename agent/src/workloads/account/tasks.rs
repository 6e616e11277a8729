//! The threads of a computer, and how long each has run (proc(5); the kernel's
//! Documentation/scheduler/sched-stats.rst).

use crate::measure::clock::monotonic_ns;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// One thread.
#[derive(Clone, Debug, Default, PartialEq)]
struct Task {
    parent: i32,
    process: String,
    name: String,
    /// Its start time, which distinguishes it from a later thread with the same id.
    begun: u64,
    user: u64,
    system: u64,
    guest: u64,
    run_ns: u64,
    /// When this was read: to read all threads takes a while, on a busy computer a long one.
    read_ns: u64,
}

/// The parent of the kernel's own threads; each is a process of one thread for ever.
const KTHREADD: i32 = 2;
/// The thread id for a process as a whole, including the children that it has reaped.
const WHOLE: i32 = 0;
/// The times of threads are truncated to ticks: a smaller time is not that of an ended thread.
const LEAST_TICKS: u64 = 2;

/// All threads by the numbers of their process and themselves.
#[derive(Default)]
pub struct Tasks(BTreeMap<(i32, i32), Task>);

impl Tasks {
    /// The threads there are now.
    pub fn now() -> Self {
        let mut found = BTreeMap::new();
        for pid in numbered(Path::new("/proc")) {
            let folder = format!("/proc/{pid}");
            let stat = text(&format!("{folder}/stat"));
            // The process has ended meanwhile.
            let Some(whole) = read_whole(&stat) else {
                continue;
            };
            let process = whole.name.clone();
            let of_kernel = whole.parent == KTHREADD;
            found.insert((pid, WHOLE), whole);
            if of_kernel {
                let schedstat = text(&format!("{folder}/schedstat"));
                found.extend(read(&process, &stat, &schedstat).map(|task| ((pid, pid), task)));
                continue;
            }
            for tid in numbered(Path::new(&format!("{folder}/task"))) {
                let task_folder = format!("{folder}/task/{tid}");
                let task = read(
                    &process,
                    &text(&format!("{task_folder}/stat")),
                    &text(&format!("{task_folder}/schedstat")),
                );
                found.extend(task.map(|task| ((pid, tid), task)));
            }
        }
        Self(found)
    }

    /// Each process with the one that began it.
    pub fn parents(&self) -> Value {
        let whole = self.0.iter().filter(|((_, tid), _)| *tid == WHOLE);
        whole
            .map(|((pid, _), task)| json!([pid, task.parent]))
            .collect()
    }

    /// The threads that ran since then: process, thread, their names, ticks in user and kernel mode and
    /// of these in a guest, and nanoseconds on a CPU. Threads and children that have ended meanwhile
    /// share one row, as thread 0 of their process.
    ///
    /// Each is scaled to `seconds` by the rate at which it ran between its own two readings, because
    /// their distance differs from `seconds` if the two looks took different times.
    pub fn since(&self, before: &Self, hertz: u64, seconds: f64) -> Value {
        let mut rows = Vec::new();
        for ((pid, tid), task) in &self.0 {
            let grew = before.grown((*pid, *tid), task);
            let share = before.share((*pid, *tid), task, seconds);
            if *tid != WHOLE && grew.run_ns > 0 {
                rows.push(row(*pid, *tid, &grew.times(share)));
            }
            if *tid == WHOLE {
                let ended = self.ended(before, *pid, grew);
                let ticks = ended.user + ended.system;
                if ticks >= LEAST_TICKS {
                    let run_ns = ticks * 1_000_000_000 / hertz.max(1);
                    rows.push(row(*pid, *tid, &Task { run_ns, ..ended }.times(share)));
                }
            }
        }
        rows.into()
    }

    fn known(&self, key: (i32, i32), task: &Task) -> Option<&Task> {
        self.0.get(&key).filter(|known| known.begun == task.begun)
    }

    /// `seconds` over the time between a task's two readings; 1 for one that is new.
    fn share(&self, key: (i32, i32), task: &Task, seconds: f64) -> f64 {
        let between_ns = self
            .known(key, task)
            .map_or(0, |known| task.read_ns.saturating_sub(known.read_ns));
        if between_ns > 0 {
            seconds * 1e9 / between_ns as f64
        } else {
            1.0
        }
    }

    /// A task with what it used since.
    fn grown(&self, key: (i32, i32), task: &Task) -> Task {
        let nothing = Task::default();
        let known = self.known(key, task).unwrap_or(&nothing);
        Task {
            user: task.user.saturating_sub(known.user),
            system: task.system.saturating_sub(known.system),
            guest: task.guest.saturating_sub(known.guest),
            run_ns: task.run_ns.saturating_sub(known.run_ns),
            ..task.clone()
        }
    }

    /// What a process used, minus what its living threads used, and minus what the children that it
    /// reaped had used before.
    fn ended(&self, before: &Self, pid: i32, whole: Task) -> Task {
        let living = self
            .0
            .range((pid, WHOLE + 1)..=(pid, i32::MAX))
            .map(|(key, task)| before.grown(*key, task));
        let buried = before
            .0
            .iter()
            .filter(|((gone, tid), _)| *tid == WHOLE && before.heir(*gone, self) == Some(pid))
            .map(|(_, task)| task.clone());
        living.chain(buried).fold(whole, |left, other| Task {
            user: left.user.saturating_sub(other.user),
            system: left.system.saturating_sub(other.system),
            ..left
        })
    }

    /// The process that has reaped another one by `after`: its nearest living ancestor, which inherits
    /// the usage of reaped children; `None` if it still lives.
    fn heir(&self, gone: i32, after: &Self) -> Option<i32> {
        let mut number = gone;
        // No chain of parents is as long; a closed one does not count.
        for _ in 0..self.0.len() {
            if after.0.contains_key(&(number, WHOLE)) {
                return (number != gone).then_some(number);
            }
            number = self.0.get(&(number, WHOLE))?.parent;
        }
        None
    }
}

impl Task {
    /// The same with so many times the CPU time.
    fn times(&self, factor: f64) -> Self {
        let times = |used: u64| (used as f64 * factor).round() as u64;
        Self {
            user: times(self.user),
            system: times(self.system),
            guest: times(self.guest),
            run_ns: times(self.run_ns),
            ..self.clone()
        }
    }
}

fn row(pid: i32, tid: i32, task: &Task) -> Value {
    json!([
        pid,
        tid,
        task.process,
        task.name,
        task.user,
        task.system,
        task.guest,
        task.run_ns,
    ])
}

fn text(path: &str) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn numbered(folder: &Path) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

/// Fields 4, 14, 15, 22 and 43 of `stat`, and the first of `schedstat`.
fn read(process: &str, stat: &str, schedstat: &str) -> Option<Task> {
    let (head, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The third field is the first behind the name.
    let field = |number: usize| fields.get(number - 3)?.parse().ok();
    Some(Task {
        parent: fields.get(1)?.parse().ok()?,
        process: process.into(),
        name: head.split_once('(')?.1.into(),
        begun: field(22)?,
        user: field(14)?,
        system: field(15)?,
        guest: field(43)?,
        run_ns: schedstat.split_whitespace().next()?.parse().ok()?,
        read_ns: monotonic_ns(),
    })
}

/// The same of a process as a whole, whose times hold those of its ended threads; fields 16 and 17
/// are those of its buried children.
fn read_whole(stat: &str) -> Option<Task> {
    let own = read("", stat, "0")?;
    let (_, rest) = stat.rsplit_once(')')?;
    let field = |number: usize| rest.split_whitespace().nth(number - 3)?.parse::<u64>().ok();
    Some(Task {
        process: own.name.clone(),
        user: own.user.saturating_add(field(16)?),
        system: own.system.saturating_add(field(17)?),
        ..own
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_may_hold_anything() {
        let rest: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("77 (a) b ) {}", rest.join(" "));
        let task = read("p", &stat, "900 5 1\n").unwrap();
        assert_eq!((task.name.as_str(), task.run_ns), ("a) b ", 900));
        assert_eq!(task.parent, 4);
        assert_eq!(
            (task.user, task.system, task.begun, task.guest),
            (14, 15, 22, 43)
        );
    }

    #[test]
    fn only_time_run_between_the_looks_counts() {
        let task = |begun, run_ns| Task {
            begun,
            run_ns,
            ..Task::default()
        };
        let before = Tasks(BTreeMap::from([
            ((1, 1), task(5, 100)),
            ((1, 2), task(5, 100)),
        ]));
        let after = Tasks(BTreeMap::from([
            ((1, 1), task(5, 100)),
            // A new thread with a reused id.
            ((1, 2), task(6, 30)),
            ((2, 2), task(7, 40)),
        ]));
        let changes = after.since(&before, 100, 1.0);
        let ran: Vec<_> = changes
            .as_array()
            .unwrap()
            .iter()
            .map(|row| &row[7])
            .collect();
        assert_eq!(ran, [30, 40]);
    }

    #[test]
    fn each_thread_is_scaled_by_the_rate_between_its_own_two_readings() {
        let task = |run_ns, read_ns| Task {
            user: run_ns / 10,
            run_ns,
            read_ns,
            ..Task::default()
        };
        // The second one's first reading came late, as the first look took half the time.
        let before = Tasks(BTreeMap::from([
            ((1, 1), task(0, 0)),
            ((2, 2), task(100, 500_000_000)),
        ]));
        let after = Tasks(BTreeMap::from([
            ((1, 1), task(80, 1_000_000_000)),
            ((2, 2), task(140, 1_000_000_000)),
            // A new one has no earlier reading.
            ((3, 3), task(30, 1_000_000_000)),
        ]));
        let changes = after.since(&before, 100, 1.0);
        let rows = changes.as_array().unwrap();
        let ran: Vec<_> = rows.iter().map(|row| (&row[4], &row[7])).collect();
        let expected = [(8, 80), (8, 80), (3, 30)].map(|(user, ran)| (json!(user), json!(ran)));
        assert_eq!(ran, expected.each_ref().map(|(user, ran)| (user, ran)));
    }

    #[test]
    fn ended_threads_and_children_count_for_their_process() {
        let task = |parent, user, run_ns| Task {
            parent,
            user,
            run_ns,
            ..Task::default()
        };
        let before = Tasks(BTreeMap::from([
            ((7, 0), task(1, 50, 0)),
            ((7, 7), task(1, 20, 200)),
            // A child that had used 30 before, and a child of that with 10: both end meanwhile.
            ((8, 0), task(7, 30, 0)),
            ((8, 8), task(7, 30, 400)),
            ((9, 0), task(8, 10, 0)),
            ((9, 9), task(8, 10, 100)),
        ]));
        let after = Tasks(BTreeMap::from([
            // Its own thread used 10, an ended one 5, those buried 40, and another 3.
            ((7, 0), task(1, 108, 0)),
            ((7, 7), task(1, 30, 300)),
        ]));
        let changes = after.since(&before, 100, 1.0);
        let rows = changes.as_array().unwrap();
        assert_eq!(
            (&rows[0][1], &rows[0][4], &rows[0][7]),
            (&json!(0), &json!(8), &json!(80_000_000))
        );
        assert_eq!((&rows[1][1], &rows[1][7]), (&json!(7), &json!(100)));
        assert_eq!(rows.len(), 2);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_fail(stat in "\\PC{0,200}", schedstat in "[0-9 ]{0,30}") {
            let _ = read("p", &stat, &schedstat);
            let _ = read_whole(&stat);
        }
    }
}
