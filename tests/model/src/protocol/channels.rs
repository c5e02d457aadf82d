//! A source of channels: writer A is a slot, in the words of the code. Its position says which txlog came last, and its
//! offsets, which are not compared, how far each channel is read.

use super::{Action, Protocol, Rule};
use crate::state::*;

impl Protocol {
    /// The position that a txlog of writer A continues from.
    pub fn previous(&self, state: &State, slot: usize) -> u8 {
        if self.channels {
            state.channels.said[slot].previous
        } else {
            state.source_row(slot)
        }
    }

    /// The position that it reaches; of a slot its own name, which never recurs.
    pub fn reached(&self, state: &State, slot: usize) -> u8 {
        if self.channels && self.keeps(Rule::PositionsNeverRecur) {
            slot as u8 + 1
        } else {
            self.previous(state, slot) + 1
        }
    }

    pub fn channel_actions(&self, state: &State, i: usize, actions: &mut Vec<Action>) {
        let unread = |&channel: &usize| state.channels.chains[i].offsets[channel] < SOURCE_ROWS;
        actions.extend((0..CHANNELS).filter(unread).map(|channel| Action::PublishesChannel(i, channel)));
    }

    /// A run begins at the end of the chain of its slot: behind the pending txlogs that the marks do not hold.
    pub fn chain(&self, state: &State, found: Slots, marks: Marks) -> Chain {
        let mut chain = Chain { position: marks.position, offsets: marks.offsets };
        let mut left: Vec<usize> = members(found).filter(|&slot| slot < OF_A && !marks.is_in(slot)).collect();
        while let Some(at) = left.iter().position(|&slot| self.previous(state, slot) == chain.position) {
            let slot = left.remove(at);
            chain.position = self.reached(state, slot);
            let said = state.channels.said[slot];
            if self.keeps(Rule::OffsetsOfPending) {
                chain.offsets[said.channel as usize] = said.offset;
            }
        }
        chain
    }

    /// Whether one of these txlogs holds a row that a run which begins here reads again.
    pub fn repeats(&self, state: &State, chain: Chain, published: Slots) -> bool {
        let said = members(published).filter(|&slot| slot < OF_A).map(|slot| state.channels.said[slot]);
        said.into_iter().any(|said| said.offset > chain.offsets[said.channel as usize])
    }

    /// The committed offsets behind a txlog: a channel that it does not name stays where it was.
    pub fn merged(&self, before: Offsets, said: Said) -> Offsets {
        let mut offsets = if self.keeps(Rule::OffsetsMerged) { before } else { [0; CHANNELS] };
        offsets[said.channel as usize] = said.offset;
        offsets
    }

    pub fn says(&self, state: &mut State, slot: usize, channel: usize) {
        let mut chain = state.channels.chains[incarnation(slot)];
        let offset = chain.offsets[channel] + 1;
        state.channels.said[slot] = Said { previous: chain.position, channel: channel as u8, offset };
        chain.position = self.reached(state, slot);
        chain.offsets[channel] = offset;
        state.channels.chains[incarnation(slot)] = chain;
    }
}
