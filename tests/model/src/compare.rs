//! Whether the reduced search (protocol/reduced.rs) leaves nothing out: each state of the whole one has one that stands
//! for it there.

use crate::protocol::{Action, Protocol};
use crate::scenarios::{scenarios, small};
use crate::search::Search;
use crate::state::State;
use stateright::{Model, Property};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Requests that wait to be sent are sent at once there: there is room for them.
const NETWORK: usize = 6;

/// The whole search, but for a reaper that gives up or is killed.
struct Whole(Protocol);

impl Model for Whole {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.0.init_states()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.0.actions(state, actions);
        actions.retain(|&action| !self.0.reaper_does_less(state, action));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.0.next_state(state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![]
    }
}

/// Whether a state stands for this one, or for one in which as much is so and more may still happen.
fn is_in(reduced: &Search<Protocol>, protocol: &Protocol, state: &State) -> bool {
    let found = |crashes: u8, retained: u8| {
        let mut state = state.clone();
        let Some(crashes) = state.spent.crashes.checked_sub(crashes) else { return false };
        let Some(retained) = state.spent.retained.checked_sub(retained) else { return false };
        (state.spent.crashes, state.spent.retained) = (crashes, retained);
        reduced.contains(&protocol.settled(state))
    };
    found(0, 0) || found(1, 0) || found(0, 1) || found(1, 1)
}

/// All scenarios that can be searched whole, or these; the exit code.
pub fn compare(names: &[String]) -> i32 {
    let mut failed = false;
    for whole in scenarios().into_iter().filter(|protocol| !protocol.reduced).chain([small()]) {
        if !names.is_empty() && !names.iter().any(|name| name == whole.name) {
            continue;
        }
        let protocol = Protocol { reduced: true, network: NETWORK, ..whole.clone() };
        let reduced = Search::of(&protocol);
        let falsified = reduced.run(|_| {});
        let (whole, missing) = (Whole(whole), AtomicUsize::new(0));
        let all = Search::of(&whole);
        all.run(|state| {
            if !is_in(&reduced, &protocol, state) && missing.fetch_add(1, Ordering::Relaxed) == 0 {
                println!("    NOT FOUND: {state:?}");
            }
        });
        let (few, missing) = (reduced.states(), missing.into_inner());
        println!("{:<10} {:>12} states, {few:>9} reduced, {missing} not found", protocol.name, all.states());
        failed |= missing != 0 || falsified.is_some();
    }
    i32::from(failed)
}
