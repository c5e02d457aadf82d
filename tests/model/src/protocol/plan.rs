//! Steps 5 to 8 of a tick: pure, but for the look-up of gaps by name.

use super::{Protocol, Rule};
use crate::state::*;

/// What one plan decides.
pub struct Plan {
    pub batch: Slots,
    pub rejects: Slots,
    pub marks: Marks,
    pub doubtful: bool,
}

impl Protocol {
    pub fn plan(&self, state: &State, keeper: &Bookkeeper) -> Plan {
        let mut marks = keeper.marks;
        let mut plan = Plan { batch: 0, rejects: 0, marks, doubtful: false };
        // A txlog that is gone when it is read blocks its incarnation, and so does one that was not looked for.
        let readable = keeper.found & state.pending;
        let mut stopped = [false; INCARNATIONS];
        let unfit = loop {
            let before = plan.batch;
            let mut unfit: Slots = 0;
            for slot in members(keeper.found) {
                let i = incarnation(slot);
                if marks.is_in(slot) || stopped[i] || plan.batch & bit(slot) != 0 {
                    continue;
                }
                if readable & bit(slot) == 0 {
                    stopped[i] = self.keeps(Rule::Prefix);
                    continue;
                }
                let (passed, blocked) = self.gap(state, &marks, slot);
                if blocked && self.keeps(Rule::Prefix) {
                    stopped[i] = true;
                    continue;
                }
                if has_positions(i) && self.keeps(Rule::Positions) && state.source_row(slot) != marks.position {
                    unfit |= bit(slot);
                    continue;
                }
                if passed != 0 {
                    plan.doubtful = true;
                }
                plan.batch |= bit(slot);
                marks.holes = (marks.holes | passed) & !bit(slot);
                marks.last[i] = marks.last[i].max(sequence(slot));
                if has_positions(i) {
                    marks.position = state.source_row(slot) + 1;
                }
            }
            if plan.batch == before {
                break unfit;
            }
        };
        // While something of the writer may still come, its position may still move.
        if !stopped[..INCARNATIONS / 2].contains(&true) && unfit != 0 {
            plan.rejects = unfit;
            plan.doubtful = true;
        }
        plan.marks = marks;
        plan
    }
    /// The sequences that a txlog passes over as holes, and whether one of them may still get in.
    fn gap(&self, state: &State, marks: &Marks, slot: usize) -> (Slots, bool) {
        let mut passed = 0;
        for earlier in marks.last[incarnation(slot)] + 1..sequence(slot) {
            let other = incarnation(slot) * SEQUENCES + earlier as usize - 1;
            let there = state.pending & bit(other) != 0 && self.keeps(Rule::LookByName);
            if there {
                return (0, true);
            }
            passed |= bit(other);
        }
        (passed, false)
    }
}
