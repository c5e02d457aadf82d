//! What exists of a keyed table, beside what every table has.

use super::*;

/// What the head of a keyed table has beside data files.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Keyed {
    /// last-sequence-number
    pub last: u8,
    /// of each txlog that is in: the data sequence number of its step
    pub numbers: [u8; SLOTS],
    /// live equality delete files, by their txlog
    pub deletes: Slots,
    /// rows in files of txlogs that position deletes hide
    pub hidden: Slots,
    pub rewritten_number: u8,
    /// rows in the rewritten file that position deletes hide
    pub hidden_rewritten: Slots,
}

/// A fold that was computed, and is not in yet.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fold {
    /// equality deletes that go; 0: there is no fold
    pub folded: Slots,
    pub examined: Files,
    pub hides: Slots,
    pub hides_rewritten: Slots,
}

/// What a compaction of a keyed table read.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Compaction {
    pub replaced: Files,
    pub rows: Slots,
    pub number: u8,
    /// rows that position deletes hid
    pub hidden: Slots,
}

pub const NO_FOLD: Fold = Fold { folded: 0, examined: 0, hides: 0, hides_rewritten: 0 };
pub const NO_COMPACTION: Compaction = Compaction { replaced: 0, rows: 0, number: 0, hidden: 0 };
pub const NOT_KEYED: Keyed =
    Keyed { last: 0, numbers: [0; SLOTS], deletes: 0, hidden: 0, rewritten_number: 0, hidden_rewritten: 0 };
