//! Passes a token round a ring of processes or threads through pipes, as lmbench's lat_ctx does.
//!
//! usage: pipe_ring processes|threads COUNT HOPS
//!
//! Prints JSON, in nanoseconds: `hop`, the time from one member of the ring to the next, and
//! `overhead`, what one process takes for the same write and read without any switch. lmbench's
//! figure is the difference of the two.
//!
//! Source of the method: McVoy and Staelin, lmbench: Portable Tools for Performance Analysis,
//! USENIX 1996, section 6.6.

use std::time::Instant;

const BATCHES: usize = 15;
const END: u32 = u32::MAX;

extern "C" {
    fn pipe(ends: *mut i32) -> i32;
    fn read(from: i32, to: *mut u8, length: usize) -> isize;
    fn write(to: i32, from: *const u8, length: usize) -> isize;
    fn fork() -> i32;
    fn wait(status: *mut i32) -> i32;
    fn _exit(code: i32) -> !;
}

#[derive(Clone, Copy)]
struct Pipe {
    out: i32,
    into: i32,
}

impl Pipe {
    fn new() -> Self {
        let mut ends = [0i32; 2];
        // SAFETY: the array holds the two descriptors that the call writes.
        assert_eq!(unsafe { pipe(ends.as_mut_ptr()) }, 0, "no pipe to be had");
        Self {
            out: ends[0],
            into: ends[1],
        }
    }

    fn take(self) -> u32 {
        let mut token = [0u8; 4];
        // SAFETY: the array has the stated length.
        let got = unsafe { read(self.out, token.as_mut_ptr(), token.len()) };
        assert_eq!(got, 4, "the token was lost");
        u32::from_ne_bytes(token)
    }

    fn give(self, token: u32) {
        let token = token.to_ne_bytes();
        // SAFETY: the array has the stated length.
        let gave = unsafe { write(self.into, token.as_ptr(), token.len()) };
        assert_eq!(gave, 4, "the token cannot be passed on");
    }
}

/// Pass the token on until it is the last one.
fn member(from: Pipe, to: Pipe) {
    loop {
        let token = from.take();
        to.give(token);
        if token == END {
            return;
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds of one step, as the median of some batches of `steps`.
fn timed(steps: usize, mut batch: impl FnMut()) -> f64 {
    batch();
    let one = |batch: &mut dyn FnMut()| {
        let start = Instant::now();
        batch();
        start.elapsed().as_nanos() as f64 / steps as f64
    };
    median((0..BATCHES).map(|_| one(&mut batch)).collect())
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let (kind, count, hops) = match &words[..] {
        [_, kind, count, hops] => (kind, count.parse().unwrap_or(0), hops.parse().unwrap_or(0)),
        _ => panic!("usage: pipe_ring processes|threads COUNT HOPS"),
    };
    assert!(
        (2..=1000).contains(&count) && hops >= count,
        "COUNT 2 to 1000, HOPS at least COUNT"
    );
    let pipes: Vec<Pipe> = (0..count).map(|_| Pipe::new()).collect();
    let rounds = (hops / count / BATCHES).max(1);
    let steps = rounds * count;
    let overhead = timed(steps, || {
        for _ in 0..rounds {
            for pipe in &pipes {
                pipe.give(0);
                pipe.take();
            }
        }
    });
    let mut threads = Vec::new();
    for number in 1..count {
        let (from, to) = (pipes[number], pipes[(number + 1) % count]);
        if kind == "threads" {
            threads.push(std::thread::spawn(move || member(from, to)));
        } else {
            // SAFETY: there is one thread; the child only reads, writes and ends.
            let child = unsafe { fork() };
            assert!(child >= 0, "no further process to be had");
            if child == 0 {
                member(from, to);
                // SAFETY: takes a number, never returns.
                unsafe { _exit(0) };
            }
        }
    }
    let hop = timed(steps, || {
        for _ in 0..rounds {
            pipes[1].give(0);
            pipes[0].take();
        }
    });
    pipes[1].give(END);
    pipes[0].take();
    for thread in threads {
        thread.join().expect("a member of the ring");
    }
    // SAFETY: nothing is written where no status is asked for.
    while unsafe { wait(std::ptr::null_mut()) } > 0 {}
    println!("{{\"hop\": {hop:.1}, \"overhead\": {overhead:.1}}}");
}
