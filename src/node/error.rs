//! The closed list of error codes, and what each says.

use crate::queue::snapshot::{FORMAT, SnapshotError};
use crate::shared::Failure;

/// What a caller finds on `err.code`. The list is in `index.d.ts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The handle has been closed.
    Closed,
    /// An earlier call panicked.
    Poisoned,
    /// Another feeder has taken over.
    Deposed,
    /// The name was opened with other options.
    Options,
    /// The walk is no longer the one under way.
    Walk,
    /// A snapshot is being written already.
    Busy,
    /// A file cannot be read or written.
    Io,
    /// A snapshot is damaged.
    SnapshotDamaged,
    /// A snapshot is of another format version.
    SnapshotVersion,
    /// A snapshot is of another node.
    SnapshotForeign,
    /// There is no manual clock to set.
    Clock,
    /// An argument that the JavaScript side should have refused.
    Argument,
}

impl AsRef<str> for Code {
    fn as_ref(&self) -> &str {
        match self {
            Code::Closed => "E_CLOSED",
            Code::Poisoned => "E_POISONED",
            Code::Deposed => "E_DEPOSED",
            Code::Options => "E_OPTIONS",
            Code::Walk => "E_WALK",
            Code::Busy => "E_BUSY",
            Code::Io => "E_IO",
            Code::SnapshotDamaged => "E_SNAPSHOT_DAMAGED",
            Code::SnapshotVersion => "E_SNAPSHOT_VERSION",
            Code::SnapshotForeign => "E_SNAPSHOT_FOREIGN",
            Code::Clock => "E_CLOCK",
            Code::Argument => "E_ARGUMENT",
        }
    }
}

/// An error with a code.
pub type Error = napi::Error<Code>;
/// What an export returns.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this code.
pub fn error(code: Code, message: impl Into<String>) -> Error {
    Error::new(code, message.into())
}

/// The handle was closed.
pub fn closed() -> Error {
    error(Code::Closed, "this keeper has been closed: open it again to use it")
}

/// The queue was given up.
pub fn poisoned() -> Error {
    error(
        Code::Poisoned,
        "a fault inside this queue was caught and the queue given up, so that no wrong number is shown: restart the process, \
         and report the message printed on stderr",
    )
}

/// What a failure of the shared queue says.
pub fn failed(Failure::Poisoned: Failure) -> Error {
    poisoned()
}

/// What a failure to read a snapshot says.
pub fn snapshot(from: SnapshotError) -> Error {
    match from {
        SnapshotError::Damaged(what) => error(Code::SnapshotDamaged, what),
        SnapshotError::Foreign(what) => error(Code::SnapshotForeign, what),
        SnapshotError::Version(version) => error(
            Code::SnapshotVersion,
            format!(
                "the snapshot has format {version}, and this version reads {FORMAT}: it is ignored, and the queue loads from the table"
            ),
        ),
    }
}
