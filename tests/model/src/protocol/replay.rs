//! `bookkeeper replay`, with and without --force, and what makes it necessary: a txlog that could not be taken.

use super::{Action, Protocol, Rule};
use crate::state::*;

impl Protocol {
    pub fn replay_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.spent.spoiled < self.most.spoiled {
            actions.extend(members(state.pending & !state.spoiled).map(Action::Spoils));
        }
        if state.spent.days < self.most.days {
            actions.push(Action::DayPasses);
        }
        match state.replay {
            Replay::None => {
                if state.spent.replayed < self.most.replayed && !state.halted() {
                    let fit = members(state.rejected).filter(|&slot| self.replay_fits(state, slot));
                    actions.extend(fit.map(Action::ReplayChecks));
                }
            }
            Replay::Opens { .. } => {
                if state.snapshots.len() < self.snapshots && state.network.len() < self.network {
                    actions.push(Action::ReplaySends);
                }
            }
            Replay::Sent { .. } => actions.push(Action::ReplayHears),
            Replay::Checked { slot } => actions.push(Action::Replays(slot)),
        }
    }

    /// What the command refuses: a txlog that is in, whose position is taken, or whose files are or were in the table.
    fn replay_fits(&self, state: &State, slot: usize) -> bool {
        let taken = has_positions(incarnation(slot)) && self.previous(state, slot) != state.marks.position;
        let known = (state.live(state.head) | state.removed()) & file(slot) != 0 && self.keeps(Rule::ReplayAsks);
        let late = self.is_overtaken(&state.marks, slot) || self.keyed && self.is_pruned(state, &state.marks, slot);
        !late && !state.marks.is_in(slot) && !taken && !known && state.disk & file(slot) != 0
    }

    pub fn replay_step(&self, state: &mut State, action: Action) {
        match action {
            Action::Spoils(slot) => {
                state.bad |= bit(slot);
                state.spoiled |= bit(slot);
                state.spent.spoiled += 1;
            }
            Action::DayPasses => {
                state.day = 1;
                state.spent.days += 1;
            }
            Action::ReplayChecks(slot) => {
                state.spent.replayed += 1;
                state.bad &= !bit(slot);
                if !self.keeps(Rule::ReplayKeepsRejected) {
                    state.rejected &= !bit(slot);
                }
                state.replay = if self.is_pruned(state, &state.marks, slot) {
                    Replay::Opens { slot, head: state.head, marks: self.opened(state, slot) }
                } else {
                    Replay::Checked { slot }
                };
            }
            Action::ReplaySends => {
                let Replay::Opens { slot, head, marks } = state.replay else { return };
                state.network.push(Request { from: REPLAY, base: head, marks, ..NO_REQUEST });
                state.network.sort();
                state.replay = Replay::Sent { slot };
            }
            Action::ReplayHears => {
                let Replay::Sent { slot } = state.replay else { return };
                let Some(at) = state.network.iter().position(|r| r.from == REPLAY && r.reply.is_some()) else { return };
                let refused = state.network.remove(at).reply == Some(NONE);
                state.replay = if refused { Replay::None } else { Replay::Checked { slot } };
            }
            Action::Replays(slot) => {
                state.pending |= bit(slot);
                state.replay = Replay::None;
            }
            _ => {}
        }
    }

    /// The marks with a hole for a txlog of a pruned incarnation, and for the others of it that the folder names.
    fn opened(&self, state: &State, slot: usize) -> Marks {
        let (mut marks, i) = (state.marks, incarnation(slot));
        let named = if marks.is_known(i) { bit(slot) } else { state.pending | state.rejected | bit(slot) };
        for other in members(named & of_incarnation(i)) {
            marks.last[i] = marks.last[i].max(sequence(other));
            marks.holes |= bit(other);
        }
        marks.remade |= 1 << i;
        marks.forced |= bit(slot);
        marks.seen = marks.seen & !(1 << i) | state.day << i;
        marks
    }
}
