//! The steps of the code, as steps of the model.
//!
//! In six things the code's bookkeeper is finer than the model's. It may use the view that it remembers, without a load;
//! it may load again, or list and load again, before it commits; it reads txlogs one after the other; it writes marks.json
//! after a load only before it deletes; it ticks where nothing is pending; and retention drops any number of files, as the
//! reaper expires any of the snapshots that may go.

use crate::protocol::{Action, Protocol};
use crate::state::*;
use stateright::Model;

pub type Refusal = String;

/// A state of the model, and what bookkeepers remember beside it.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub struct Known {
    pub state: State,
    pub keepers: [Memory; BOOKKEEPERS],
}

#[derive(Clone, Copy, Debug, Default, Hash, PartialEq, Eq)]
pub struct Memory {
    /// the view of the last load or commit
    pub view: Option<(SnapshotId, Marks)>,
    /// marks.json may be older than the view
    pub uncopied: bool,
    /// txlogs that this tick looked for, and those that were there
    pub sought: Slots,
    pub there: Slots,
}

pub type Step = Result<Known, Refusal>;

pub fn refuse<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(why.into())
}

impl Known {
    pub fn of(state: State) -> Known {
        Known { state, keepers: [Memory::default(); BOOKKEEPERS] }
    }

    /// The state after an action of the model, which must be one of those that are possible.
    pub fn act(&self, protocol: &Protocol, action: Action) -> Step {
        let mut actions = vec![];
        protocol.actions(&self.state, &mut actions);
        if !actions.contains(&action) {
            return refuse(format!("the model cannot take {action:?}"));
        }
        self.forced(protocol, action)
    }

    /// The same without asking whether the model leaves this step out as one that changes nothing.
    pub fn forced(&self, protocol: &Protocol, action: Action) -> Step {
        let state = protocol.next_state(&self.state, action).unwrap_or_else(|| self.state.clone());
        let mut after = Known { state, ..self.clone() };
        after.state.spent = Spent::default();
        Ok(after)
    }

    pub fn phase(&self, b: usize) -> Phase {
        self.state.bookkeepers[b].phase
    }

    /// Steps that no call of storage or catalog shows.
    pub fn hidden(&self, protocol: &Protocol) -> Vec<Known> {
        (0..BOOKKEEPERS).filter_map(|b| self.hidden_of(protocol, b)).collect()
    }

    fn hidden_of(&self, protocol: &Protocol, b: usize) -> Option<Known> {
        let keeper = &self.state.bookkeepers[b];
        match keeper.phase {
            Phase::Listed if !keeper.twice => self.remembers(b),
            Phase::Loaded => {
                let mut after = self.act(protocol, Action::Copies(b)).ok()?;
                if after.state.copy != self.state.copy {
                    after.state.copy = self.state.copy;
                    after.keepers[b].uncopied = true;
                }
                Some(after)
            }
            Phase::Copied => {
                let after = self.plans(protocol, b)?;
                // Where it doubts, the second listing is an event.
                (after.phase(b) == Phase::Planned).then_some(after)
            }
            Phase::Planned if keeper.batch == 0 && !self.keepers[b].uncopied => {
                self.act(protocol, Action::Sends(b)).ok()
            }
            Phase::Committed => {
                let after = self.act(protocol, Action::CopiesAfterCommit(b)).ok()?;
                (after.state.copy == self.state.copy).then_some(after)
            }
            _ => None,
        }
    }

    /// A plan is made of what was read, each txlog at its own time.
    pub fn plans(&self, protocol: &Protocol, b: usize) -> Option<Known> {
        let (keeper, memory) = (&self.state.bookkeepers[b], &self.keepers[b]);
        if members(keeper.found & !memory.sought).any(|slot| !keeper.marks.is_in(slot)) {
            return None;
        }
        let mut seen = self.clone();
        seen.state.pending = self.state.pending & !memory.sought | memory.there;
        let mut after = seen.act(protocol, Action::Plans(b)).ok()?;
        after.state.pending = self.state.pending;
        Some(after)
    }

    pub fn remembers(&self, b: usize) -> Option<Known> {
        let (head, marks) = self.keepers[b].view?;
        let mut after = self.clone();
        let keeper = &mut after.state.bookkeepers[b];
        (keeper.head, keeper.marks, keeper.phase) = (head, marks, Phase::Loaded);
        Some(after)
    }

    /// The tick is over, or the process is: what was sent may arrive later.
    pub fn ends(&self, b: usize, dies: bool) -> Known {
        let mut after = self.clone();
        after.state.disown(b);
        after.state.bookkeepers[b] = IDLE;
        let view = if dies { None } else { self.keepers[b].view };
        after.keepers[b] = Memory { view, ..Memory::default() };
        after
    }
}
