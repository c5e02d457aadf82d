//! Writers: a data file, then the txlog that names it; at a start, pending/ first and marks.json second.

use super::keyed::of_writer;
use super::{Action, Protocol, Rule};
use crate::state::*;

impl Protocol {
    pub fn writer_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for &i in self.incarnations {
            match state.writers[i] {
                Writer::New => actions.push(Action::WriterLists(i)),
                Writer::Listed { .. } => actions.push(Action::WriterStarts(i)),
                Writer::Running { from, next, written } => {
                    let read = has_positions(i) && !self.channels && from + next - 1 >= SOURCE_ROWS;
                    let more = next as usize <= SEQUENCES && !read && state.spent.published < self.most.published;
                    if more && self.channels && has_positions(i) && written {
                        self.channel_actions(state, i, actions);
                    } else if more && (written || !self.keeps(Rule::FileFirst)) {
                        actions.push(Action::Publishes(i));
                        let old = state.day == 1 && state.young & 1 << i == 0 && !has_positions(i);
                        if old && state.spent.delayed < self.most.delayed {
                            actions.push(Action::PublishesLate(i));
                        }
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
        }
    }

    pub fn writer_step(&self, state: &mut State, action: Action) {
        match action {
            Action::WriterLists(i) => {
                let published = state.published;
                // The other way round: the position first, the names when it starts.
                let first =
                    if self.keeps(Rule::WriterListsFirst) { state.pending } else { state.copy.1.position as Slots };
                state.writers[i] = Writer::Listed { found: first, published };
                // Incarnations are ordered by time: one that began before another on day 0 began on day 0.
                let before = |j: usize| state.writers[j] != Writer::New && state.young & 1 << j == 0;
                let siblings = i + 1..if has_positions(i) { INCARNATIONS / 2 } else { INCARNATIONS };
                if !self.keyed || !siblings.into_iter().any(before) {
                    state.young |= state.day << i;
                }
            }
            Action::WriterStarts(i) => {
                let Writer::Listed { found, published } = state.writers[i] else { return };
                if self.channels && has_positions(i) {
                    let chain = self.chain(state, found, state.copy.1);
                    let kept = published & !state.rejected & !state.rolled_back;
                    state.repeated |= self.repeats(state, chain, kept);
                    state.channels.chains[i] = chain;
                    state.writers[i] = Writer::Running { from: 0, next: 1, written: false };
                    return;
                }
                let (mut at, pending) = if self.keeps(Rule::WriterListsFirst) {
                    (state.copy.1.position, found)
                } else {
                    (found as u8, state.pending)
                };
                let copy = state.copy.1;
                let left: Vec<usize> =
                    members(pending).filter(|&slot| has_positions(incarnation(slot)) && !copy.is_in(slot)).collect();
                while left.iter().any(|&slot| state.source_row(slot) == at) {
                    at += 1;
                }
                if has_positions(i) {
                    // Behind a txlog that could not be taken, the chain is broken: those rows are read again.
                    let chained = !members(state.spoiled).any(|slot| has_positions(incarnation(slot)));
                    state.repeated |= chained
                        && members(published & !state.rejected & !state.rolled_back)
                            .any(|slot| has_positions(incarnation(slot)) && state.source_row(slot) >= at);
                }
                let from = if has_positions(i) { at } else { 0 };
                state.writers[i] = Writer::Running { from, next: 1, written: false };
            }
            Action::WritesFile(i) => {
                let Writer::Running { from, next, .. } = state.writers[i] else { return };
                state.disk |= file(i * SEQUENCES + next as usize - 1);
                state.writers[i] = Writer::Running { from, next, written: true };
            }
            Action::Publishes(i) | Action::PublishesLate(i) | Action::PublishesChannel(i, _) => {
                let Writer::Running { from, next, .. } = state.writers[i] else { return };
                let slot = i * SEQUENCES + next as usize - 1;
                if let Action::PublishesChannel(_, channel) = action {
                    self.says(state, slot, channel);
                }
                state.pending |= bit(slot);
                let later = of_writer(slot) & !((bit(slot) - 1) | of_incarnation(i));
                if self.keyed && state.published & later != 0 {
                    state.late |= bit(slot);
                }
                state.published |= bit(slot);
                if action == Action::PublishesLate(i) {
                    state.late |= bit(slot);
                    state.spent.delayed += 1;
                } else {
                    state.fresh |= bit(slot) * state.day as Slots;
                }
                state.spent.published += 1;
                state.writers[i] = Writer::Running { from, next: next + 1, written: false };
            }
            Action::Reappears(slot) => {
                state.pending |= bit(slot);
                state.spent.reappeared += 1;
            }
            _ => {}
        }
    }
}
