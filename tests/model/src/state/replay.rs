//! What the command `replay` remembers.

use super::*;

/// `bookkeeper replay`, run by a person.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Replay {
    None,
    /// --force: its hole must be opened by a commit first
    Opens {
        slot: usize,
        head: SnapshotId,
        marks: Marks,
    },
    /// the commit of the hole is sent
    Sent {
        slot: usize,
    },
    /// the table may take it: it is copied next
    Checked {
        slot: usize,
    },
}
