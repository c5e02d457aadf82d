//! The catalog: it applies a commit where its guard holds, at any time after it was sent.

use super::{Action, Protocol, Rule};
use crate::state::*;

impl Protocol {
    pub fn catalog_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, request) in state.network.iter().enumerate() {
            if request.reply.is_none() {
                actions.push(Action::Applies(index));
                if state.spent.doubled < self.most.doubled {
                    actions.push(Action::Doubles(index));
                }
            }
        }
    }

    fn apply(&self, state: &mut State, index: usize) {
        let request = state.network[index];
        let room = state.snapshots.len() < self.snapshots + 2;
        let fits = room && (request.base == state.head || !self.keeps(Rule::Guard));
        if fits {
            if self.keyed && request.adds != 0 && !request.half {
                self.number(state, request.adds);
                if !self.keeps(Rule::OneCommit) {
                    state.add_snapshot(state.live(state.head), 0);
                    state.network[index] = Request { base: state.head, half: true, ..request };
                    return;
                }
            }
            if request.fold.folded != 0 {
                state.keyed.last += 1;
                state.keyed.deletes &= !request.fold.folded;
                state.keyed.hidden |= request.fold.hides;
                state.keyed.hidden_rewritten |= request.fold.hides_rewritten;
            }
            let mut live = state.live(state.head);
            live = (live | request.adds as Files) & !request.removes;
            if request.rewrites {
                live |= file(REWRITTEN);
                if self.keyed {
                    self.rewritten(state, state.compaction);
                }
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

    pub fn catalog_step(&self, state: &mut State, action: Action) {
        match action {
            Action::Applies(index) => {
                self.apply(state, index);
                // A request whose sender is gone is of no further interest.
                let request = state.network[index];
                if request.reply.is_some() && !state.is_awaited(&request) {
                    state.network.remove(index);
                }
                state.network.sort();
            }
            Action::Doubles(index) => {
                let request = Request { from: GONE, ..state.network[index] };
                state.network.push(request);
                state.network.sort();
                state.spent.doubled += 1;
            }
            _ => {}
        }
    }
}
