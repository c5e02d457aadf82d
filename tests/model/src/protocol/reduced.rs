//! The same protocol in fewer states, for scenarios that are too large otherwise.
//!
//! `settled` maps each state to one that stands for it: steps that only change what one program remembers are taken at
//! once, and what no later step and no property asks for is forgotten. Each part says why nothing is lost. compare.rs
//! checks it: in every scenario, each state of the whole search, settled, is a state of the reduced one.

use super::{Action, Protocol, Rule};
use crate::state::*;

impl Protocol {
    pub fn reduce_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let killed = self.retains_at_once() && state.spent.crashes < self.most.crashes;
        for b in (0..self.bookkeepers).filter(|_| killed) {
            if actions.contains(&Action::Retains(b)) {
                actions.push(Action::Crashes(b)); // while what retention sent is under way
            }
        }
        actions.retain(|&action| !self.reaper_does_less(state, action) && !self.crash_does_less(state, action));
    }

    pub fn reduced_step(&self, last: &State, mut state: State, action: Action) -> State {
        match action {
            Action::ReaperPlans if self.expires_at_once() => self.reaper_step(&mut state, Action::ReaperExpires),
            Action::Retains(b) if self.retains_at_once() => {
                let sent = state.network.iter().position(|request| request.from == b as u8);
                self.catalog_step(&mut state, Action::Applies(sent.expect("what retention sent")));
            }
            Action::Crashes(b) if last.bookkeepers[b].phase == Phase::Idle => {
                state = last.clone();
                self.other_step(&mut state, Action::Retains(b));
                self.bookkeeper_step(&mut state, action);
            }
            _ => {}
        }
        self.settled(state)
    }

    pub fn settled(&self, mut state: State) -> State {
        for &i in self.incarnations {
            self.settle_writer(&mut state, i);
        }
        if self.only_forwards(&state) {
            // No bookkeeper waits for it, and it is refused.
            let head = state.head;
            state.network.retain(|request| request.from != GONE || request.base == head);
        }
        for b in 0..self.bookkeepers {
            while self.settles(&mut state, b) {}
            self.forget_tick(&mut state, b);
        }
        if self.retains_at_once() {
            self.unsend_retention(&mut state);
        }
        if self.reaper {
            self.settle_reaper(&mut state);
        }
        self.forget_history(&mut state);
        if self.bookkeepers == BOOKKEEPERS {
            order_bookkeepers(&mut state);
        }
        state
    }

    /// `main` never goes back: a request on an older head is refused, now or later, and marks only grow.
    fn only_forwards(&self, state: &State) -> bool {
        self.keeps(Rule::Guard) && state.spent.rolled_back >= self.most.rolled_back
    }

    fn may_give_up(&self, state: &State) -> bool {
        state.spent.waited < self.most.waited || !self.keeps(Rule::OwnReply)
    }

    /// Whether a txlog that left pending/ may come back.
    fn may_return(&self, state: &State) -> bool {
        state.spent.reappeared < self.most.reappeared || self.most.replayed > 0
    }

    /// Takes a step of a bookkeeper that changes only what it remembers, and that nothing prevents later.
    fn settles(&self, state: &mut State, b: usize) -> bool {
        let keeper = state.bookkeepers[b];
        let number = if keeper.marks.snapshot == NONE { 0 } else { keeper.marks.snapshot + 1 };
        let (forwards, gives_up) = (self.only_forwards(state), self.may_give_up(state));
        // marks.json is as new already, and never becomes older.
        let copied = self.keeps(Rule::CopyNewer) && number <= state.copy.0;
        let room = state.snapshots.len() < self.snapshots && state.network.len() < self.network;
        let sent = state.network.iter().position(|request| request.from == b as u8);
        let answer = sent.and_then(|at| state.network[at].reply);
        let step = match keeper.phase {
            Phase::Loaded if copied => Action::Copies(b),
            // Without a commit, what it rejects may be rejected in the next phase as well.
            Phase::Planned if keeper.batch == 0 => Action::Sends(b),
            // What it sends depends on its plan alone, unless marks are pruned or bad txlogs are rejected first.
            Phase::Planned if self.sends_as_planned(state, &keeper) => {
                if forwards && keeper.head != state.head && !gives_up {
                    Action::Ends(b) // it will be refused
                } else if room {
                    Action::Sends(b)
                } else {
                    return false;
                }
            }
            Phase::Sent if gives_up => return false,
            Phase::Sent => match sent.map(|at| state.network[at]) {
                Some(request) if answer.is_some() && !request.rewrites => Action::Hears(b),
                Some(request) if answer.is_none() && forwards && request.base != state.head => {
                    Action::Applies(sent.unwrap_or_default()) // it is refused
                }
                _ => return false,
            },
            Phase::Committed if copied && self.keeps(Rule::CopyFirst) => Action::CopiesAfterCommit(b),
            Phase::Settling if (keeper.rejects | keeper.batch) & state.pending == 0 && !self.may_return(state) => {
                Action::Ends(b)
            }
            _ => return false,
        };
        self.bookkeeper_step(state, step);
        self.catalog_step(state, step);
        true
    }

    fn sends_as_planned(&self, state: &State, keeper: &Bookkeeper) -> bool {
        let spoils = state.spent.spoiled < self.most.spoiled;
        self.most.days == 0 && !spoils && keeper.rejects & state.bad == 0
    }

    /// Forgets what a bookkeeper asks for no more in its phase.
    fn forget_tick(&self, state: &mut State, b: usize) {
        let (pending, marks) = (state.pending, state.marks);
        let (returns, gives_up) = (self.may_return(state), self.may_give_up(state));
        let forwards = self.only_forwards(state) && self.most.days == 0;
        let keeper = &mut state.bookkeepers[b];
        let mut known = None;
        match keeper.phase {
            Phase::Listed | Phase::Loaded if !self.keeps(Rule::ListFirst) => {}
            Phase::Listed => {
                // It loads again: what was loaded before the second listing is not used.
                (keeper.head, keeper.marks) = (NONE, NO_MARKS);
                known = Some(marks);
            }
            Phase::Loaded | Phase::Copied => known = Some(keeper.marks),
            Phase::Planned | Phase::Sent | Phase::Committed | Phase::Settling => {
                // Only one that gives up waiting lists no more, and goes on with what it found.
                if gives_up {
                    known = Some(marks);
                } else {
                    (keeper.found, keeper.first_found, keeper.twice) = (0, 0, false);
                }
                // A request holds its base and its marks.
                if keeper.phase != Phase::Planned {
                    keeper.head = NONE;
                }
                if matches!(keeper.phase, Phase::Sent | Phase::Settling) {
                    keeper.marks = NO_MARKS;
                }
                if keeper.phase == Phase::Settling && !returns {
                    keeper.batch &= pending;
                    keeper.rejects &= pending;
                }
            }
            Phase::Idle => {}
        }
        // A plan passes over what is in, and it stays in; it is found only to be deleted.
        if let (Some(marks), true, false) = (known, forwards, returns) {
            let is_in = members(keeper.found).filter(|&slot| marks.is_in(slot)).fold(0, |all, slot| all | bit(slot));
            keeper.found &= !is_in | pending;
            keeper.first_found &= !is_in;
        }
    }

    fn settle_writer(&self, state: &mut State, i: usize) {
        // A writer without positions asks for nothing when it starts, but the day.
        if !has_positions(i) && self.most.days == 0 {
            if state.writers[i] == Writer::New {
                self.writer_step(state, Action::WriterLists(i));
            }
            if matches!(state.writers[i], Writer::Listed { .. }) {
                self.writer_step(state, Action::WriterStarts(i));
            }
        }
        match state.writers[i] {
            Writer::Listed { found, published } if self.keeps(Rule::WriterListsFirst) => {
                let of_a: Slots = (0..INCARNATIONS / 2).map(of_incarnation).fold(0, |all, slots| all | slots);
                state.writers[i] = Writer::Listed { found: found & of_a, published: published & of_a };
            }
            Writer::Running { from, next, written } if self.keeps(Rule::FileFirst) => {
                let more = next as usize <= SEQUENCES
                    && !(has_positions(i) && from + next - 1 >= SOURCE_ROWS)
                    && state.spent.published < self.most.published;
                if more && !written {
                    // No step asks for a data file before its txlog is there.
                    self.writer_step(state, Action::WritesFile(i));
                } else if !more {
                    // Where it began is asked for its txlogs only.
                    let next_file = i * SEQUENCES + next as usize - 1;
                    state.disk &= !(Files::from(written) << next_file);
                    let from = if state.published & of_incarnation(i) == 0 { 0 } else { from };
                    state.writers[i] = Writer::Running { from, next, written: false };
                }
            }
            _ => {}
        }
    }

    /// A plan of the reaper has no effect before its expiry, which is refused where `main` has moved: it may as well be
    /// made at that moment.
    fn expires_at_once(&self) -> bool {
        let rules = [Rule::Guard, Rule::ExpireGuard, Rule::Verify];
        rules.into_iter().all(|rule| self.keeps(rule)) && self.most.rolled_back == 0
    }

    /// The same of retention, which begins at the head: it may as well begin when its request is applied. Where its
    /// sender is killed, the request goes on alone: that is a step of its own.
    fn retains_at_once(&self) -> bool {
        self.keeps(Rule::Guard) && self.most.rolled_back == 0 && self.most.waited == 0 && self.most.doubled == 0
    }

    /// What is deleted comes back to no disk, so deleting early and all of it shows most. A file of a rewrite may be
    /// written twice.
    fn deletes_at_once(&self) -> bool {
        self.keeps(Rule::FileFirst) && !self.rewrite && self.most.foreign <= 1
    }

    fn unsend_retention(&self, state: &mut State) {
        for b in 0..self.bookkeepers {
            let under_way = |r: &Request| r.from == b as u8 && r.removes != 0 && !r.rewrites && r.reply.is_none();
            if let Some(at) = state.network.iter().position(under_way) {
                state.network.remove(at);
                state.spent.retained -= 1;
                state.idle(b);
            }
        }
    }

    fn settle_reaper(&self, state: &mut State) {
        if self.expires_at_once() {
            if has_expired(state) {
                state.reaper.guard = NONE;
            } else {
                state.reaper = REAPER_IDLE;
            }
        }
        while self.deletes_at_once() && state.reaper.phase == ReaperPhase::Verified {
            let left = state.reaper.files & state.disk;
            if left == 0 {
                state.reaper = Reaper { phase: ReaperPhase::Done, ..REAPER_IDLE };
            } else {
                self.reaper_step(state, Action::ReaperDeletes(left.trailing_zeros() as usize));
            }
        }
    }

    /// A reaper that gives up, or is killed while it deletes, does less than one that goes on.
    pub fn reaper_does_less(&self, state: &State, action: Action) -> bool {
        match action {
            Action::ReaperCrashes => self.deletes_at_once(),
            Action::ReaperExpires => self.expires_at_once() && (has_expired(state) || state.reaper.guard != state.head),
            Action::ReaperVerifies if self.expires_at_once() => {
                let mut after = state.clone();
                self.reaper_step(&mut after, action);
                after.reaper.phase == ReaperPhase::Done
            }
            _ => false,
        }
    }

    /// Killed after a listing: as if it had not listed. Killed when all is in: as if it had ended.
    fn crash_does_less(&self, state: &State, action: Action) -> bool {
        let Action::Crashes(b) = action else { return false };
        match state.bookkeepers[b].phase {
            Phase::Listed | Phase::Loaded => true,
            Phase::Settling => !self.may_give_up(state),
            _ => false,
        }
    }

    /// Of snapshots behind `main`, which no rollback reaches, the reaper and a property ask only which files they hold
    /// together, and after the reaper's run only the property, of those that are gone.
    fn forget_history(&self, state: &mut State) {
        if !self.only_forwards(state) || self.most.replayed > 0 || !self.expires_at_once() || state.head == NONE {
            return;
        }
        let reaps = self.reaper && state.reaper.phase != ReaperPhase::Done;
        let (head, marked, disk) = (state.head, state.marks.snapshot, state.disk);
        let newest = state.live(head) | state.live(marked);
        let (mut held, mut first): (Files, _) = (0, None);
        for (id, snapshot) in state.snapshots.iter_mut().enumerate() {
            let id = id as SnapshotId;
            if id == head {
                continue;
            }
            (snapshot.appended, snapshot.twice) = (0, false);
            if snapshot.expired {
                snapshot.live = 0;
            } else if !reaps {
                snapshot.live &= !disk;
            } else if id != marked {
                held |= std::mem::take(&mut snapshot.live);
                first = first.or(Some(id));
            }
        }
        if let Some(first) = first {
            state.snapshots[first as usize].live = held & !newest;
        }
        if self.reaper && !reaps {
            // That one expired is all that is left to know.
            state.snapshots.iter_mut().for_each(|snapshot| snapshot.expired = false);
            state.snapshots[0].expired = true;
        }
    }
}

fn has_expired(state: &State) -> bool {
    state.snapshots.iter().any(|snapshot| snapshot.expired)
}

/// Bookkeepers are alike: which of them is the first makes no difference.
fn order_bookkeepers(state: &mut State) {
    let mut swapped = state.clone();
    swapped.bookkeepers.swap(0, 1);
    swapped.folds.swap(0, 1);
    for request in swapped.network.iter_mut().filter(|request| request.from < GONE) {
        request.from = 1 - request.from;
    }
    swapped.network.sort();
    let key = |state: &State| (state.bookkeepers, state.folds);
    if (key(&swapped), &swapped.network) < (key(state), &state.network) {
        *state = swapped;
    }
}
