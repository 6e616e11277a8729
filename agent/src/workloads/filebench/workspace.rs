//! The prepared files, and what each thread does with them.

use super::fileset::{FileSet, Layout};
use super::gamma::Gamma;
use super::limit::{over, End, Limit};
use super::micro::MicroThread;
use super::params::{Plan, Work};
use super::personality::{Log, Personality, Shared};
use super::worker::{forget_caches, write_out, Aligned, Worker};
use crate::contract::Failure;
use crate::measure::random::Random;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The log is truncated when it has taken this share of the free space.
const LOG_SHARE: u64 = 4;
const PREPARATION: Duration = Duration::from_secs(24 * 3600);

pub struct Workspace {
    layout: Layout,
    existing: usize,
    /// The bytes of all files that exist.
    pub bytes: u64,
    data: Aligned,
    kind: Kind,
}

enum Kind {
    Personality(Personality, Box<Shared>),
    Micro(Vec<MicroThread>),
}

impl Workspace {
    /// Make the files in `folder`, and bring them to the disk.
    pub fn prepare(plan: &Plan, folder: &Path, free: u64, stop: &AtomicBool) -> Result<Self, End> {
        let layout = Layout::new(folder, plan.files, plan.width);
        let failed = |error: &std::io::Error| End::io("create", folder, error);
        layout
            .make_directories(plan.files)
            .map_err(|error| failed(&error))?;
        let data = Aligned::random(plan.io_bytes as usize, plan.seed);
        let (sizes, mut random) = (
            Gamma::new(plan.shape, plan.mean_bytes as f64),
            Random::new(plan.seed),
        );
        let limit = Limit {
            stop,
            until: Instant::now() + PREPARATION,
        };
        let existing = plan.existing();
        let mut bytes = 0;
        for number in 0..existing {
            over(&limit)?;
            let size = match plan.work {
                Work::Personality(_) => sizes.size(&mut random),
                Work::Micro(_) => plan.mean_bytes,
            };
            let path = layout.path(number);
            File::create(&path)
                .and_then(|mut file| write_out(&mut file, data.bytes(), size))
                .map_err(|error| End::io("write", &path, &error))?;
            bytes += size;
        }
        let kind = match plan.work {
            Work::Personality(personality) => {
                let most = ((free.saturating_sub(bytes)) / LOG_SHARE).max(plan.append_bytes);
                let log = (!personality.creates())
                    .then(|| Log::new(folder.join("log"), most))
                    .transpose()
                    .map_err(|error| failed(&error))?;
                let shared = Shared {
                    set: FileSet::new(layout.clone(), plan.files, existing),
                    sizes,
                    append_bytes: plan.append_bytes,
                    log,
                };
                Kind::Personality(personality, Box::new(shared))
            }
            Work::Micro(micro) => Kind::Micro(
                (0..plan.threads)
                    .map(|number| MicroThread {
                        micro,
                        path: layout.path(number % plan.files),
                        pieces: plan.mean_bytes / plan.io_bytes,
                        io_bytes: plan.io_bytes,
                        direct: plan.direct,
                        flushed: plan.flushed,
                    })
                    .collect(),
            ),
        };
        Ok(Self {
            layout,
            existing,
            bytes,
            data,
            kind,
        })
    }

    pub fn data(&self) -> &[u8] {
        self.data.bytes()
    }

    /// Bring everything to the disk and make the kernel forget it; returns what of it could be.
    pub fn forget_caches(&self, folder: &Path) -> Result<&'static str, Failure> {
        let files = (0..self.existing).map(|number| self.layout.path(number));
        forget_caches(folder, files)
            .map_err(|error| Failure(format!("the files cannot be brought to the disk: {error}")))
    }

    pub fn log_turns(&self) -> u64 {
        match &self.kind {
            Kind::Personality(_, shared) => shared.log.as_ref().map_or(0, Log::turns),
            Kind::Micro(_) => 0,
        }
    }

    /// Open what a thread has open from the beginning.
    pub fn open(&self, thread: usize) -> Result<Option<File>, End> {
        match &self.kind {
            Kind::Personality(..) => Ok(None),
            Kind::Micro(threads) => threads[thread].open().map(Some),
        }
    }

    /// One thread's work until the time is over or anything failed; why it ended.
    pub fn work(
        &self,
        worker: &mut Worker,
        thread: usize,
        opened: Option<File>,
        abandoned: &AtomicBool,
    ) -> End {
        let done = match (&self.kind, opened) {
            (Kind::Personality(personality, shared), _) => loop {
                let turn = personality.turn(worker, shared);
                if turn.is_err() || abandoned.load(Ordering::Relaxed) {
                    break turn;
                }
            },
            (Kind::Micro(threads), Some(file)) => {
                let micro_thread = &threads[thread];
                let followed = micro_thread.follow(worker, &file);
                // Written data count only once they are on the disk: the time runs until then.
                match (&followed, micro_thread.micro.write) {
                    (Err(End::Over), true) => file
                        .sync_all()
                        .map_err(|error| End::io("sync", &micro_thread.path, &error))
                        .and(followed),
                    _ => followed,
                }
            }
            (Kind::Micro(_), None) => Ok(()),
        };
        done.err().unwrap_or(End::Over)
    }
}
