//! A tree of files: the path of each, which exist, and which are in use.

use super::limit::{over, End, Limit};
use crate::measure::random::Random;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const TRIES: usize = 16;
const WAIT: Duration = Duration::from_millis(5);
const NOWHERE: u32 = u32::MAX;

/// How files are spread over directories: no directory has more than `width` entries, and the tree
/// is as flat as that allows.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
    width: usize,
    levels: u32,
}

impl Layout {
    pub fn new(root: &Path, files: usize, width: usize) -> Self {
        let width = width.max(2);
        let mut levels = 0;
        let mut reach = width;
        while reach < files {
            reach = reach.saturating_mul(width);
            levels += 1;
        }
        Self {
            root: root.into(),
            width,
            levels,
        }
    }

    /// The directory of a file.
    pub fn directory(&self, file: usize) -> PathBuf {
        let mut path = self.root.clone();
        let leaf = file / self.width;
        for level in (0..self.levels).rev() {
            let digit = leaf / self.width.pow(level) % self.width;
            path.push(format!("d{digit:05}"));
        }
        path
    }

    pub fn path(&self, file: usize) -> PathBuf {
        self.directory(file).join(format!("f{file:08}"))
    }

    /// Make the directories of the first `files` files.
    pub fn make_directories(&self, files: usize) -> io::Result<()> {
        for first in (0..files).step_by(self.width) {
            fs::create_dir_all(self.directory(first))?;
        }
        Ok(())
    }
}

/// Which files exist. Each is in `existing`, in `free`, or on its way between them.
struct States {
    existing: Vec<u32>,
    free: Vec<u32>,
    /// Where in `existing` a file is.
    place: Vec<u32>,
    users: Vec<u16>,
}

/// The files that threads choose from.
pub struct FileSet {
    pub layout: Layout,
    states: Mutex<States>,
    changed: Condvar,
}

impl FileSet {
    /// A set of `files` files; the first `existing` exist.
    pub fn new(layout: Layout, files: usize, existing: usize) -> Self {
        let place = (0..files as u32)
            .map(|file| {
                if (file as usize) < existing {
                    file
                } else {
                    NOWHERE
                }
            })
            .collect();
        Self {
            layout,
            states: Mutex::new(States {
                existing: (0..existing as u32).collect(),
                free: (existing as u32..files as u32).collect(),
                place,
                users: vec![0; files],
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many files exist and how many names are free.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        let states = self.lock();
        (states.existing.len(), states.free.len())
    }

    /// Wait until `take` finds something, or the end.
    fn wait<T>(
        &self,
        limit: &Limit,
        mut take: impl FnMut(&mut States) -> Option<T>,
    ) -> Result<T, End> {
        let mut states = self.lock();
        loop {
            if let Some(found) = take(&mut states) {
                return Ok(found);
            }
            over(limit)?;
            states = self
                .changed
                .wait_timeout(states, WAIT)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// A file that exists, in use from now on.
    pub fn pick(&self, random: &mut Random, limit: &Limit) -> Result<usize, End> {
        self.wait(limit, |states| {
            let count = states.existing.len();
            let file = *states.existing.get(random.below(count.max(1)))?;
            states.users[file as usize] += 1;
            Some(file as usize)
        })
    }

    /// The file is no longer in use.
    pub fn release(&self, file: usize) {
        let mut states = self.lock();
        states.users[file] -= 1;
        if states.users[file] == 0 {
            self.changed.notify_one();
        }
    }

    /// An existing file that is not in use, to be deleted: from now on it does not exist.
    pub fn pick_to_delete(&self, random: &mut Random, limit: &Limit) -> Result<usize, End> {
        self.wait(limit, |states| {
            let count = states.existing.len();
            if count == 0 {
                return None;
            }
            let idle = |states: &States, at: usize| states.users[states.existing[at] as usize] == 0;
            let start = random.below(count);
            let at = (0..TRIES)
                .map(|_| random.below(count))
                .find(|at| idle(states, *at))
                // Where nearly all are in use, look at every one.
                .or_else(|| {
                    (0..count)
                        .map(|step| (start + step) % count)
                        .find(|at| idle(states, *at))
                })?;
            let file = states.existing.swap_remove(at);
            if let Some(moved) = states.existing.get(at).copied() {
                states.place[moved as usize] = at as u32;
            }
            states.place[file as usize] = NOWHERE;
            Some(file as usize)
        })
    }

    /// A deleted file's name may be used again.
    pub fn deleted(&self, file: usize) {
        self.lock().free.push(file as u32);
        self.changed.notify_one();
    }

    /// A name that is free, to be created.
    pub fn pick_to_create(&self, random: &mut Random, limit: &Limit) -> Result<usize, End> {
        self.wait(limit, |states| {
            let count = states.free.len();
            (count > 0).then(|| states.free.swap_remove(random.below(count)) as usize)
        })
    }

    /// A created file exists from now on, and is in use by its creator.
    pub fn created(&self, file: usize) {
        let mut states = self.lock();
        states.place[file] = states.existing.len() as u32;
        states.existing.push(file as u32);
        states.users[file] = 1;
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    #[test]
    fn ten_thousand_files_of_width_twenty_lie_three_directories_deep() {
        let layout = Layout::new(Path::new("/r"), 10_000, 20);
        assert_eq!(
            layout.path(0),
            Path::new("/r/d00000/d00000/d00000/f00000000")
        );
        assert_eq!(
            layout.path(9_999),
            Path::new("/r/d00001/d00004/d00019/f00009999")
        );
        let flat = Layout::new(Path::new("/r"), 1000, 1_000_000);
        assert_eq!(flat.path(999), Path::new("/r/f00000999"));
    }

    proptest! {
        #[test]
        fn no_directory_is_wider_than_requested(files in 1usize..600, width in 2usize..60) {
            let layout = Layout::new(Path::new("/r"), files, width);
            let mut entries: HashMap<PathBuf, HashSet<PathBuf>> = HashMap::new();
            for file in 0..files {
                let mut path = layout.path(file);
                while path != Path::new("/r") {
                    let parent = path.parent().unwrap().to_path_buf();
                    entries.entry(parent.clone()).or_default().insert(path);
                    path = parent;
                }
            }
            prop_assert!(entries.values().all(|inside| inside.len() <= width));
            let leaves: usize = entries.values().flatten().filter(|path| !entries.contains_key(*path)).count();
            prop_assert_eq!(leaves, files);
        }

        #[test]
        fn every_file_is_in_one_place_whatever_is_done(
            files in 1usize..40, share in 0usize..=40, steps in prop::collection::vec(0u8..5, 0..200), seed in any::<u64>(),
        ) {
            let existing = share.min(files);
            let stop = AtomicBool::new(false);
            // Over from the beginning, so that nothing waits.
            let limit = Limit { stop: &stop, until: Instant::now() };
            let set = FileSet::new(Layout::new(Path::new("/r"), files, 20), files, existing);
            let mut random = Random::new(seed);
            let (mut used, mut gone) = (Vec::new(), 0);
            for step in steps {
                match step {
                    0 => if let Ok(file) = set.pick(&mut random, &limit) { used.push(file) },
                    1 => if let Some(file) = used.pop() { set.release(file) },
                    2 => if let Ok(file) = set.pick_to_delete(&mut random, &limit) {
                        prop_assert!(!used.contains(&file));
                        set.deleted(file);
                    },
                    3 => if let Ok(file) = set.pick_to_create(&mut random, &limit) { set.created(file); used.push(file) },
                    _ => if set.pick_to_delete(&mut random, &limit).is_ok() { gone += 1 },
                }
                let (existing, free) = set.counts();
                prop_assert_eq!(existing + free + gone, files);
                let states = set.lock();
                for (at, file) in states.existing.iter().enumerate() {
                    prop_assert_eq!(states.place[*file as usize], at as u32);
                }
            }
        }
    }
}
