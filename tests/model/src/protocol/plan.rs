//! Steps 5 to 8 of a tick: pure, but for the look-up of gaps by name (`bookkeeper/tick/plan_batch.py`).

use super::keyed::of_writer;
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
    /// incarnations of which a txlog from before the pruning is rejected now
    pruned: [bool; INCARNATIONS],
    /// of a keyed table
    before: Marks,
    first_found: Slots,
    listed_twice: bool,
}

impl Protocol {
    pub fn plan(&self, state: &State, keeper: &Bookkeeper) -> Plan {
        let found =
            members(keeper.found).filter(|&slot| !keeper.marks.is_in(slot)).fold(0, |all, slot| all | bit(slot));
        let (marks, resumed) = self.resumed(state, found, keeper.marks);
        let mut planner = Planner {
            protocol: self,
            state,
            plan: Plan { batch: 0, rejects: 0, marks, doubtful: false },
            found,
            stopped: [false; INCARNATIONS],
            waiting: false,
            reject_positions: false,
            unfit: false,
            pruned: [false; INCARNATIONS],
            before: keeper.marks,
            first_found: keeper.first_found,
            listed_twice: keeper.twice,
        };
        while planner.goes_through() {}
        if planner.plan.batch != found {
            planner.reject_positions = true;
            planner.goes_through();
        }
        planner.plan.doubtful |= planner.plan.rejects != 0 || resumed;
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
            let settled = self.plan.batch | self.plan.rejects | self.state.bad & self.state.pending;
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
        if self.protocol.keyed && !self.is_next(slot) {
            return;
        }
        if self.protocol.is_pruned(self.state, &self.plan.marks, slot) && self.protocol.keeps(Rule::PrunedRejected) {
            self.pruned[i] = true;
            self.plan.rejects |= bit(slot);
            return;
        }
        if self.pruned[i] {
            return self.wait(i); // until those before it lie in rejected/: then it is clear where it goes on
        }
        if has_positions(i)
            && self.protocol.keeps(Rule::Positions)
            && self.protocol.previous(self.state, slot) != self.plan.marks.position
        {
            if !self.reject_positions || self.waiting {
                return self.wait(i);
            }
            if !self.protocol.keeps(Rule::RejectedMovesNothing) {
                self.take_offsets(slot);
            }
            self.plan.rejects |= bit(slot);
            return;
        }
        self.accept(slot, passed);
    }

    /// The order of a writer of a keyed table (`bookkeeper/tick/writer_order.py`); one that may not come next is settled.
    fn is_next(&mut self, slot: usize) -> bool {
        let i = incarnation(slot);
        let begins = !self.before.is_known(i) && self.protocol.keeps(Rule::ListedTwice);
        if self.protocol.is_overtaken(&self.before, slot) {
            self.plan.rejects |= bit(slot);
            return false;
        }
        if begins && self.listed_twice && self.first_found & bit(slot) == 0 {
            self.wait(i);
            return false;
        }
        let earlier = of_writer(slot) & (bit(slot) - 1);
        let refused = self.plan.rejects | self.state.bad & self.state.pending;
        if self.found & earlier & !self.plan.batch & !refused != 0 && self.protocol.keeps(Rule::WaitsForEarlier) {
            self.wait(i);
            return false;
        }
        let rejected = members((self.state.rejected | self.found & refused) & earlier & !self.plan.batch)
            .any(|other| !self.before.is_in(other) && !self.protocol.is_overtaken(&self.before, other));
        if rejected && !has_positions(i) && self.protocol.keeps(Rule::HoldsBehindRejected) {
            self.stop(i);
            return false;
        }
        self.plan.doubtful |= begins;
        true
    }

    fn stop(&mut self, i: usize) {
        if self.protocol.keeps(Rule::Prefix) {
            self.stopped[i] = true;
            self.waiting |= has_positions(i);
        }
    }

    fn wait(&mut self, i: usize) {
        self.unfit = true;
        self.stopped[i] = true;
    }

    fn accept(&mut self, slot: usize, passed: Slots) {
        let (i, marks) = (incarnation(slot), &mut self.plan.marks);
        // A gap that lies in rejected/ is no doubt.
        self.plan.doubtful |= passed & !self.state.rejected != 0;
        self.plan.batch |= bit(slot);
        marks.holes = (marks.holes | passed) & !bit(slot);
        marks.forced &= !bit(slot);
        marks.last[i] = marks.last[i].max(sequence(slot));
        marks.seen |= self.state.day << i;
        if has_positions(i) {
            marks.position = self.protocol.reached(self.state, slot);
            self.take_offsets(slot);
        }
    }

    fn take_offsets(&mut self, slot: usize) {
        if self.protocol.channels {
            let said = self.state.channels.said[slot];
            self.plan.marks.offsets = self.protocol.merged(self.plan.marks.offsets, said);
        }
    }

    /// The sequences that a txlog passes over as holes, and whether one of them may still get in.
    fn gap(&self, slot: usize) -> (Slots, bool) {
        let (i, mut passed) = (incarnation(slot), 0);
        for earlier in self.plan.marks.last[i] + 1..sequence(slot) {
            let other = i * SEQUENCES + earlier as usize - 1;
            let refused = (self.plan.rejects | self.state.bad) & bit(other) != 0;
            let there = self.state.pending & bit(other) != 0 && !refused;
            if there && self.protocol.keeps(Rule::LookByName) {
                return (0, true);
            }
            passed |= bit(other);
        }
        (passed, false)
    }
}
