//! Checks every interleaving of the commit protocol within bounds, and that each rule is needed:
//! docs/maintain/model.md.
//!
//!     cargo run --release              all scenarios, then each rule left out
//!     cargo run --release -- NAME      one scenario
//!     cargo run --release -- rules     each rule left out; with names, only these
//!     cargo run --release -- reduced   whether the reduced search leaves nothing out; with names, only these scenarios
//!     cargo run --release -- finer     the small scenarios with the finer steps of the code (finer.rs)
//!     cargo run --release --features long -- trace FILE     recorded runs of the code

mod compare;
mod events;
mod finer;
mod interleaved;
mod protocol;
mod scenarios;
mod search;
mod state;
mod trace;

use protocol::{Action, Protocol, RULES};
use scenarios::{scenarios, shown_in};
use search::Search;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

fn check(protocol: Protocol) -> (usize, Option<(String, String)>) {
    if protocol.reduced {
        let search = Search::of(&protocol);
        let found = search.run(|_| {});
        return (search.states(), found.map(|(name, steps)| (name.to_string(), in_words(&steps))));
    }
    let checker = protocol.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discoveries().into_iter().next();
    let story = found.map(|(name, path)| (name.to_string(), in_words(&path.into_actions())));
    (checker.unique_state_count(), story)
}

fn in_words(steps: &[Action]) -> String {
    let steps: Vec<String> = steps.iter().map(|action| format!("{action:?}")).collect();
    steps.join(" ")
}

/// Follows the runs in a file; the exit code.
fn trace(file: &str) -> i32 {
    let text = std::fs::read_to_string(file).expect("the file of runs");
    match trace::follow(&text) {
        Ok(runs) => {
            let events: usize = runs.iter().map(|run| run.events).sum();
            let widest = runs.iter().map(|run| run.widest).max().unwrap_or(0);
            println!("{} runs accepted: {events} events, at most {widest} states at once", runs.len());
            0
        }
        Err(why) => {
            println!("{why}");
            1
        }
    }
}

/// Every interleaving with the finer steps of the code, in the scenarios that are small enough; the exit code.
fn finer() -> i32 {
    let mut failed = false;
    for protocol in scenarios().into_iter().filter(|protocol| interleaved::SMALL.contains(&protocol.name)) {
        let name = protocol.name;
        let model = interleaved::Finer(protocol);
        let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        println!("{name:<10} {:>12} states, finer", checker.unique_state_count());
        for (property, path) in checker.discoveries() {
            println!("    FALSE: {property}\n    {:?}", path.into_actions());
            failed = true;
        }
    }
    i32::from(failed)
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted == ["finer"] {
        std::process::exit(finer());
    }
    if wanted.first().is_some_and(|first| first == "reduced") {
        std::process::exit(compare::compare(&wanted[1..]));
    }
    if let [command, file] = wanted.as_slice() {
        if command == "trace" {
            std::process::exit(trace(file));
        }
    }
    let mut failed = false;
    for protocol in scenarios() {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == protocol.name) {
            continue;
        }
        let began = Instant::now();
        let (states, story) = check(protocol.clone());
        println!("{:<10} {:>12} states {:>7.1} s", protocol.name, states, began.elapsed().as_secs_f64());
        if let Some((property, steps)) = story {
            println!("    FALSE: {property}\n    {steps}");
            failed = true;
        }
    }
    if wanted.first().is_none_or(|first| first == "rules") {
        for rule in RULES {
            if wanted.len() > 1 && !wanted.contains(&format!("{rule:?}")) {
                continue;
            }
            let name = shown_in(rule);
            let found = scenarios().into_iter().find(|protocol| protocol.name == name);
            let found = found.and_then(|protocol| check(Protocol { broken: Some(rule), ..protocol }).1);
            match found {
                Some((property, steps)) => println!("without {rule:?}: {property} is false ({name})\n    {steps}"),
                None => {
                    println!("without {rule:?}: NOTHING FOUND");
                    failed = true;
                }
            }
        }
    }
    std::process::exit(i32::from(failed));
}
