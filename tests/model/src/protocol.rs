//! What each program does, one atomic step against storage or catalog at a time (docs/why.md).
//!
//! Every step may be the last one of its process: `Crash` forgets what a bookkeeper or the reaper remembers, a writer
//! that makes no further step is dead, and one that makes it late was paused.

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
}

pub const RULES: [Rule; 15] = [
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
    pub broken: Option<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    WriterLists(usize),
    WriterStarts(usize),
    WritesFile(usize),
    Publishes(usize),
    /// a put that was applied before is applied once more
    Reappears(usize),
    Replays(usize),
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
    /// the reply is lost, or the process is killed
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

fn file(slot: usize) -> Files {
    1 << slot
}

impl State {
    fn writer_from(&self, incarnation: usize) -> u8 {
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
        if id == NONE { 0 } else { self.snapshots[id as usize].live }
    }

    pub fn appended(&self, id: SnapshotId) -> Slots {
        if id == NONE { 0 } else { self.snapshots[id as usize].appended }
    }

    /// The slots whose rows a batch reader finds at the head, and whether it finds one twice.
    pub fn readable(&self) -> (Slots, bool) {
        let live = self.live(self.head);
        let direct = (live & OF_TXLOGS) as Slots;
        let merged = if live & file(REWRITTEN) != 0 { self.rewritten as Slots } else { 0 };
        (direct | merged, direct & merged != 0)
    }

    fn add_snapshot(&mut self, live: Files, adds: Slots) {
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

    fn idle(&mut self, b: usize) {
        self.bookkeepers[b] = IDLE;
    }
}

const NO_MARKS: Marks =
    Marks { last: [0; INCARNATIONS], holes: 0, position: 0, snapshot: NONE };
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
const REAPER_IDLE: Reaper = Reaper { phase: ReaperPhase::Idle, guard: NONE, snapshots: 0, files: 0 };

/// What one plan decides.
struct Plan {
    batch: Slots,
    rejects: Slots,
    marks: Marks,
    doubtful: bool,
}

impl Protocol {
    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    fn writer_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for &i in self.incarnations {
            match state.writers[i] {
                Writer::New => actions.push(Action::WriterLists(i)),
                Writer::Listed { .. } => actions.push(Action::WriterStarts(i)),
                Writer::Running { from, next, written } => {
                    let more = next as usize <= SEQUENCES
                        && !(has_positions(i) && from + next - 1 >= SOURCE_ROWS)
                        && state.spent.published < self.most.published;
                    if more && (written || !self.keeps(Rule::FileFirst)) {
                        actions.push(Action::Publishes(i));
                    }
                    if more && !written {
                        actions.push(Action::WritesFile(i));
                    }
                }
            }
        }
        for slot in members(state.published & !state.pending) {
            if state.spent.reappeared < self.most.reappeared {
                actions.push(Action::Reappears(slot));
            }
            if state.spent.replayed < self.most.replayed
                && state.rejected & bit(slot) != 0
                && state.marks.is_hole(slot)
                && !state.halted()
            {
                actions.push(Action::Replays(slot));
            }
        }
    }

    fn listings(&self, state: &State, b: usize, actions: &mut Vec<Action>) {
        actions.push(Action::Lists(b));
        if state.spent.missed < self.most.missed {
            actions.extend(members(state.pending).map(|slot| Action::ListsWithout(b, slot)));
        }
    }

    fn bookkeeper_actions(&self, state: &State, b: usize, actions: &mut Vec<Action>) {
        let keeper = &state.bookkeepers[b];
        let room = state.snapshots.len() < self.snapshots && state.network.len() < self.network;
        match keeper.phase {
            Phase::Idle => {
                // Nothing to do, nothing changes: such a tick is left out.
                if state.pending != 0 && self.keeps(Rule::ListFirst) {
                    self.listings(state, b, actions);
                } else if state.pending != 0 {
                    actions.push(Action::Loads(b));
                }
                if room && !state.halted() && state.spent.retained < self.most.retained && state.live(state.head) != 0 {
                    actions.push(Action::Retains(b));
                }
                if room && matches!(state.rewrite, Rewrite::Pending { .. }) && !state.halted() {
                    actions.push(Action::SendsRewrite(b));
                }
            }
            Phase::Listed if self.keeps(Rule::ListFirst) => actions.push(Action::Loads(b)),
            Phase::Listed => self.listings(state, b, actions),
            Phase::Loaded => actions.push(Action::Copies(b)),
            Phase::Copied => {
                for slot in members(keeper.found & state.pending) {
                    if keeper.marks.is_in(slot) {
                        actions.push(Action::DeletesCommitted(b, slot));
                    }
                }
                actions.push(Action::Plans(b));
            }
            Phase::Planned => {
                if room || keeper.batch == 0 {
                    actions.push(Action::Sends(b));
                }
            }
            Phase::Sent => actions.push(Action::Hears(b)),
            Phase::Committed => {
                actions.push(Action::CopiesAfterCommit(b));
                if !self.keeps(Rule::CopyFirst) {
                    for slot in members(keeper.batch & state.pending) {
                        actions.push(Action::Deletes(b, slot));
                    }
                }
            }
            Phase::Settling => {
                let left = keeper.rejects & state.pending;
                for slot in members(left) {
                    if state.rejected & bit(slot) == 0 {
                        actions.push(Action::Rejects(b, slot));
                    }
                    if state.rejected & bit(slot) != 0 || !self.keeps(Rule::RejectFirst) {
                        actions.push(Action::Unpends(b, slot));
                    }
                }
                if left == 0 {
                    for slot in members(keeper.batch & state.pending) {
                        actions.push(Action::Deletes(b, slot));
                    }
                }
                actions.push(Action::Ends(b));
            }
        }
        if keeper.phase != Phase::Idle && state.spent.crashes < self.most.crashes {
            actions.push(Action::Crashes(b));
        }
    }

    fn other_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, request) in state.network.iter().enumerate() {
            if request.reply.is_none() {
                actions.push(Action::Applies(index));
            }
        }
        let room = state.snapshots.len() < self.snapshots;
        if room && state.spent.foreign < self.most.foreign {
            actions.push(Action::ForeignAppends);
            if (state.live(state.head) & OF_TXLOGS).count_ones() >= 2 && state.live(state.head) & file(REWRITTEN) == 0 {
                actions.push(Action::ForeignRewrites);
            }
        }
        if state.spent.rolled_back < self.most.rolled_back && state.head != NONE {
            let parent = state.snapshots[state.head as usize].parent;
            if parent != NONE && !state.snapshots[parent as usize].expired {
                actions.push(Action::RollsBack);
            }
        }
        if self.rewrite {
            match state.rewrite {
                Rewrite::None if (state.live(state.head) & OF_TXLOGS).count_ones() >= 2 => {
                    actions.push(Action::ReadsForRewrite)
                }
                Rewrite::Read { .. } => actions.push(Action::PublishesRewrite),
                _ => {}
            }
        }
        if self.reaper {
            match state.reaper.phase {
                ReaperPhase::Idle => {
                    if !state.halted() && self.expirable(state) != 0 {
                        actions.push(Action::ReaperPlans);
                    }
                }
                ReaperPhase::Journaled => {
                    actions.push(Action::ReaperExpires);
                    actions.push(Action::ReaperVerifies);
                }
                ReaperPhase::Verified => {
                    for number in 0..=REWRITTEN {
                        if state.reaper.files & state.disk & file(number) != 0 {
                            actions.push(Action::ReaperDeletes(number));
                        }
                    }
                    if state.spent.crashes < self.most.crashes {
                        actions.push(Action::ReaperCrashes);
                    }
                }
                ReaperPhase::Done => {}
            }
        }
    }

    /// The snapshots that may expire: ancestors of the head, but for the head and the snapshot of the marks.
    fn expirable(&self, state: &State) -> Snapshots {
        let mut found = 0;
        for (id, snapshot) in state.snapshots.iter().enumerate() {
            let id = id as SnapshotId;
            let kept = id == state.head || id == state.marks.snapshot;
            if !snapshot.expired && !kept && state.is_ancestor(id, state.head) {
                found |= 1 << id;
            }
        }
        found
    }

    /// Steps 5 to 8 of a tick: pure, but for the look-up of gaps by name.
    fn plan(&self, state: &State, keeper: &Bookkeeper) -> Plan {
        let mut marks = keeper.marks;
        let mut plan = Plan { batch: 0, rejects: 0, marks, doubtful: false };
        // A txlog that is gone when it is read blocks its incarnation, and so does one that was not looked for.
        let readable = keeper.found & state.pending;
        let mut stopped = [false; INCARNATIONS];
        let unfit = loop {
            let before = plan.batch;
            let mut unfit: Slots = 0;
            for slot in members(keeper.found) {
                let i = incarnation(slot);
                if marks.is_in(slot) || stopped[i] || plan.batch & bit(slot) != 0 {
                    continue;
                }
                if readable & bit(slot) == 0 {
                    stopped[i] = self.keeps(Rule::Prefix);
                    continue;
                }
                let (passed, blocked) = self.gap(state, &marks, slot);
                if blocked && self.keeps(Rule::Prefix) {
                    stopped[i] = true;
                    continue;
                }
                if has_positions(i) && self.keeps(Rule::Positions) && state.source_row(slot) != marks.position {
                    unfit |= bit(slot);
                    continue;
                }
                if passed != 0 {
                    plan.doubtful = true;
                }
                plan.batch |= bit(slot);
                marks.holes = (marks.holes | passed) & !bit(slot);
                marks.last[i] = marks.last[i].max(sequence(slot));
                if has_positions(i) {
                    marks.position = state.source_row(slot) + 1;
                }
            }
            if plan.batch == before {
                break unfit;
            }
        };
        // While something of the writer may still come, its position may still move.
        if !stopped[..INCARNATIONS / 2].contains(&true) && unfit != 0 {
            plan.rejects = unfit;
            plan.doubtful = true;
        }
        plan.marks = marks;
        plan
    }

    /// The sequences that a txlog passes over as holes, and whether one of them may still get in.
    fn gap(&self, state: &State, marks: &Marks, slot: usize) -> (Slots, bool) {
        let mut passed = 0;
        for earlier in marks.last[incarnation(slot)] + 1..sequence(slot) {
            let other = incarnation(slot) * SEQUENCES + earlier as usize - 1;
            let there = state.pending & bit(other) != 0 && self.keeps(Rule::LookByName);
            if there {
                return (0, true);
            }
            passed |= bit(other);
        }
        (passed, false)
    }

    fn apply(&self, state: &mut State, index: usize) {
        let request = state.network[index];
        let fits = request.base == state.head || !self.keeps(Rule::Guard);
        if fits && state.snapshots.len() < self.snapshots + 2 {
            let mut live = state.live(state.head);
            live = (live | request.adds as Files) & !request.removes;
            if request.rewrites {
                live |= file(REWRITTEN);
            }
            state.add_snapshot(live, request.adds);
            let mut marks = request.marks;
            marks.snapshot = state.head;
            if self.keeps(Rule::MarksInCommit) {
                state.marks = marks;
            } else {
                state.marks.snapshot = state.head;
            }
        }
        state.network[index].reply = Some(if fits { state.head } else { NONE });
    }

    fn write_copy(&self, state: &mut State, marks: Marks) {
        let number = if marks.snapshot == NONE { 0 } else { marks.snapshot + 1 };
        if number > state.copy.0 || !self.keeps(Rule::CopyNewer) {
            state.copy = (number, marks);
        }
    }

    fn send(&self, state: &mut State, b: usize, request: Request) {
        state.network.push(request);
        state.network.sort();
        state.bookkeepers[b].phase = Phase::Sent;
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
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
            repeated: false,
            spent: Spent::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.writer_actions(state, actions);
        for b in 0..self.bookkeepers {
            self.bookkeeper_actions(state, b, actions);
        }
        self.other_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::WriterLists(i) => {
                let published = state.published;
                // The other way round: the position first, the names when it starts.
                let first = if self.keeps(Rule::WriterListsFirst) { state.pending } else { state.copy.1.position as Slots };
                state.writers[i] = Writer::Listed { found: first, published };
            }
            Action::WriterStarts(i) => {
                let Writer::Listed { found, published } = state.writers[i] else { return None };
                let (mut at, pending) = if self.keeps(Rule::WriterListsFirst) {
                    (state.copy.1.position, found)
                } else {
                    (found as u8, state.pending)
                };
                let copy = state.copy.1;
                let left: Vec<usize> = members(pending)
                    .filter(|&slot| has_positions(incarnation(slot)) && !copy.is_in(slot))
                    .collect();
                while left.iter().any(|&slot| state.source_row(slot) == at) {
                    at += 1;
                }
                if has_positions(i) {
                    state.repeated |= members(published & !state.rejected & !state.rolled_back)
                        .any(|slot| has_positions(incarnation(slot)) && state.source_row(slot) >= at);
                }
                let from = if has_positions(i) { at } else { 0 };
                state.writers[i] = Writer::Running { from, next: 1, written: false };
            }
            Action::WritesFile(i) => {
                let Writer::Running { from, next, .. } = state.writers[i] else { return None };
                state.disk |= file(i * SEQUENCES + next as usize - 1);
                state.writers[i] = Writer::Running { from, next, written: true };
            }
            Action::Publishes(i) => {
                let Writer::Running { from, next, .. } = state.writers[i] else { return None };
                let slot = i * SEQUENCES + next as usize - 1;
                state.pending |= bit(slot);
                state.published |= bit(slot);
                state.spent.published += 1;
                state.writers[i] = Writer::Running { from, next: next + 1, written: false };
            }
            Action::Reappears(slot) => {
                state.pending |= bit(slot);
                state.spent.reappeared += 1;
            }
            Action::Replays(slot) => {
                state.pending |= bit(slot);
                state.spent.replayed += 1;
            }
            Action::Lists(b) | Action::ListsWithout(b, _) => {
                let mut found = state.pending;
                if let Action::ListsWithout(_, slot) = action {
                    found &= !bit(slot);
                    state.spent.missed += 1;
                }
                let keeper = &mut state.bookkeepers[b];
                keeper.phase = if self.keeps(Rule::ListFirst) { Phase::Listed } else { Phase::Loaded };
                keeper.found = found;
                keeper.first_found = found;
            }
            Action::Loads(b) => {
                if self.keeps(Rule::Halt) && state.halted() {
                    state.idle(b);
                    return (state != *last).then_some(state);
                }
                let (head, marks) = (state.head, state.marks);
                let keeper = &mut state.bookkeepers[b];
                keeper.head = head;
                keeper.marks = marks;
                keeper.phase = if self.keeps(Rule::ListFirst) { Phase::Loaded } else { Phase::Listed };
            }
            Action::Copies(b) => {
                let marks = state.bookkeepers[b].marks;
                self.write_copy(&mut state, marks);
                state.bookkeepers[b].phase = Phase::Copied;
            }
            Action::DeletesCommitted(_, slot) => state.pending &= !bit(slot),
            Action::Plans(b) => {
                let keeper = state.bookkeepers[b];
                let plan = self.plan(&state, &keeper);
                if plan.doubtful && !keeper.twice && self.keeps(Rule::LookByName) {
                    // List again first, load second.
                    let pending = state.pending;
                    let keeper = &mut state.bookkeepers[b];
                    keeper.found |= pending;
                    keeper.twice = true;
                    keeper.phase = Phase::Listed;
                    return Some(state);
                }
                let keeper = &mut state.bookkeepers[b];
                keeper.batch = plan.batch;
                keeper.rejects = plan.rejects & keeper.first_found;
                keeper.marks = plan.marks;
                keeper.phase = Phase::Planned;
            }
            Action::Sends(b) => {
                let keeper = state.bookkeepers[b];
                if keeper.batch == 0 {
                    state.bookkeepers[b].phase = Phase::Settling;
                    return Some(state);
                }
                let request = Request {
                    from: b as u8,
                    base: keeper.head,
                    adds: keeper.batch,
                    removes: 0,
                    rewrites: false,
                    marks: keeper.marks,
                    reply: None,
                };
                self.send(&mut state, b, request);
            }
            Action::Applies(index) => {
                self.apply(&mut state, index);
                // A request whose sender is gone is of no further interest.
                let from = state.network[index].from;
                if from as usize >= BOOKKEEPERS || state.bookkeepers[from as usize].phase != Phase::Sent {
                    state.network.remove(index);
                }
                state.network.sort();
            }
            Action::Hears(b) => {
                let at = state.network.iter().position(|r| r.from == b as u8 && r.reply.is_some())?;
                let request = state.network.remove(at);
                let snapshot = request.reply?;
                if snapshot == NONE {
                    state.idle(b);
                    return Some(state);
                }
                if request.rewrites {
                    state.rewrite = Rewrite::Done;
                }
                let keeper = &mut state.bookkeepers[b];
                // What it knows is its own commit; the table may have gone on since.
                keeper.marks = Marks { snapshot, ..request.marks };
                keeper.phase = Phase::Committed;
            }
            Action::Crashes(b) => {
                for request in state.network.iter_mut().filter(|r| r.from == b as u8) {
                    request.from = BOOKKEEPERS as u8;
                }
                state.network.retain(|r| !(r.from == BOOKKEEPERS as u8 && r.reply.is_some()));
                state.network.sort();
                state.spent.crashes += 1;
                state.idle(b);
            }
            Action::CopiesAfterCommit(b) => {
                let marks = state.bookkeepers[b].marks;
                self.write_copy(&mut state, marks);
                state.bookkeepers[b].phase = Phase::Settling;
            }
            Action::Rejects(_, slot) => state.rejected |= bit(slot),
            Action::Unpends(_, slot) => state.pending &= !bit(slot),
            Action::Deletes(_, slot) => {
                state.pending &= !bit(slot);
                state.rejected &= !bit(slot); // a replay that got in
            }
            Action::Ends(b) => state.idle(b),
            Action::Retains(b) => {
                let live = state.live(state.head);
                let oldest = live & live.wrapping_neg();
                let request = Request {
                    from: b as u8,
                    base: state.head,
                    adds: 0,
                    removes: oldest,
                    rewrites: false,
                    marks: state.marks,
                    reply: None,
                };
                state.spent.retained += 1;
                self.send(&mut state, b, request);
                state.bookkeepers[b].marks = state.marks;
            }
            Action::ReadsForRewrite => {
                let replaced = state.live(state.head) & OF_TXLOGS;
                state.rewritten = replaced;
                state.disk |= file(REWRITTEN);
                state.rewrite = Rewrite::Read { replaced };
            }
            Action::PublishesRewrite => {
                let Rewrite::Read { replaced } = state.rewrite else { return None };
                state.rewrite = Rewrite::Pending { replaced };
            }
            Action::SendsRewrite(b) => {
                let Rewrite::Pending { replaced } = state.rewrite else { return None };
                let live = state.live(state.head);
                if live & file(REWRITTEN) != 0 {
                    state.rewrite = Rewrite::Done; // its new file is live: it is in
                    return Some(state);
                }
                if live & replaced != replaced && self.keeps(Rule::ReplacedLive) {
                    state.rewrite = Rewrite::Done; // refused
                    return Some(state);
                }
                let request = Request {
                    from: b as u8,
                    base: state.head,
                    adds: 0,
                    removes: replaced,
                    rewrites: true,
                    marks: state.marks,
                    reply: None,
                };
                self.send(&mut state, b, request);
                state.bookkeepers[b].marks = state.marks;
            }
            Action::ForeignAppends => {
                let live = state.live(state.head);
                state.add_snapshot(live, 0);
                state.spent.foreign += 1;
            }
            Action::ForeignRewrites => {
                // Another program compacts the same files, into one that we give the rewrite's number.
                let live = state.live(state.head);
                state.rewritten = live & OF_TXLOGS;
                state.disk |= file(REWRITTEN);
                state.add_snapshot((live & !OF_TXLOGS) | file(REWRITTEN), 0);
                state.spent.foreign += 1;
                state.rewrite = Rewrite::Done;
            }
            Action::RollsBack => {
                let parent = state.snapshots[state.head as usize].parent;
                let lost = state.appended(state.head) & !state.appended(parent);
                state.rolled_back |= lost;
                state.head = parent;
                state.spent.rolled_back += 1;
            }
            Action::ReaperPlans => {
                let snapshots = self.expirable(&state);
                let mut doomed: Files = 0;
                let mut kept: Files = 0;
                for (id, snapshot) in state.snapshots.iter().enumerate() {
                    if snapshots & (1 << id) != 0 {
                        doomed |= snapshot.live;
                    } else if !snapshot.expired {
                        kept |= snapshot.live;
                    }
                }
                let guard = state.head;
                state.reaper = Reaper { phase: ReaperPhase::Journaled, guard, snapshots, files: doomed & !kept };
            }
            Action::ReaperExpires => {
                if state.reaper.guard != state.head && self.keeps(Rule::ExpireGuard) {
                    state.reaper = Reaper { phase: ReaperPhase::Done, ..REAPER_IDLE };
                    return Some(state);
                }
                for id in 0..state.snapshots.len() {
                    if state.reaper.snapshots & (1 << id) != 0 {
                        state.snapshots[id].expired = true;
                    }
                }
            }
            Action::ReaperVerifies => {
                // All planned snapshots are gone, and no planned file is named by what is there now.
                let gone = (0..state.snapshots.len())
                    .all(|id| state.reaper.snapshots & (1 << id) == 0 || state.snapshots[id].expired);
                let mut named: Files = state.pending as Files;
                for snapshot in state.snapshots.iter().filter(|snapshot| !snapshot.expired) {
                    named |= snapshot.live;
                }
                if self.keeps(Rule::Verify) && (!gone || named & state.reaper.files != 0) {
                    state.reaper = Reaper { phase: ReaperPhase::Done, ..REAPER_IDLE };
                } else {
                    state.reaper.phase = ReaperPhase::Verified;
                }
            }
            Action::ReaperDeletes(number) => {
                state.disk &= !file(number);
                if state.reaper.files & state.disk == 0 {
                    state.reaper = Reaper { phase: ReaperPhase::Done, ..REAPER_IDLE };
                }
            }
            Action::ReaperCrashes => {
                // The journal says where it was.
                state.reaper.phase = ReaperPhase::Journaled;
                state.spent.crashes += 1;
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("no stream sees a row twice", |_, state| {
                state.head == NONE || !state.snapshots[state.head as usize].twice
            }),
            Property::<Self>::always("no reader finds a row twice", |_, state| !state.readable().1),
            Property::<Self>::always("no row of a source is in twice", |_, state| {
                let slots: Vec<usize> =
                    members(state.appended(state.head)).filter(|&slot| has_positions(incarnation(slot))).collect();
                (0..SOURCE_ROWS)
                    .all(|row| slots.iter().filter(|&&slot| state.source_row(slot) == row).count() <= 1)
            }),
            Property::<Self>::always("no published row is lost", |_, state| {
                let kept = state.pending | state.rejected | state.appended(state.head) | state.rolled_back;
                state.published & !kept == 0
            }),
            Property::<Self>::always("no row of a source is passed over", |_, state| {
                // A rejected txlog of a source is one whose row another holds, or which its writer reads again.
                let held = state.appended(state.head) | state.pending | state.rolled_back;
                let rows: Vec<u8> = members(held)
                    .filter(|&slot| has_positions(incarnation(slot)))
                    .map(|slot| state.source_row(slot))
                    .collect();
                (0..state.marks.position).all(|row| rows.contains(&row))
            }),
            Property::<Self>::always("no txlog of a source is rejected before its row is in", |_, state| {
                state.halted()
                    || state.rolled_back != 0
                    || members(state.rejected)
                        .filter(|&slot| has_positions(incarnation(slot)))
                        .all(|slot| state.source_row(slot) < state.marks.position)
            }),
            Property::<Self>::always("a writer goes on behind what was published", |_, state| !state.repeated),
            Property::<Self>::always("no needed file is gone", |_, state| {
                let mut needed: Files = state.pending as Files;
                for snapshot in state.snapshots.iter().filter(|snapshot| !snapshot.expired) {
                    needed |= snapshot.live;
                }
                // Of a txlog that came back after it was committed, the file may be gone: it is recognised by its mark.
                let in_already: Files = members(state.pending)
                    .filter(|&slot| state.marks.is_in(slot))
                    .fold(0, |files, slot| files | file(slot));
                let mut live: Files = 0;
                for snapshot in state.snapshots.iter().filter(|snapshot| !snapshot.expired) {
                    live |= snapshot.live;
                }
                (needed & !(in_already & !live)) & !state.disk == 0
            }),
            Property::<Self>::always("what the marks say is in, is in", |_, state| {
                state.halted()
                    || (0..SLOTS)
                        .all(|slot| !state.marks.is_in(slot) || state.appended(state.head) & bit(slot) != 0)
            }),
        ]
    }
}
