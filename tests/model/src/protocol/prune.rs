//! Marks of incarnations that are long idle are left out of a commit's marks; what a plan knows of them afterwards.

use super::keyed::of_writer;
use super::{Protocol, Rule};
use crate::state::*;

impl Protocol {
    /// Whether it is unknown if a txlog that does not count as in is: it was created before the bound, and its
    /// incarnation has no mark, or one that was made anew.
    pub fn is_pruned(&self, state: &State, marks: &Marks, slot: usize) -> bool {
        let i = incarnation(slot);
        let remade = marks.remade & 1 << i != 0 && marks.forced & bit(slot) == 0 && self.keeps(Rule::RemadeRefused);
        marks.pruned && state.fresh & bit(slot) == 0 && (!marks.is_known(i) || remade)
    }

    /// The marks of a commit, without those that may go; the folder is listed for that.
    pub fn pruned(&self, state: &State, marks: Marks) -> Marks {
        if state.day == 0 || self.most.days == 0 {
            return marks;
        }
        let named = if self.keeps(Rule::PruneNamed) { state.pending | state.rejected } else { 0 };
        let waits =
            |i: usize| !marks.is_known(i) && state.young & 1 << i == 0 && state.pending & of_incarnation(i) != 0;
        if (0..INCARNATIONS).any(waits) && self.keeps(Rule::PruneWaiting) {
            return marks;
        }
        let mut left = marks;
        for i in (0..INCARNATIONS).filter(|&i| marks.is_known(i)) {
            let idle = marks.seen & 1 << i == 0 || !self.keeps(Rule::PruneIdle);
            let newest = !members(of_writer(i * SEQUENCES))
                .any(|slot| incarnation(slot) > i && marks.is_known(incarnation(slot)));
            let stays = self.keyed && newest && self.keeps(Rule::PruneKeepsNewest);
            if idle && !stays && named & of_incarnation(i) == 0 {
                left.last[i] = 0;
                left.holes &= !of_incarnation(i);
                left.seen &= !(1 << i);
                left.remade &= !(1 << i);
                left.forced &= !of_incarnation(i);
                left.pruned = true;
            }
        }
        left
    }

    /// The marks with one more for each incarnation that goes on after its own was pruned, and whether there is one.
    pub fn resumed(&self, state: &State, found: Slots, mut marks: Marks) -> (Marks, bool) {
        let mut any = false;
        for i in 0..INCARNATIONS {
            let Some(slot) = members(found & of_incarnation(i)).next() else { continue };
            let goes_on = marks.pruned
                && !marks.is_known(i)
                && sequence(slot) > 1
                && state.young & 1 << i == 0
                && state.fresh & bit(slot) != 0
                && state.pending & bit(slot) != 0
                && state.bad & bit(slot) == 0;
            let earlier = of_incarnation(i) & (bit(slot) - 1);
            if goes_on && state.pending & earlier == 0 && self.keeps(Rule::GoesOn) {
                marks.last[i] = sequence(slot) - 1;
                marks.holes |= state.rejected & earlier;
                if state.rejected & earlier != 0 {
                    marks.remade |= 1 << i;
                }
                any = true;
            }
        }
        (marks, any)
    }
}
