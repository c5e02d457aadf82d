//! One tick of a bookkeeper, and its end at any point.

use super::{Action, Protocol, Rule};
use crate::state::*;

impl Protocol {
    fn listings(&self, state: &State, b: usize, actions: &mut Vec<Action>) {
        actions.push(Action::Lists(b));
        if state.spent.missed < self.most.missed {
            actions.extend(members(state.pending).map(|slot| Action::ListsWithout(b, slot)));
        }
    }

    /// The steps of a reject: durable in rejected/ before it leaves pending/.
    fn moves(&self, state: &State, b: usize, slots: Slots, actions: &mut Vec<Action>) {
        for slot in members(slots) {
            if state.rejected & bit(slot) == 0 {
                actions.push(Action::Rejects(b, slot));
            }
            if state.rejected & bit(slot) != 0 || !self.keeps(Rule::RejectFirst) {
                actions.push(Action::Unpends(b, slot));
            }
        }
    }

    pub fn bookkeeper_actions(&self, state: &State, b: usize, actions: &mut Vec<Action>) {
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
                // What is bad is rejected before the commit, if the storage lets it.
                self.moves(state, b, keeper.rejects & state.pending & state.bad, actions);
                if room || keeper.batch == 0 {
                    actions.push(Action::Sends(b));
                }
            }
            Phase::Sent => {
                actions.push(Action::Hears(b));
                if state.spent.waited < self.most.waited {
                    actions.push(Action::GivesUp(b));
                }
            }
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
                self.moves(state, b, left, actions);
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

    pub fn bookkeeper_step(&self, state: &mut State, action: Action) {
        match action {
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
                    return;
                }
                let (head, marks) = (state.head, state.marks);
                let keeper = &mut state.bookkeepers[b];
                keeper.head = head;
                keeper.marks = marks;
                keeper.phase = if self.keeps(Rule::ListFirst) { Phase::Loaded } else { Phase::Listed };
            }
            Action::Copies(b) => {
                let marks = state.bookkeepers[b].marks;
                self.write_copy(state, marks);
                state.bookkeepers[b].phase = Phase::Copied;
            }
            Action::DeletesCommitted(_, slot) => state.pending &= !bit(slot),
            Action::Plans(b) => {
                let keeper = state.bookkeepers[b];
                let plan = self.plan(state, &keeper);
                if plan.doubtful && !keeper.twice && self.keeps(Rule::LookByName) {
                    // List again first, load second.
                    let pending = state.pending;
                    let keeper = &mut state.bookkeepers[b];
                    keeper.found |= pending;
                    keeper.twice = true;
                    keeper.phase = Phase::Listed;
                    return;
                }
                let bad = keeper.found & state.pending & state.bad;
                let keeper = &mut state.bookkeepers[b];
                keeper.batch = plan.batch;
                // One that only the second listing shows is not rejected: that listing may have missed what came before.
                keeper.rejects = plan.rejects & keeper.first_found | bad;
                keeper.marks = plan.marks;
                keeper.phase = Phase::Planned;
            }
            Action::Sends(b) => {
                let keeper = state.bookkeepers[b];
                if keeper.batch == 0 {
                    state.bookkeepers[b].phase = Phase::Settling;
                    return;
                }
                let request = Request {
                    from: b as u8,
                    base: keeper.head,
                    adds: keeper.batch,
                    marks: self.pruned(state, keeper.marks),
                    ..NO_REQUEST
                };
                self.send(state, b, request);
            }
            Action::Hears(b) => {
                let at = state.network.iter().position(|r| r.from == b as u8 && r.reply.is_some());
                let Some(at) = at else { return };
                let request = state.network.remove(at);
                let Some(snapshot) = request.reply else { return };
                if snapshot == NONE {
                    state.idle(b);
                    return;
                }
                if request.rewrites {
                    state.rewrite = Rewrite::Done;
                }
                let keeper = &mut state.bookkeepers[b];
                // What it knows is its own commit; the table may have gone on since.
                keeper.marks = Marks { snapshot, ..request.marks };
                keeper.phase = Phase::Committed;
            }
            Action::GivesUp(b) => {
                if self.keeps(Rule::OwnReply) {
                    state.disown(b);
                }
                state.spent.waited += 1;
                let keeper = &mut state.bookkeepers[b];
                // A step beside the ticks, such as retention, is done anew by a later one.
                *keeper = Bookkeeper {
                    phase: if keeper.found == 0 { Phase::Idle } else { Phase::Listed },
                    found: keeper.found,
                    first_found: keeper.first_found,
                    twice: keeper.twice,
                    ..IDLE
                };
            }
            Action::Crashes(b) => {
                state.disown(b);
                state.spent.crashes += 1;
                state.folds[b] = NO_FOLD;
                state.idle(b);
            }
            Action::CopiesAfterCommit(b) => {
                let marks = state.bookkeepers[b].marks;
                self.write_copy(state, marks);
                state.bookkeepers[b].phase = Phase::Settling;
            }
            Action::Rejects(_, slot) => state.rejected |= bit(slot),
            Action::Unpends(_, slot) => state.pending &= !bit(slot),
            Action::Deletes(_, slot) => {
                state.pending &= !bit(slot);
                state.rejected &= !bit(slot); // a replay that got in
            }
            Action::Ends(b) => state.idle(b),
            _ => {}
        }
    }

    fn write_copy(&self, state: &mut State, marks: Marks) {
        let number = if marks.snapshot == NONE { 0 } else { marks.snapshot + 1 };
        if number > state.copy.0 || !self.keeps(Rule::CopyNewer) {
            state.copy = (number, marks);
        }
    }

    pub fn send(&self, state: &mut State, b: usize, request: Request) {
        state.network.push(request);
        state.network.sort();
        state.bookkeepers[b].phase = Phase::Sent;
    }
}
