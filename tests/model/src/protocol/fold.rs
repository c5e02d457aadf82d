//! Folds of equality deletes into position deletes, and compactions by Iceberg Java, on a keyed table.

use super::{Action, Protocol, Rule};
use crate::state::*;

impl Protocol {
    pub fn fold_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !self.keyed {
            return;
        }
        let room = state.snapshots.len() < self.snapshots;
        for b in 0..self.bookkeepers {
            let none = state.folds[b].folded == 0;
            if none && state.keyed.deletes != 0 && state.spent.folded < self.most.folded && !state.halted() {
                actions.push(Action::FoldPlans(b));
            }
            if !none && state.bookkeepers[b].phase == Phase::Idle && room && !state.halted() {
                actions.push(Action::FoldSends(b));
            }
        }
        if self.rewrite {
            return; // one compactor a scenario: ours
        }
        if state.compaction.replaced != 0 && room {
            actions.push(Action::ForeignRewrites);
        } else if state.spent.foreign < self.most.foreign && state.live(state.head) & OF_TXLOGS != 0 {
            actions.push(Action::ForeignReads);
        }
    }

    pub fn fold_step(&self, state: &mut State, action: Action) {
        match action {
            Action::FoldPlans(b) => {
                let (hides, hides_rewritten) = self.dead(state);
                let examined = state.live(state.head);
                state.folds[b] = Fold { folded: state.keyed.deletes, examined, hides, hides_rewritten };
                state.spent.folded += 1;
            }
            Action::FoldSends(b) => {
                let fold = state.folds[b];
                state.folds[b] = NO_FOLD;
                if !self.fold_fits(state, &fold) {
                    return; // outdated: the next one is planned on the table as it is
                }
                // A file that is gone is dropped from the plan.
                let live = state.live(state.head);
                let hides = fold.hides & live as Slots;
                let hides_rewritten = if live & file(REWRITTEN) != 0 { fold.hides_rewritten } else { 0 };
                let fold = Fold { hides, hides_rewritten, ..fold };
                let request = Request { from: b as u8, base: state.head, fold, marks: state.marks, ..NO_REQUEST };
                self.send(state, b, request);
                state.bookkeepers[b].marks = state.marks;
            }
            Action::ForeignReads => {
                state.compaction = self.read(state, state.keyed.last);
                state.spent.foreign += 1;
            }
            Action::ForeignRewrites if self.keyed => {
                let read = state.compaction;
                state.compaction = NO_COMPACTION;
                let live = state.live(state.head);
                // It looks for new position deletes in snapshots that are labelled `delete` or `overwrite` only.
                let folded = state.keyed.hidden & !read.hidden & read.replaced as Slots;
                if live & read.replaced != read.replaced || folded != 0 && self.keeps(Rule::FoldIsDelete) {
                    return;
                }
                state.disk |= file(REWRITTEN);
                state.add_snapshot((live & !read.replaced) | file(REWRITTEN), 0);
                self.rewritten(state, read);
                state.rewrite = Rewrite::Done;
            }
            _ => {}
        }
    }

    /// Rules 1 and 2 of `ledger/fold_commit.py`: what is folded is live, and what it applies to was examined.
    fn fold_fits(&self, state: &State, fold: &Fold) -> bool {
        let applies = |number: u8| members(fold.folded).any(|other| state.keyed.numbers[other] > number);
        let live = state.live(state.head) & !fold.examined;
        let stale = members(live as Slots).any(|slot| applies(self.data_number(state, slot)))
            || live & file(REWRITTEN) != 0 && applies(state.keyed.rewritten_number);
        fold.folded & !state.keyed.deletes == 0 && !(stale && self.keeps(Rule::FoldExamined))
    }

    /// What a compaction reads at the head: the rows that are there, and the deletes that it applies.
    pub fn read(&self, state: &State, number: u8) -> Compaction {
        let replaced = state.live(state.head) & OF_TXLOGS;
        let rows = self.visible(state).0;
        Compaction { replaced, rows, number, hidden: state.keyed.hidden }
    }

    /// A compaction that is in: its file has the rows and the number of its read.
    pub fn rewritten(&self, state: &mut State, read: Compaction) {
        state.keyed.last += 1;
        state.rewritten = read.rows as Files;
        state.keyed.rewritten_number = if self.keeps(Rule::RewriteNumber) { read.number } else { state.keyed.last };
        state.keyed.hidden &= !(read.replaced as Slots);
    }
}
