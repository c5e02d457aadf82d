//! A keyed table: each writer has one key, and a txlog inserts, upserts or deletes its row (docs/upserts.md).
//!
//! Each step of a commit has a data sequence number of its own. An equality delete hides rows with smaller numbers. The
//! data file of a delete is a shadow row, a tombstone for streams: its number lies below that of its own delete.

use super::{Protocol, Rule};
use crate::state::*;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Insert,
    Upsert,
    Delete,
}

pub fn op(state: &State, slot: usize) -> Op {
    let first = !has_positions(incarnation(slot)) && incarnation(slot) > INCARNATIONS / 2;
    let row = if has_positions(incarnation(slot)) { state.source_row(slot) } else { sequence(slot) - 1 };
    match row {
        0 if first => Op::Upsert,
        0 => Op::Insert,
        _ => Op::Delete,
    }
}

/// Slots of the same writer, which are those of the same key.
pub fn of_writer(slot: usize) -> Slots {
    let of_a: Slots = (1 << (SLOTS / 2)) - 1;
    if has_positions(incarnation(slot)) {
        of_a
    } else {
        !of_a
    }
}

impl Protocol {
    /// The data sequence number of the data file of a txlog.
    pub fn data_number(&self, state: &State, slot: usize) -> u8 {
        let below = op(state, slot) == Op::Delete && self.keeps(Rule::ShadowBelow);
        state.keyed.numbers[slot] - u8::from(below)
    }

    fn is_deleted(&self, state: &State, slot: usize, number: u8) -> bool {
        members(state.keyed.deletes & of_writer(slot)).any(|other| state.keyed.numbers[other] > number)
    }

    /// The rows that are dead by equality deletes: in files of txlogs, and in the rewritten one.
    pub fn dead(&self, state: &State) -> (Slots, Slots) {
        let live = state.live(state.head);
        let direct = members(live as Slots)
            .filter(|&slot| self.is_deleted(state, slot, self.data_number(state, slot)))
            .fold(0, |all, slot| all | bit(slot));
        let rewritten = if live & file(REWRITTEN) != 0 { state.rewritten as Slots } else { 0 };
        let merged = members(rewritten)
            .filter(|&slot| self.is_deleted(state, slot, state.keyed.rewritten_number))
            .fold(0, |all, slot| all | bit(slot));
        (direct, merged)
    }

    /// The rows that a batch reader finds: in files of txlogs, and in the rewritten one.
    pub fn visible(&self, state: &State) -> (Slots, Slots) {
        let live = state.live(state.head);
        let (direct, merged) = self.dead(state);
        let rewritten = if live & file(REWRITTEN) != 0 { state.rewritten as Slots } else { 0 };
        (live as Slots & !direct & !state.keyed.hidden, rewritten & !merged & !state.keyed.hidden_rewritten)
    }

    /// Whether the table is what its txlogs make of it: of each writer, the version of the last one that is in.
    pub fn is_true_state(&self, state: &State) -> bool {
        let (direct, merged) = self.visible(state);
        let is_in = state.appended(state.head);
        let expected = [of_writer(0), of_writer(SLOTS - 1)]
            .into_iter()
            .filter_map(|writer| members(is_in & writer).last())
            .filter(|&slot| op(state, slot) != Op::Delete)
            .fold(0, |all, slot| all | bit(slot));
        direct & merged == 0 && direct | merged == expected
    }

    /// Gives the steps of a batch their numbers, and adds its equality deletes.
    pub fn number(&self, state: &mut State, batch: Slots) {
        let deletes = members(batch).any(|slot| op(state, slot) != Op::Insert);
        let mut number = state.keyed.last;
        let mut inherits = vec![];
        for slot in members(batch) {
            let insert = op(state, slot) == Op::Insert;
            if deletes && self.keeps(Rule::StepNumbers) {
                number += if insert { 1 } else { 2 };
            }
            state.keyed.numbers[slot] = if self.keeps(Rule::StepNumbers) { number } else { number + 2 };
            if insert && (!deletes || !self.keeps(Rule::ExplicitNumbers)) {
                inherits.push(slot);
            }
            if !insert {
                state.keyed.deletes |= bit(slot);
            }
        }
        state.keyed.last = number + if self.keeps(Rule::StepNumbers) { 1 } else { 3 };
        for slot in inherits {
            state.keyed.numbers[slot] = state.keyed.last;
        }
    }

    /// Whether a later txlog of its writer is in.
    pub fn is_overtaken(&self, marks: &Marks, slot: usize) -> bool {
        if !self.keyed || !self.keeps(Rule::OlderRefused) {
            return false;
        }
        let later = of_writer(slot) & !(bit(slot) | (bit(slot) - 1));
        let same = of_incarnation(incarnation(slot));
        // Of a later incarnation any mark will do; of its own one, a sequence that is no hole.
        members(later & !same).any(|other| marks.is_known(incarnation(other)))
            || members(later & same).any(|other| marks.is_in(other))
    }
}
