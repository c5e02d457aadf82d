//! What each program does, one atomic step against storage or catalog at a time (docs/maintain/design.md).
//!
//! Every step may be the last one of its process: `Crash` forgets what a bookkeeper or the reaper remembers, a writer
//! that makes no further step is dead, and one that makes it late was paused.

mod bookkeeper;
mod catalog;
mod channels;
mod checks;
mod fold;
mod keyed;
mod others;
mod plan;
mod prune;
mod reaper;
mod reduced;
mod replay;
mod writer;

use crate::state::*;
use stateright::{Model, Property};

/// One rule of the protocol, left out on purpose: the checker must find what it is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// the commit is guarded by `main`
    Guard,
    /// marks change in the commit that adds the files
    MarksInCommit,
    /// an incarnation's share is a prefix of what it published
    Prefix,
    /// gaps are looked for by name, after a second listing
    LookByName,
    /// txlogs are listed before the table is loaded
    ListFirst,
    /// consumed txlogs go only after marks.json
    CopyFirst,
    /// a txlog is durable in rejected/ before it leaves pending/
    RejectFirst,
    /// previous-position is the committed position
    Positions,
    /// a starting writer lists pending/ first and reads marks.json second
    WriterListsFirst,
    /// the table is halted when the snapshot of its marks is no ancestor of `main`
    Halt,
    /// the expiry is guarded by `main`
    ExpireGuard,
    /// the plan of an expiry is checked against a new load before anything is deleted
    Verify,
    /// a data file is durable before the txlog that names it
    FileFirst,
    /// a rewrite is committed only while all files that it replaces are live
    ReplacedLive,
    /// marks.json is never replaced by an older one
    CopyNewer,
    /// a reply is believed only by the attempt that it answers
    OwnReply,
    /// a replayed txlog stays in rejected/ until it is in
    ReplayKeepsRejected,
    /// a forced replay asks whether the files are in the table, or were
    ReplayAsks,
    /// a txlog from before the pruning, of an unknown incarnation, is rejected
    PrunedRejected,
    /// only marks of incarnations that were idle long are pruned
    PruneIdle,
    /// no mark is pruned that a name in the folder needs
    PruneNamed,
    /// the bound of pruning never passes the start of a run whose first txlog waits
    PruneWaiting,
    /// of a run that goes on after its mark was pruned, what is not in rejected/ counts as in
    GoesOn,
    /// of a mark that was made anew, only holes that a forced replay opened take txlogs from before the pruning
    RemadeRefused,
    /// each step of a commit of a keyed table has a number of its own
    StepNumbers,
    /// beside deletes, a txlog without them has a number of its own and inherits none
    ExplicitNumbers,
    /// a shadow row's number lies below that of its own delete
    ShadowBelow,
    /// equality deletes and data files come in one commit
    OneCommit,
    /// a txlog is rejected once a later one of its writer is in
    OlderRefused,
    /// a txlog waits while an earlier one of its writer is pending
    WaitsForEarlier,
    /// a run's first txlog waits for a second listing
    ListedTwice,
    /// a txlog is held while an earlier one of its writer lies in rejected/
    HoldsBehindRejected,
    /// of each writer of a keyed table the newest mark stays
    PruneKeepsNewest,
    /// a fold is refused where a file that it applies to was not examined
    FoldExamined,
    /// the snapshot of a fold is a `delete`, so that Java's compactions look at it
    FoldIsDelete,
    /// a compaction keeps the data sequence number of what it read
    RewriteNumber,
    /// a rewrite is committed only if all deletes of what it replaces were applied
    DeletesApplied,
    /// the position of a txlog of channels is of no other txlog
    PositionsNeverRecur,
    /// offsets are merged: a channel that a txlog does not name stays where it was
    OffsetsMerged,
    /// a run begins with the offsets of the pending txlogs of its chain, too
    OffsetsOfPending,
    /// a rejected txlog moves no offset
    RejectedMovesNothing,
}

pub const RULES: [Rule; 41] = [
    Rule::Guard,
    Rule::MarksInCommit,
    Rule::Prefix,
    Rule::LookByName,
    Rule::ListFirst,
    Rule::CopyFirst,
    Rule::RejectFirst,
    Rule::Positions,
    Rule::WriterListsFirst,
    Rule::Halt,
    Rule::ExpireGuard,
    Rule::Verify,
    Rule::FileFirst,
    Rule::ReplacedLive,
    Rule::CopyNewer,
    Rule::OwnReply,
    Rule::ReplayKeepsRejected,
    Rule::ReplayAsks,
    Rule::PrunedRejected,
    Rule::PruneIdle,
    Rule::PruneNamed,
    Rule::PruneWaiting,
    Rule::GoesOn,
    Rule::RemadeRefused,
    Rule::StepNumbers,
    Rule::ExplicitNumbers,
    Rule::ShadowBelow,
    Rule::OneCommit,
    Rule::OlderRefused,
    Rule::WaitsForEarlier,
    Rule::ListedTwice,
    Rule::HoldsBehindRejected,
    Rule::PruneKeepsNewest,
    Rule::FoldExamined,
    Rule::FoldIsDelete,
    Rule::RewriteNumber,
    Rule::DeletesApplied,
    Rule::PositionsNeverRecur,
    Rule::OffsetsMerged,
    Rule::OffsetsOfPending,
    Rule::RejectedMovesNothing,
];

/// The bounds of one scenario: how often each thing may happen.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub name: &'static str,
    pub incarnations: &'static [usize],
    pub bookkeepers: usize,
    pub snapshots: usize,
    pub network: usize,
    pub most: Spent,
    pub reaper: bool,
    pub rewrite: bool,
    /// a table with upserts and deletes by key
    pub keyed: bool,
    /// writer A reads channels, with offsets
    pub channels: bool,
    /// in fewer states (reduced.rs)
    pub reduced: bool,
    pub broken: Option<Rule>,
    /// the order of txlogs by age, where it is known: of those that fit one position, the oldest is taken
    pub oldest_first: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    WriterLists(usize),
    WriterStarts(usize),
    WritesFile(usize),
    Publishes(usize),
    /// a row of this channel
    PublishesChannel(usize, usize),
    /// a txlog of day 0 is published on day 1
    PublishesLate(usize),
    /// a put that was applied before is applied once more
    Reappears(usize),
    /// a person loads the table, and checks that it may take a rejected txlog
    ReplayChecks(usize),
    /// with --force: sends a commit that opens a hole for it
    ReplaySends,
    ReplayHears,
    /// copies it back to pending/
    Replays(usize),
    /// a txlog cannot be taken, until the person who replays it has mended the cause
    Spoils(usize),
    /// marks.keep passes: marks of day 0 are idle
    DayPasses,
    /// beside the ticks: what is dead by equality deletes is written as position deletes
    FoldPlans(usize),
    FoldSends(usize),
    /// a compaction by Iceberg Java begins, on a keyed table; ForeignRewrites ends it
    ForeignReads,
    Lists(usize),
    /// a listing that misses a name
    ListsWithout(usize, usize),
    Loads(usize),
    Copies(usize),
    DeletesCommitted(usize, usize),
    Plans(usize),
    Sends(usize),
    /// the catalog applies or refuses a request, whether or not its sender still waits
    Applies(usize),
    Hears(usize),
    /// the reply is lost, or comes too late: the table is loaded again, for the same listing
    GivesUp(usize),
    /// a proxy sends a request once more
    Doubles(usize),
    /// the process is killed
    Crashes(usize),
    CopiesAfterCommit(usize),
    Rejects(usize, usize),
    Unpends(usize, usize),
    Deletes(usize, usize),
    Ends(usize),
    Retains(usize),
    ReadsForRewrite,
    PublishesRewrite,
    SendsRewrite(usize),
    ForeignAppends,
    ForeignRewrites,
    RollsBack,
    ReaperPlans,
    ReaperExpires,
    ReaperVerifies,
    ReaperDeletes(usize),
    ReaperCrashes,
}

impl Protocol {
    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let first = State {
            snapshots: vec![],
            head: NONE,
            marks: NO_MARKS,
            copy: (0, NO_MARKS),
            pending: 0,
            rejected: 0,
            published: 0,
            rolled_back: 0,
            disk: 0,
            writers: [Writer::New; INCARNATIONS],
            bookkeepers: [IDLE; BOOKKEEPERS],
            network: vec![],
            reaper: REAPER_IDLE,
            rewrite: Rewrite::None,
            rewritten: 0,
            bad: 0,
            spoiled: 0,
            replay: Replay::None,
            day: 0,
            fresh: 0,
            young: 0,
            keyed: NOT_KEYED,
            channels: NO_CHANNELS,
            folds: [NO_FOLD; BOOKKEEPERS],
            compaction: NO_COMPACTION,
            late: 0,
            repeated: false,
            spent: Spent::default(),
        };
        vec![if self.reduced { self.settled(first) } else { first }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.writer_actions(state, actions);
        for b in 0..self.bookkeepers {
            self.bookkeeper_actions(state, b, actions);
        }
        self.catalog_actions(state, actions);
        self.other_actions(state, actions);
        self.reaper_actions(state, actions);
        self.replay_actions(state, actions);
        self.fold_actions(state, actions);
        if self.reduced {
            self.reduce_actions(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.writer_step(&mut state, action);
        self.bookkeeper_step(&mut state, action);
        self.catalog_step(&mut state, action);
        self.other_step(&mut state, action);
        self.reaper_step(&mut state, action);
        self.replay_step(&mut state, action);
        self.fold_step(&mut state, action);
        if self.reduced {
            state = self.reduced_step(last, state, action);
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        checks::properties()
    }
}
