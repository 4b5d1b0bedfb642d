//! Snapshots on disk: written so that what is there is whole, or what was there before.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;

use super::error::{Code, Result, error, failed, snapshot};
use crate::queue::keeper::Keeper;
use crate::queue::snapshot::{Checked, Image, Restoring, Snapshot, SnapshotError};
use crate::shared::{Breath, SLICE, Shared};

fn unusable(what: &str, path: &Path, err: &io::Error) -> super::error::Error {
    error(Code::Io, format!("cannot {what} the snapshot {}: {err}", path.display()))
}

/// A device or a pipe is neither renamed over nor waited for.
fn must_be_file(what: &str, path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            Err(unusable(what, path, &io::Error::other("there is something that is no file")))
        }
        _ => Ok(()),
    }
}

/// Files being written, and queues being written: one save each.
static SAVING: Mutex<(Vec<PathBuf>, Vec<usize>)> = Mutex::new((Vec::new(), Vec::new()));

/// The right to save this queue to this file, given back when dropped.
struct Turn<'a> {
    path: &'a Path,
    queue: usize,
}

impl Turn<'_> {
    fn take<'a>(shared: &Arc<Shared>, path: &'a Path) -> Option<Turn<'a>> {
        let queue = Arc::as_ptr(shared) as usize;
        let (paths, queues) = &mut *SAVING.lock();
        if paths.iter().any(|other| other == path) || queues.contains(&queue) {
            return None;
        }
        paths.push(path.to_owned());
        queues.push(queue);
        Some(Turn { path, queue })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let (paths, queues) = &mut *SAVING.lock();
        paths.retain(|other| other != self.path);
        queues.retain(|other| *other != self.queue);
    }
}

/// Writes `image` to `path`: to a file beside it, synced, then renamed over it, then the folder synced.
fn write(image: &Image, path: &Path) -> io::Result<u64> {
    // The name is the same every time, so that what a killed process left is overwritten.
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let written = (|| {
        let mut breath = Breath::default();
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&temporary)?);
        image.write(&mut out, &mut || breath.take())?;
        out.flush()?;
        let file = out.get_ref();
        file.sync_all()?;
        let bytes = file.metadata()?.len();
        fs::rename(&temporary, path)?;
        if let Some(folder) = path.parent() {
            // Windows cannot sync a folder, and does not need to.
            #[cfg(unix)]
            File::open(folder)?.sync_all()?;
            #[cfg(not(unix))]
            let _ = folder;
        }
        Ok(bytes)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// What a snapshot came to.
pub struct Saved {
    /// Rows in it.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// How long it took.
    pub ms: f64,
}

/// Saves the queue as it is at this moment.
pub fn save(shared: &Arc<Shared>, path: &Path) -> Result<Saved> {
    let start = Instant::now();
    // One file is one path, however it was written: two saves to it would share their temporary file.
    let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let path = &fs::canonicalize(folder).map_err(|err| unusable("write", path, &err))?.join(name);
    must_be_file("write", path)?;
    let busy = || error(Code::Busy, "a snapshot of this queue, or to this file, is being written already: wait for it");
    let _turn = Turn::take(shared, path).ok_or_else(busy)?;
    if !shared.with(Keeper::begin_image).map_err(failed)? {
        return Err(busy());
    }
    let image = shared.in_background(Keeper::go_on_imaging).map_err(failed)?;
    let bytes = write(&image, path).map_err(|err| unusable("write", path, &err))?;
    let ms = start.elapsed().as_secs_f64() * 1000.0;
    shared.with(|keeper| keeper.snapshot_written(ms)).map_err(failed)?;
    Ok(Saved { rows: image.rows(), bytes, ms })
}

/// What reading a snapshot came to.
pub struct Loaded {
    /// Rows kept from it.
    pub rows: u64,
    /// When it was written, ms since the epoch.
    pub saved_at: f64,
    /// How long it took.
    pub ms: f64,
}

/// Reads a snapshot into the queue, for as long as `may` allows it. All of it is checked before any of it is kept.
pub fn load(shared: &Shared, path: &Path, may: impl Fn(&Keeper) -> Result<()>) -> Result<Loaded> {
    let start = Instant::now();
    must_be_file("read", path)?;
    let bytes = fs::read(path).map_err(|err| unusable("read", path, &err))?;
    let rules = shared.with(|keeper| keeper.rules()).map_err(failed)?;
    let read = Snapshot::open(bytes, rules).map_err(snapshot)?;
    let checked = check(&read).map_err(snapshot)?;
    let mut from = read.restoring(checked).map_err(snapshot)?;
    let begun = shared.with(|keeper| {
        // Checking takes a while: another may have taken over meanwhile.
        may(keeper)?;
        keeper.check_snapshot(&from).map_err(snapshot)?;
        keeper.begin_restoring(&mut from);
        Result::Ok(())
    });
    begun.map_err(failed)??;
    let restored = restore(shared, &mut from, may);
    shared.in_background(|keeper| keeper.end_restoring().then_some(())).map_err(failed)?;
    restored?;
    Ok(Loaded { rows: from.kept(), saved_at: from.saved_at(), ms: start.elapsed().as_secs_f64() * 1000.0 })
}

/// Checks all parts, together with a second thread where there is a CPU for it: returns them in their order.
fn check(read: &Snapshot) -> std::result::Result<Vec<Checked>, SnapshotError> {
    let next = AtomicUsize::new(0);
    let some = || {
        let (mut some, mut breath) = (Vec::new(), Breath::default());
        loop {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part >= read.parts() {
                return Ok(some);
            }
            // What is wrong in one part is wrong with all.
            some.push((part, read.check(part).inspect_err(|_| next.store(read.parts(), Ordering::Relaxed))?));
            breath.take();
        }
    };
    let mut all = thread::scope(|scope| {
        let two = read.parts() > 1 && thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
        // Without a second thread it takes longer, and that is all.
        let second =
            two.then(|| thread::Builder::new().name("snapshot".into()).spawn_scoped(scope, some).ok()).flatten();
        let first = some();
        let second = second.map_or(Ok(Vec::new()), |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let mut all = first?;
        all.extend(second?);
        Ok(all)
    })?;
    all.sort_unstable_by_key(|(part, _)| *part);
    Ok(all.into_iter().map(|(_, checked)| checked).collect())
}

fn restore(shared: &Shared, from: &mut Restoring, may: impl Fn(&Keeper) -> Result<()>) -> Result<()> {
    let restored =
        shared.in_background(|keeper| match may(keeper).and_then(|()| from.read_on(SLICE).map_err(snapshot)) {
            Ok(true) => {
                keeper.restore(from);
                None
            }
            Ok(false) => Some(Ok(())),
            Err(err) => Some(Err(err)),
        });
    restored.map_err(failed)?
}
