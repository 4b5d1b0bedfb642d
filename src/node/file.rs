//! Snapshots on disk: written so that what is there is whole, or what was there before.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::error::{Code, Result, error, failed, snapshot};
use crate::queue::keeper::Keeper;
use crate::queue::key::KeyHasher;
use crate::queue::snapshot::{Image, Restoring};
use crate::shared::{SLICE, Shared};

fn unusable(what: &str, path: &Path, err: &io::Error) -> super::error::Error {
    error(Code::Io, format!("cannot {what} the snapshot {}: {err}", path.display()))
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
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&temporary)?);
        image.write(&mut out)?;
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
    let start = std::time::Instant::now();
    // One file is one path, however it was written: two saves to it would share their temporary file.
    let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let path = &fs::canonicalize(folder).map_err(|err| unusable("write", path, &err))?.join(name);
    let busy = || error(Code::Busy, "a snapshot of this queue, or to this file, is being written already: wait for it");
    let _turn = Turn::take(shared, path).ok_or_else(busy)?;
    if !shared.with(Keeper::begin_image).map_err(failed)? {
        return Err(busy());
    }
    let image = shared.in_slices(Keeper::go_on_imaging).map_err(failed)?;
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
    let start = std::time::Instant::now();
    let bytes = fs::read(path).map_err(|err| unusable("read", path, &err))?;
    let mut from = Restoring::open(bytes).map_err(snapshot)?;
    let hasher = shared.with(|keeper| {
        keeper.check_snapshot(&from)?;
        keeper.begin_restoring(&mut from);
        Ok(keeper.hasher())
    });
    let hasher = hasher.map_err(failed)?.map_err(snapshot)?;
    let restored = restore(shared, &mut from, &hasher, may);
    shared.in_slices(|keeper| keeper.end_restoring().then_some(())).map_err(failed)?;
    restored?;
    Ok(Loaded { rows: from.kept(), saved_at: from.saved_at(), ms: start.elapsed().as_secs_f64() * 1000.0 })
}

fn restore(
    shared: &Shared,
    from: &mut Restoring,
    hasher: &KeyHasher,
    may: impl Fn(&Keeper) -> Result<()>,
) -> Result<()> {
    // Keys are read and hashed without the lock; it is held for the rows of one slice.
    while from.read_on(SLICE, Some(hasher)).map_err(snapshot)? {
        shared.with(|keeper| may(keeper).map(|()| keeper.restore(from))).map_err(failed)??;
    }
    Ok(())
}
