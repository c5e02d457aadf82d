//! Retention, compactors, and other programs that commit.

use super::{Action, Protocol, Rule};
use crate::state::*;

impl Protocol {
    pub fn other_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let room = state.snapshots.len() < self.snapshots;
        if room && !self.keyed && state.spent.foreign < self.most.foreign {
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
            let least = if self.keyed { 1 } else { 2 };
            match state.rewrite {
                Rewrite::None if (state.live(state.head) & OF_TXLOGS).count_ones() >= least => {
                    actions.push(Action::ReadsForRewrite)
                }
                Rewrite::Read { .. } => actions.push(Action::PublishesRewrite),
                _ => {}
            }
        }
    }

    pub fn other_step(&self, state: &mut State, action: Action) {
        match action {
            Action::Retains(b) => {
                let live = state.live(state.head);
                let oldest = live & live.wrapping_neg();
                let request =
                    Request { from: b as u8, base: state.head, removes: oldest, marks: state.marks, ..NO_REQUEST };
                state.spent.retained += 1;
                self.send(state, b, request);
                state.bookkeepers[b].marks = state.marks;
            }
            Action::ReadsForRewrite => {
                let replaced = state.live(state.head) & OF_TXLOGS;
                if self.keyed {
                    let newest = members(replaced as Slots).map(|slot| self.data_number(state, slot)).max();
                    state.compaction = self.read(state, newest.unwrap_or(0));
                }
                state.rewritten = replaced;
                state.disk |= file(REWRITTEN);
                state.rewrite = Rewrite::Read { replaced };
            }
            Action::PublishesRewrite => {
                let Rewrite::Read { replaced } = state.rewrite else { return };
                state.rewrite = Rewrite::Pending { replaced };
            }
            Action::SendsRewrite(b) => {
                let Rewrite::Pending { replaced } = state.rewrite else { return };
                let live = state.live(state.head);
                if live & file(REWRITTEN) != 0 {
                    state.rewrite = Rewrite::Done; // its new file is live: it is in
                    return;
                }
                let read = state.compaction.hidden;
                let unapplied = state.keyed.hidden & !read & replaced as Slots != 0 && self.keeps(Rule::DeletesApplied);
                if unapplied || live & replaced != replaced && self.keeps(Rule::ReplacedLive) {
                    state.rewrite = Rewrite::Done; // refused
                    return;
                }
                let request = Request {
                    from: b as u8,
                    base: state.head,
                    removes: replaced,
                    rewrites: true,
                    marks: state.marks,
                    ..NO_REQUEST
                };
                self.send(state, b, request);
                state.bookkeepers[b].marks = state.marks;
            }
            Action::ForeignAppends => {
                let live = state.live(state.head);
                state.add_snapshot(live, 0);
                state.spent.foreign += 1;
            }
            Action::ForeignRewrites if !self.keyed => {
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
                pass(state, parent);
            }
            _ => {}
        }
    }
}

/// A catalog refuses a snapshot whose sequence number is not new, and what was planned on this base has none.
fn pass(state: &mut State, base: SnapshotId) {
    for keeper in state.bookkeepers.iter_mut().filter(|keeper| keeper.head == base) {
        keeper.head = PASSED;
    }
    for request in state.network.iter_mut().filter(|request| request.base == base) {
        request.base = PASSED;
    }
    state.network.sort();
    if let Replay::Opens { head, .. } = &mut state.replay {
        *head = if *head == base { PASSED } else { *head };
    }
}
