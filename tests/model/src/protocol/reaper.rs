//! The reaper: plan, journal, guarded expiry, verification, deletion.

use super::{Action, Protocol, Rule};
use crate::state::*;

impl Protocol {
    pub fn reaper_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if self.reaper {
            match state.reaper.phase {
                ReaperPhase::Idle => {
                    if !state.halted() && self.expirable(state) != 0 {
                        actions.push(Action::ReaperPlans);
                    }
                }
                ReaperPhase::Journaled => {
                    actions.push(Action::ReaperExpires);
                    actions.push(Action::ReaperVerifies);
                }
                ReaperPhase::Verified => {
                    for number in 0..=REWRITTEN {
                        if state.reaper.files & state.disk & file(number) != 0 {
                            actions.push(Action::ReaperDeletes(number));
                        }
                    }
                    if state.spent.crashes < self.most.crashes {
                        actions.push(Action::ReaperCrashes);
                    }
                }
                ReaperPhase::Done => {}
            }
        }
    }

    /// The snapshots that may expire: ancestors of the head, but for the head and the snapshot of the marks.
    pub fn expirable(&self, state: &State) -> Snapshots {
        let mut found = 0;
        for (id, snapshot) in state.snapshots.iter().enumerate() {
            let id = id as SnapshotId;
            let kept = id == state.head || id == state.marks.snapshot;
            if !snapshot.expired && !kept && state.is_ancestor(id, state.head) {
                found |= 1 << id;
            }
        }
        found
    }

    pub fn reaper_step(&self, state: &mut State, action: Action) {
        match action {
            Action::ReaperPlans => {
                let snapshots = self.expirable(state);
                let mut doomed: Files = 0;
                let mut kept: Files = 0;
                for (id, snapshot) in state.snapshots.iter().enumerate() {
                    if snapshots & (1 << id) != 0 {
                        doomed |= snapshot.live;
                    } else if !snapshot.expired {
                        kept |= snapshot.live;
                    }
                }
                let guard = state.head;
                state.reaper = Reaper { phase: ReaperPhase::Journaled, guard, snapshots, files: doomed & !kept };
            }
            Action::ReaperExpires => {
                if state.reaper.guard != state.head && self.keeps(Rule::ExpireGuard) {
                    state.reaper = Reaper { phase: ReaperPhase::Done, ..REAPER_IDLE };
                    return;
                }
                for id in 0..state.snapshots.len() {
                    if state.reaper.snapshots & (1 << id) != 0 {
                        state.snapshots[id].expired = true;
                    }
                }
            }
            Action::ReaperVerifies => {
                // All planned snapshots are gone, and no planned file is named by what is there now.
                let gone = (0..state.snapshots.len())
                    .all(|id| state.reaper.snapshots & (1 << id) == 0 || state.snapshots[id].expired);
                let mut named: Files = state.pending as Files;
                for snapshot in state.snapshots.iter().filter(|snapshot| !snapshot.expired) {
                    named |= snapshot.live;
                }
                if self.keeps(Rule::Verify) && (!gone || named & state.reaper.files != 0) {
                    state.reaper = Reaper { phase: ReaperPhase::Done, ..REAPER_IDLE };
                } else {
                    state.reaper.phase = ReaperPhase::Verified;
                }
            }
            Action::ReaperDeletes(number) => {
                state.disk &= !file(number);
                if state.reaper.files & state.disk == 0 {
                    state.reaper = Reaper { phase: ReaperPhase::Done, ..REAPER_IDLE };
                }
            }
            Action::ReaperCrashes => {
                // The journal says where it was.
                state.reaper.phase = ReaperPhase::Journaled;
                state.spent.crashes += 1;
            }
            _ => {}
        }
    }
}
