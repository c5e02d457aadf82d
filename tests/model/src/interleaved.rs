//! Every interleaving with the finer steps of the code (finer.rs): they keep each promise, too.

use crate::finer::{Known, Memory};
use crate::protocol::{self, Protocol};
use crate::state::*;
use stateright::{Model, Property};

/// Scenarios that stay small with these steps.
pub const SMALL: [&str; 1] = ["listings"];
/// So many finer steps may happen.
const MOST: u8 = 2;

pub struct Finer(pub Protocol);

#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub struct Interleaved {
    known: Known,
    taken: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Coarse(protocol::Action),
    /// uses the view of an earlier tick
    Remembers(usize),
    /// marks.json is left for later
    Defers(usize),
    CopiesLate(usize),
    LoadsAgain(usize),
    LooksAgain(usize),
    /// reads what it found, some time before it plans
    Reads(usize),
    /// ticks where nothing is pending
    ListsNothing(usize),
}

impl Finer {
    fn may(&self, known: &Known, action: protocol::Action) -> bool {
        match action {
            protocol::Action::DeletesCommitted(b, _) => !known.keepers[b].uncopied,
            protocol::Action::Sends(b) => !known.keepers[b].uncopied || known.state.bookkeepers[b].batch != 0,
            _ => true,
        }
    }

    fn finer_actions(&self, last: &Interleaved, b: usize, actions: &mut Vec<Action>) {
        let (state, memory) = (&last.known.state, &last.known.keepers[b]);
        let keeper = &state.bookkeepers[b];
        if memory.uncopied && keeper.phase == Phase::Copied {
            actions.push(Action::CopiesLate(b));
        }
        if last.taken == MOST {
            return;
        }
        match keeper.phase {
            Phase::Idle if state.pending == 0 => actions.push(Action::ListsNothing(b)),
            Phase::Listed if !keeper.twice && memory.view.is_some_and(|view| view != (state.head, state.marks)) => {
                actions.push(Action::Remembers(b))
            }
            Phase::Loaded => actions.extend([Action::Defers(b), Action::LoadsAgain(b), Action::LooksAgain(b)]),
            Phase::Copied if memory.sought == 0 => {
                actions.extend([Action::Reads(b), Action::LoadsAgain(b), Action::LooksAgain(b)])
            }
            Phase::Copied | Phase::Planned => actions.extend([Action::LoadsAgain(b), Action::LooksAgain(b)]),
            _ => {}
        }
    }

    fn coarse(&self, known: &Known, action: protocol::Action) -> Option<Known> {
        if let protocol::Action::Plans(b) = action {
            if known.keepers[b].sought != 0 {
                let mut after = known.plans(&self.0, b)?;
                after.state.spent = known.state.spent;
                return Some(after);
            }
        }
        let state = self.0.next_state(&known.state, action)?;
        let mut after = Known { state, keepers: known.keepers };
        for b in 0..BOOKKEEPERS {
            let (was, now) = (known.phase(b), after.state.bookkeepers[b]);
            let memory = &mut after.keepers[b];
            match action {
                protocol::Action::Crashes(other) if other == b => *memory = Memory::default(),
                protocol::Action::Loads(other) if other == b && now.phase == Phase::Loaded => {
                    *memory = Memory { view: Some((now.head, now.marks)), ..Memory::default() }
                }
                protocol::Action::Hears(other) if other == b && now.phase == Phase::Committed => {
                    memory.view = Some((now.marks.snapshot, now.marks))
                }
                protocol::Action::Copies(other) if other == b => memory.uncopied = false,
                _ => {}
            }
            if was != Phase::Idle && now.phase == Phase::Idle {
                *memory = Memory { view: memory.view, ..Memory::default() };
            }
        }
        Some(after)
    }

    fn again(&self, known: &Known, b: usize) -> Known {
        let mut after = known.clone();
        let keeper = known.state.bookkeepers[b];
        let (found, first_found, twice) = (keeper.found, keeper.first_found, keeper.twice);
        after.state.bookkeepers[b] = Bookkeeper { phase: Phase::Listed, found, first_found, twice, ..IDLE };
        after.keepers[b].uncopied = false;
        after
    }
}

impl Model for Finer {
    type State = Interleaved;
    type Action = Action;

    fn init_states(&self) -> Vec<Interleaved> {
        let states = self.0.init_states().into_iter();
        states.map(|state| Interleaved { known: Known::of(state), taken: 0 }).collect()
    }

    fn actions(&self, last: &Interleaved, actions: &mut Vec<Action>) {
        let mut coarse = vec![];
        self.0.actions(&last.known.state, &mut coarse);
        actions.extend(coarse.into_iter().filter(|&action| self.may(&last.known, action)).map(Action::Coarse));
        for b in 0..self.0.bookkeepers {
            self.finer_actions(last, b, actions);
        }
    }

    fn next_state(&self, last: &Interleaved, action: Action) -> Option<Interleaved> {
        let known = &last.known;
        let mut after = match action {
            Action::Coarse(action) => self.coarse(known, action)?,
            Action::Remembers(b) => known.remembers(b)?,
            Action::Defers(b) => {
                let mut after = known.clone();
                after.state.bookkeepers[b].phase = Phase::Copied;
                after.keepers[b].uncopied = true;
                after
            }
            Action::CopiesLate(b) => {
                let mut before = known.clone();
                before.state.bookkeepers[b].phase = Phase::Loaded;
                self.coarse(&before, protocol::Action::Copies(b))?
            }
            Action::LoadsAgain(b) => self.again(known, b),
            Action::LooksAgain(b) => {
                let mut after = self.again(known, b);
                let pending = after.state.pending;
                let keeper = &mut after.state.bookkeepers[b];
                (keeper.found, keeper.twice) = (pending, true);
                after
            }
            Action::Reads(b) => {
                let mut after = known.clone();
                let found = known.state.bookkeepers[b].found;
                (after.keepers[b].sought, after.keepers[b].there) = (found, found & known.state.pending);
                after
            }
            Action::ListsNothing(b) => self.coarse(known, protocol::Action::Lists(b))?,
        };
        let counts = !matches!(action, Action::Coarse(_) | Action::CopiesLate(_));
        let taken = last.taken + u8::from(counts);
        if taken == MOST {
            // What no further step asks for tells no states apart.
            after.keepers.iter_mut().for_each(|memory| memory.view = None);
        }
        Some(Interleaved { known: after, taken })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::<Self>::always("each promise", |model, last| {
            let properties = model.0.properties();
            properties.iter().all(|property| (property.condition)(&model.0, &last.known.state))
        })]
    }
}
