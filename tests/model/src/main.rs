//! Checks every interleaving of the commit protocol within bounds, and that each rule is needed (docs/model.md).
//!
//!     cargo run --release              all scenarios, then each rule left out
//!     cargo run --release -- NAME      one scenario
//!     cargo run --release -- rules     each rule left out; with names, only these
//!     cargo run --release -- finer     the small scenarios with the finer steps of the code (finer.rs)
//!     cargo run --release --features long -- trace FILE     recorded runs of the code

mod events;
mod finer;
mod interleaved;
mod protocol;
mod scenarios;
mod state;
mod trace;

use protocol::{Protocol, RULES};
use scenarios::{scenarios, shown_in};
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

fn check(protocol: Protocol) -> (usize, Option<(String, String)>) {
    let checker = protocol.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discoveries().into_iter().next();
    let story = found.map(|(name, path)| {
        let steps: Vec<String> = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
        (name.to_string(), steps.join(" "))
    });
    (checker.unique_state_count(), story)
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
