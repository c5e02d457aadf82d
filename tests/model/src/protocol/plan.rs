//! Steps 5 to 8 of a tick: pure, but for the look-up of gaps by name (`bookkeeper/tick/plan.py`).

use super::{Protocol, Rule};
use crate::state::*;

/// What one plan decides.
pub struct Plan {
    pub batch: Slots,
    /// rejected because of what is in the table: only true for marks that were read after a second listing
    pub rejects: Slots,
    pub marks: Marks,
    pub doubtful: bool,
}

struct Planner<'a> {
    protocol: &'a Protocol,
    state: &'a State,
    plan: Plan,
    found: Slots,
    stopped: [bool; INCARNATIONS],
    /// something of writer A waits for the next tick: its position may still move
    waiting: bool,
    reject_positions: bool,
    unfit: bool,
}

impl Protocol {
    pub fn plan(&self, state: &State, keeper: &Bookkeeper) -> Plan {
        let found = members(keeper.found).filter(|&slot| !keeper.marks.is_in(slot)).fold(0, |all, slot| all | bit(slot));
        let mut planner = Planner {
            protocol: self,
            state,
            plan: Plan { batch: 0, rejects: 0, marks: keeper.marks, doubtful: false },
            found,
            stopped: [false; INCARNATIONS],
            waiting: false,
            reject_positions: false,
            unfit: false,
        };
        while planner.goes_through() {}
        if planner.plan.batch != found {
            planner.reject_positions = true;
            planner.goes_through();
        }
        planner.plan.doubtful |= planner.plan.rejects != 0;
        planner.plan
    }

    /// The order in which a plan takes txlogs: by number, or by age where that is known.
    fn in_order(&self, found: Slots) -> Vec<usize> {
        let age = |slot: &usize| self.oldest_first.iter().position(|older| older == slot);
        let mut order: Vec<usize> = members(found).collect();
        order.sort_by_key(age);
        order
    }
}

impl Planner<'_> {
    /// Considers all txlogs once; whether another pass may add something.
    fn goes_through(&mut self) -> bool {
        let before = self.plan.batch;
        self.stopped = [false; INCARNATIONS];
        self.unfit = false;
        for slot in self.protocol.in_order(self.found) {
            let settled = self.plan.batch | self.plan.rejects;
            if !self.stopped[incarnation(slot)] && settled & bit(slot) == 0 {
                self.consider(slot);
            }
        }
        self.unfit && self.plan.batch != before
    }

    fn consider(&mut self, slot: usize) {
        let i = incarnation(slot);
        // A txlog that is gone when it is read blocks its incarnation, and so does one that was not looked for.
        if self.state.pending & bit(slot) == 0 {
            return self.stop(i);
        }
        let (passed, blocked) = self.gap(slot);
        if blocked && self.protocol.keeps(Rule::Prefix) {
            return self.stop(i);
        }
        if has_positions(i)
            && self.protocol.keeps(Rule::Positions)
            && self.state.source_row(slot) != self.plan.marks.position
        {
            if !self.reject_positions || self.waiting {
                self.unfit = true;
                self.stopped[i] = true;
                return;
            }
            self.plan.rejects |= bit(slot);
            return;
        }
        self.accept(slot, passed);
    }

    fn stop(&mut self, i: usize) {
        if self.protocol.keeps(Rule::Prefix) {
            self.stopped[i] = true;
            self.waiting |= has_positions(i);
        }
    }

    fn accept(&mut self, slot: usize, passed: Slots) {
        let (i, marks) = (incarnation(slot), &mut self.plan.marks);
        // A gap that lies in rejected/ is no doubt.
        self.plan.doubtful |= passed & !self.state.rejected != 0;
        self.plan.batch |= bit(slot);
        marks.holes = (marks.holes | passed) & !bit(slot);
        marks.last[i] = marks.last[i].max(sequence(slot));
        if has_positions(i) {
            marks.position = self.state.source_row(slot) + 1;
        }
    }

    /// The sequences that a txlog passes over as holes, and whether one of them may still get in.
    fn gap(&self, slot: usize) -> (Slots, bool) {
        let (i, mut passed) = (incarnation(slot), 0);
        for earlier in self.plan.marks.last[i] + 1..sequence(slot) {
            let other = i * SEQUENCES + earlier as usize - 1;
            let refused = self.plan.rejects & bit(other) != 0;
            let there = self.state.pending & bit(other) != 0 && !refused;
            if there && self.protocol.keeps(Rule::LookByName) {
                return (0, true);
            }
            passed |= bit(other);
        }
        (passed, false)
    }
}
