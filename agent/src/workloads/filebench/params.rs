//! The parameters, with defaults from the published tables.

use super::micro::Micro;
use super::personality::{Personality, Table};
use super::worker::ALIGN;
use crate::contract::Failure;
use crate::measure::params;
use serde::Deserialize;
use serde_json::Value;

/// What a personality lasts as published, in seconds.
const PUBLISHED_S: f64 = 60.0;
const IO_BYTES: u64 = 1 << 20;
const RANDOM_IO_BYTES: u64 = 8 << 10;
const APPEND_BYTES: u64 = 16 << 10;
const SHAPE: f64 = 1.5;
const SPARE: f64 = 1.25;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    /// A personality or a microbenchmark.
    work: String,
    seconds: f64,
    /// Nothing: as published for the personality.
    files: Option<usize>,
    mean_bytes: Option<u64>,
    width: Option<usize>,
    threads: Option<usize>,
    preallocated: Option<f64>,
    io_bytes: Option<u64>,
    /// All files of a microbenchmark together.
    total_bytes: u64,
    /// Past the page cache; microbenchmarks only.
    direct: bool,
    /// Written data may stay in the page cache; else it is flushed after each pass. Microbenchmarks
    /// only.
    cached: bool,
    seed: u64,
    /// The machine's memory as the host knows it.
    memory_bytes: Option<u64>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            work: "fileserver".into(),
            seconds: PUBLISHED_S,
            files: None,
            mean_bytes: None,
            width: None,
            threads: None,
            preallocated: None,
            io_bytes: None,
            total_bytes: 64 << 20,
            direct: false,
            cached: false,
            seed: 1,
            memory_bytes: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    Personality(Personality),
    Micro(Micro),
}

impl Work {
    fn find(name: &str) -> Option<Self> {
        let personality = Personality::ALL.iter().find(|known| known.name() == name);
        let micro = Micro::ALL.iter().find(|(known, _)| *known == name);
        personality
            .map(|found| Self::Personality(*found))
            .or(micro.map(|(_, found)| Self::Micro(*found)))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Personality(personality) => personality.name(),
            Self::Micro(micro) => Micro::ALL
                .iter()
                .find(|(_, known)| *known == micro)
                .map_or("", |(name, _)| name),
        }
    }
}

/// The work, with every number filled in.
#[derive(Clone, Debug)]
pub struct Plan {
    pub work: Work,
    pub seconds: f64,
    pub threads: usize,
    pub files: usize,
    pub mean_bytes: u64,
    /// The shape of the gamma distribution that sizes have.
    pub shape: f64,
    pub width: usize,
    pub preallocated: f64,
    pub io_bytes: u64,
    pub append_bytes: u64,
    pub direct: bool,
    /// Whether a microbenchmark brings what it wrote to the disk after each pass.
    pub flushed: bool,
    pub seed: u64,
    pub memory_bytes: Option<u64>,
}

impl Plan {
    /// How many files exist before the beginning.
    pub fn existing(&self) -> usize {
        (self.files as f64 * self.preallocated).round() as usize
    }

    /// An estimate of the most bytes that all files need.
    pub fn bytes(&self) -> u64 {
        match self.work {
            Work::Personality(_) => {
                (self.files as f64 * self.mean_bytes as f64 * SPARE) as u64
                    + self.threads as u64 * self.io_bytes.min(self.mean_bytes * 4)
            }
            Work::Micro(_) => self.mean_bytes * self.files as u64,
        }
    }

    /// Descriptions of what differs from the published numbers.
    pub fn scaled(&self) -> Vec<String> {
        let Work::Personality(personality) = self.work else {
            return Vec::new();
        };
        let published = personality.table();
        let mut differences = Vec::new();
        let mut compare = |name: &str, own: f64, its: f64, unit: &str| {
            if own != its {
                differences.push(format!("{name} {own}{unit} instead of {its}{unit}"));
            }
        };
        compare("files", self.files as f64, published.files as f64, "");
        compare(
            "mean size",
            self.mean_bytes as f64 / 1024.0,
            published.mean_bytes as f64 / 1024.0,
            " KiB",
        );
        compare("width", self.width as f64, published.width as f64, "");
        compare("threads", self.threads as f64, published.threads as f64, "");
        compare(
            "preallocated",
            self.preallocated,
            published.preallocated,
            "",
        );
        compare("I/O size", self.io_bytes as f64, IO_BYTES as f64, " B");
        compare("duration", self.seconds, PUBLISHED_S, " s");
        differences
    }
}

/// Read and check the parameters.
pub fn plan(given: &Value) -> Result<Plan, Failure> {
    let params: Params = params::parse(given)?;
    let work = Work::find(&params.work)
        .ok_or_else(|| Failure(format!("parameters: no such work '{}'", params.work)))?;
    let plan = match work {
        Work::Personality(personality) => of_personality(&params, personality),
        Work::Micro(micro) => of_micro(&params, micro)?,
    };
    params::require(
        plan.seconds > 0.0 && plan.seconds <= 86_400.0,
        "seconds: above 0, at most 86400",
    )?;
    params::require((1..=1000).contains(&plan.threads), "threads: 1 to 1000")?;
    params::require(
        (1..=10_000_000).contains(&plan.files),
        "files: 1 to 10000000",
    )?;
    params::require(
        (1..=1 << 40).contains(&plan.mean_bytes),
        "mean_bytes: 1 B to 1 TiB",
    )?;
    params::require(
        (1..=64 << 20).contains(&plan.io_bytes),
        "io_bytes: 1 B to 64 MiB",
    )?;
    params::require(
        (2..=10_000_000).contains(&plan.width),
        "width: 2 to 10000000",
    )?;
    params::require(
        plan.preallocated > 0.0 && plan.preallocated <= 1.0,
        "preallocated: above 0, at most 1",
    )?;
    if let Work::Personality(personality) = work {
        params::require(
            !plan.direct,
            "direct: only microbenchmarks can go past the page cache",
        )?;
        let (existing, threads) = (plan.existing(), plan.threads);
        if personality.creates() {
            params::require(
                plan.files > existing,
                "preallocated: this personality creates files, and needs names that are free",
            )?;
        }
        params::require(
            existing > if personality.creates() { threads } else { 0 },
            "files: more must exist before the beginning than there are threads",
        )?;
    }
    Ok(plan)
}

fn of_personality(params: &Params, personality: Personality) -> Plan {
    let Table {
        files,
        mean_bytes,
        width,
        threads,
        preallocated,
    } = personality.table();
    Plan {
        work: Work::Personality(personality),
        seconds: params.seconds,
        threads: params.threads.unwrap_or(threads),
        files: params.files.unwrap_or(files),
        mean_bytes: params.mean_bytes.unwrap_or(mean_bytes),
        shape: SHAPE,
        width: params.width.unwrap_or(width),
        preallocated: params.preallocated.unwrap_or(preallocated),
        io_bytes: params.io_bytes.unwrap_or(IO_BYTES),
        append_bytes: APPEND_BYTES,
        direct: params.direct,
        flushed: false,
        seed: params.seed,
        memory_bytes: params.memory_bytes,
    }
}

fn of_micro(params: &Params, micro: Micro) -> Result<Plan, Failure> {
    let threads = params.threads.unwrap_or(1);
    params::require((1..=1000).contains(&threads), "threads: 1 to 1000")?;
    let usual = if micro.random {
        RANDOM_IO_BYTES
    } else {
        IO_BYTES
    };
    let io_bytes = params.io_bytes.unwrap_or(usual);
    params::require(io_bytes > 0, "io_bytes: at least 1 B")?;
    params::require(
        !params.direct || io_bytes % ALIGN as u64 == 0,
        "io_bytes: direct I/O needs a multiple of 4 KiB",
    )?;
    let files = micro.files(threads);
    // Whole I/Os only.
    let each = params.total_bytes / files as u64 / io_bytes * io_bytes;
    params::require(
        each > 0,
        "total_bytes: each thread's file must hold at least one I/O",
    )?;
    params::require(
        each / io_bytes <= u64::from(u32::MAX),
        "total_bytes: at most 4294967295 I/Os in a file",
    )?;
    Ok(Plan {
        work: Work::Micro(micro),
        seconds: params.seconds,
        threads,
        files,
        mean_bytes: each,
        shape: SHAPE,
        width: 1000,
        preallocated: 1.0,
        io_bytes,
        append_bytes: APPEND_BYTES,
        direct: params.direct,
        flushed: micro.write && !params.direct && !params.cached,
        seed: params.seed,
        memory_bytes: params.memory_bytes,
    })
}
