//! What exists: the catalog, the folder, the disk, and what each program remembers.
//!
//! A txlog is a *slot*: incarnation * SEQUENCES + sequence - 1. Sets of slots are bits of a byte. The data file of a slot
//! has the slot's number; the file of the rewrite is REWRITTEN.

mod channels;
mod keyed;
mod replay;

pub use channels::*;
pub use keyed::*;
pub use replay::*;

/// Writer A has positions and the first half of the incarnations, writer B has none.
#[cfg(not(feature = "long"))]
mod bounds {
    pub const INCARNATIONS: usize = 4;
    pub const SEQUENCES: usize = 2;
    /// The source that writer A copies has so many rows; a txlog of A holds one.
    pub const SOURCE_ROWS: u8 = 2;
    pub type Slots = u8;
    pub type Files = u16;
    pub type Snapshots = u16;
    /// Incarnations, as bits.
    pub type Incarnations = u8;
}

/// For recorded runs (trace.rs): too large for a search of all interleavings, and only one is followed.
#[cfg(feature = "long")]
mod bounds {
    pub const INCARNATIONS: usize = 24;
    pub const SEQUENCES: usize = 5;
    pub const SOURCE_ROWS: u8 = 120;
    pub type Slots = u128;
    pub type Files = u128;
    pub type Snapshots = u128;
    pub type Incarnations = u32;
}

pub use bounds::*;

pub const SLOTS: usize = INCARNATIONS * SEQUENCES;
/// The data files of txlogs.
pub const OF_TXLOGS: Files = (1 << SLOTS) - 1;
pub const REWRITTEN: usize = SLOTS;
pub const BOOKKEEPERS: usize = 2;
/// Senders of requests beside the bookkeepers: one that is gone, and the command `replay`.
pub const GONE: u8 = BOOKKEEPERS as u8;
pub const REPLAY: u8 = GONE + 1;

pub type SnapshotId = u8;
pub const NONE: SnapshotId = u8::MAX;
/// The base of what was planned before `main` was rolled back to its base: its sequence number was given away since.
pub const PASSED: SnapshotId = NONE - 1;

pub fn bit(slot: usize) -> Slots {
    1 << slot
}

pub fn incarnation(slot: usize) -> usize {
    slot / SEQUENCES
}

pub fn sequence(slot: usize) -> u8 {
    (slot % SEQUENCES) as u8 + 1
}

pub fn has_positions(incarnation: usize) -> bool {
    incarnation < INCARNATIONS / 2
}

/// All slots of an incarnation.
pub fn of_incarnation(incarnation: usize) -> Slots {
    ((1 << SEQUENCES) - 1) << (incarnation * SEQUENCES)
}

pub fn members(slots: Slots) -> impl Iterator<Item = usize> {
    (0..SLOTS).filter(move |&slot| slots & bit(slot) != 0)
}

/// The marks, as the table property and as marks.json.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marks {
    /// last sequence that is in; 0: no mark
    pub last: [u8; INCARNATIONS],
    /// sequences at or below `last` that are not in
    pub holes: Slots,
    /// committed position of writer A
    pub position: u8,
    /// committed offsets of writer A, where it reads channels
    pub offsets: Offsets,
    /// the snapshot that these marks came with
    pub snapshot: SnapshotId,
    /// incarnations that were last seen on day 1, as bits
    pub seen: Incarnations,
    /// day 1 is the bound of pruning: what is older, of an unknown incarnation, may be in
    pub pruned: bool,
    /// incarnations whose mark was made anew after it was pruned, as bits: what is of day 0 and not in may be in
    pub remade: Incarnations,
    /// of those, the holes that a forced replay opened
    pub forced: Slots,
}

impl Marks {
    pub fn is_known(&self, incarnation: usize) -> bool {
        self.last[incarnation] != 0
    }

    pub fn is_in(&self, slot: usize) -> bool {
        sequence(slot) <= self.last[incarnation(slot)] && self.holes & bit(slot) == 0
    }
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Snapshot {
    pub parent: SnapshotId,
    /// live data files
    pub live: Files,
    /// slots whose rows `append` snapshots of this line of history hold: what a stream saw
    pub appended: Slots,
    /// a stream along this line saw a slot twice
    pub twice: bool,
    pub expired: bool,
}

/// A compare-and-swap that was sent; it may be applied at any later time.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    pub from: u8,
    pub base: SnapshotId,
    pub adds: Slots,
    pub removes: Files,
    pub rewrites: bool,
    pub fold: Fold,
    /// of a keyed table, with its rule left out: the equality deletes are in, and the data files come next
    pub half: bool,
    pub marks: Marks,
    /// the reply: the new snapshot, NONE when it was refused; without one it is under way
    pub reply: Option<SnapshotId>,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Writer {
    New,
    /// listed pending/, when so much was published: marks.json is read next
    Listed {
        found: Slots,
        published: Slots,
    },
    /// the source position it began at, the sequence it publishes next, and whether the data file of that is durable
    Running {
        from: u8,
        next: u8,
        written: bool,
    },
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Idle,
    Listed,
    /// loaded after the listing; marks.json not compared yet
    Loaded,
    /// marks.json is as new as the view: what is in may go, then the plan
    Copied,
    Planned,
    /// the compare-and-swap is sent
    Sent,
    /// it is in; marks.json comes next
    Committed,
    /// marks.json is written: reject, then delete
    Settling,
}

/// What a bookkeeper remembers of its tick. A crash forgets all of it.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bookkeeper {
    pub phase: Phase,
    pub twice: bool,
    pub found: Slots,
    pub first_found: Slots,
    pub head: SnapshotId,
    pub marks: Marks,
    pub batch: Slots,
    pub rejects: Slots,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum ReaperPhase {
    Idle,
    Journaled,
    Verified,
    Done,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Reaper {
    pub phase: ReaperPhase,
    pub guard: SnapshotId,
    /// snapshots to expire, as bits
    pub snapshots: Snapshots,
    pub files: Files,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Rewrite {
    None,
    /// read at this head; the new file is durable
    Read {
        replaced: Files,
    },
    Pending {
        replaced: Files,
    },
    Done,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub struct State {
    pub snapshots: Vec<Snapshot>,
    pub head: SnapshotId,
    pub marks: Marks,
    /// marks.json, with the sequence number of the table it was written for
    pub copy: (u8, Marks),
    pub pending: Slots,
    pub rejected: Slots,
    /// ever published
    pub published: Slots,
    /// rows that a rollback took away: the user's wish
    pub rolled_back: Slots,
    pub disk: Files,
    pub writers: [Writer; INCARNATIONS],
    pub bookkeepers: [Bookkeeper; BOOKKEEPERS],
    pub network: Vec<Request>,
    pub reaper: Reaper,
    pub rewrite: Rewrite,
    /// slots whose rows the file of the rewrite holds
    pub rewritten: Files,
    /// pending txlogs that cannot be taken now, such as one of an unknown schema
    pub bad: Slots,
    /// ever bad
    pub spoiled: Slots,
    pub replay: Replay,
    /// whether marks that were idle on day 0 may be pruned
    pub day: Incarnations,
    /// txlogs that were created on day 1
    pub fresh: Slots,
    /// incarnations that began on day 1, as bits
    pub young: Incarnations,
    pub keyed: Keyed,
    pub channels: Channels,
    pub folds: [Fold; BOOKKEEPERS],
    /// of Iceberg Java, or of ours: on a keyed table, what it read
    pub compaction: Compaction,
    /// published a day after it was created, or, of a keyed table, behind a txlog of a later run of its writer
    pub late: Slots,
    /// a run of writer A began at a row that a txlog held already
    pub repeated: bool,
    pub spent: Spent,
}

/// What bounds the state space: each of these happened so often.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq, Eq)]
pub struct Spent {
    pub published: u8,
    pub missed: u8,
    pub reappeared: u8,
    pub foreign: u8,
    pub rolled_back: u8,
    pub retained: u8,
    pub replayed: u8,
    pub crashes: u8,
    /// senders that gave up waiting for a reply
    pub waited: u8,
    /// requests that a proxy sent once more
    pub doubled: u8,
    pub spoiled: u8,
    pub days: u8,
    pub folded: u8,
    pub delayed: u8,
}

pub const NO_MARKS: Marks = Marks {
    last: [0; INCARNATIONS],
    holes: 0,
    position: 0,
    offsets: [0; CHANNELS],
    snapshot: NONE,
    seen: 0,
    pruned: false,
    remade: 0,
    forced: 0,
};
pub const NO_REQUEST: Request = Request {
    from: GONE,
    base: NONE,
    adds: 0,
    removes: 0,
    rewrites: false,
    fold: NO_FOLD,
    half: false,
    marks: NO_MARKS,
    reply: None,
};
pub const IDLE: Bookkeeper = Bookkeeper {
    phase: Phase::Idle,
    twice: false,
    found: 0,
    first_found: 0,
    head: NONE,
    marks: NO_MARKS,
    batch: 0,
    rejects: 0,
};
pub const REAPER_IDLE: Reaper = Reaper { phase: ReaperPhase::Idle, guard: NONE, snapshots: 0, files: 0 };

pub fn file(slot: usize) -> Files {
    1 << slot
}

impl State {
    pub fn writer_from(&self, incarnation: usize) -> u8 {
        match self.writers[incarnation] {
            Writer::Running { from, .. } => from,
            _ => 0,
        }
    }

    /// The source row, and previous position, of a txlog of writer A.
    pub fn source_row(&self, slot: usize) -> u8 {
        self.writer_from(incarnation(slot)) + sequence(slot) - 1
    }

    pub fn is_ancestor(&self, id: SnapshotId, of: SnapshotId) -> bool {
        let mut at = of;
        while at != NONE {
            if at == id {
                return true;
            }
            at = self.snapshots[at as usize].parent;
        }
        id == NONE
    }

    pub fn halted(&self) -> bool {
        !self.is_ancestor(self.marks.snapshot, self.head)
    }

    pub fn live(&self, id: SnapshotId) -> Files {
        if id == NONE {
            0
        } else {
            self.snapshots[id as usize].live
        }
    }

    pub fn appended(&self, id: SnapshotId) -> Slots {
        if id == NONE {
            0
        } else {
            self.snapshots[id as usize].appended
        }
    }

    /// The slots whose rows a batch reader finds at the head, and whether it finds one twice.
    pub fn readable(&self) -> (Slots, bool) {
        let live = self.live(self.head);
        let direct = (live & OF_TXLOGS) as Slots;
        let merged = if live & file(REWRITTEN) != 0 { self.rewritten as Slots } else { 0 };
        (direct | merged, direct & merged != 0)
    }

    pub fn add_snapshot(&mut self, live: Files, adds: Slots) {
        let appended = self.appended(self.head);
        let before = self.head != NONE && self.snapshots[self.head as usize].twice;
        self.snapshots.push(Snapshot {
            parent: self.head,
            live,
            appended: appended | adds,
            twice: before || appended & adds != 0,
            expired: false,
        });
        self.head = (self.snapshots.len() - 1) as SnapshotId;
    }

    /// Whether a request's sender waits for its reply.
    pub fn is_awaited(&self, request: &Request) -> bool {
        match request.from {
            GONE => false,
            REPLAY => true,
            b => self.bookkeepers[b as usize].phase == Phase::Sent,
        }
    }

    /// The files that kept snapshots of `main` took out.
    pub fn removed(&self) -> Files {
        let (mut removed, mut at) = (0, self.head);
        while at != NONE && !self.snapshots[at as usize].expired {
            let parent = self.snapshots[at as usize].parent;
            removed |= self.live(parent) & !self.live(at);
            at = parent;
        }
        removed
    }

    /// Nothing waits for the replies to this bookkeeper's requests any more.
    pub fn disown(&mut self, b: usize) {
        for request in self.network.iter_mut().filter(|request| request.from == b as u8) {
            request.from = GONE;
        }
        self.network.retain(|request| !(request.from == GONE && request.reply.is_some()));
        self.network.sort();
    }

    pub fn idle(&mut self, b: usize) {
        self.bookkeepers[b] = IDLE;
    }
}
