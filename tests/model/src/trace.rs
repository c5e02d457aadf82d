//! Follows recorded runs of the code (tests/simulation/trace.py): each event must be a step of the model.
//!
//! What a run does not show (decisions) is searched: the checker keeps every state of the model that fits the events so
//! far. An event that fits none of them is refused, and so is one after which a property is false.

use crate::finer::{Known, Refusal};
use crate::protocol::Protocol;
use crate::scenarios::scenarios;
use crate::state::*;
use serde_json::Value;
use std::collections::HashSet;
use stateright::Model;

/// What became of one run: how many events it has, and how many states fitted at most.
pub struct Followed {
    pub events: usize,
    pub widest: usize,
}

/// Bounds that no recorded run meets.
fn protocol() -> Protocol {
    let one = Spent { published: 1, reappeared: 1, foreign: 1, rolled_back: 1, ..Spent::default() };
    let all: &'static [usize] = Box::leak((0..INCARNATIONS).collect());
    Protocol {
        name: "trace",
        incarnations: all,
        bookkeepers: BOOKKEEPERS,
        snapshots: NONE as usize - 2,
        network: 250,
        most: one,
        reaper: true,
        rewrite: true,
        ..scenarios().remove(0)
    }
}

/// All runs of a file, each with a header; the first event that is refused, as text.
pub fn follow(text: &str) -> Result<Vec<Followed>, String> {
    let mut protocol = protocol();
    let mut runs = Vec::<Followed>::new();
    let mut known = HashSet::<Known>::new();
    let mut run = Value::Null;
    for (number, line) in text.lines().enumerate() {
        let refused = |why: String| format!("line {}: {line}\n    refused: {why}", number + 1);
        let event: Value = serde_json::from_str(line).map_err(|error| refused(error.to_string()))?;
        if !event["run"].is_null() {
            let (incarnations, sequences) = (&event["incarnations"], &event["sequences"]);
            if incarnations != INCARNATIONS || sequences != SEQUENCES {
                return Err(refused(format!("this binary has {INCARNATIONS} incarnations of {SEQUENCES} sequences")));
            }
            known = HashSet::from([Known::of(protocol.init_states().remove(0))]);
            runs.push(Followed { events: 0, widest: 1 });
            run = event["run"].clone();
            continue;
        }
        if event["do"] == "list" {
            protocol.oldest_first = older(&protocol.oldest_first, &event["found"]);
        }
        let Some(followed) = runs.last_mut() else { return Err(refused("a run begins with its header".to_string())) };
        known = next(&protocol, known, &event).map_err(|why| format!("run {run}, {}", refused(why)))?;
        followed.events += 1;
        followed.widest = followed.widest.max(known.len());
    }
    Ok(runs)
}

/// The order of all txlogs, with that of a listing.
fn older(before: &[usize], listed: &Value) -> Vec<usize> {
    let now: Vec<usize> = listed.as_array().into_iter().flatten().filter_map(Value::as_u64).map(|n| n as usize).collect();
    let kept = before.iter().copied().filter(|slot| !now.contains(slot));
    kept.chain(now.iter().copied()).collect()
}

fn next(protocol: &Protocol, known: HashSet<Known>, event: &Value) -> Result<HashSet<Known>, String> {
    let mut after = HashSet::new();
    let mut reasons = Vec::<Refusal>::new();
    for state in closed(protocol, known) {
        match state.take(protocol, event) {
            Ok(taken) => after.insert(taken),
            Err(why) => {
                reasons.push(why);
                false
            }
        };
    }
    for property in protocol.properties() {
        if after.iter().any(|known| !(property.condition)(protocol, &known.state)) {
            return Err(format!("{} is false", property.name));
        }
    }
    if after.is_empty() {
        reasons.sort();
        reasons.dedup();
        return Err(reasons.join("; or "));
    }
    Ok(after)
}

/// These states, and those that hidden steps lead to.
fn closed(protocol: &Protocol, known: HashSet<Known>) -> HashSet<Known> {
    let mut left: Vec<Known> = known.iter().cloned().collect();
    let mut found = known;
    while let Some(state) = left.pop() {
        for hidden in state.hidden(protocol) {
            if found.insert(hidden.clone()) {
                left.push(hidden);
            }
        }
    }
    found
}
