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

    pub fn catalog_step(&self, state: &mut State, action: Action) {
        match action {
            Action::Applies(index) => {
                self.apply(state, index);
                // A request whose sender is gone is of no further interest.
                let from = state.network[index].from;
                if from as usize >= BOOKKEEPERS || state.bookkeepers[from as usize].phase != Phase::Sent {
                    state.network.remove(index);
                }
                state.network.sort();
            }
            Action::Doubles(index) => {
                let request = Request { from: BOOKKEEPERS as u8, ..state.network[index] };
                state.network.push(request);
                state.network.sort();
                state.spent.doubled += 1;
            }
            _ => {}
        }
    }
}
