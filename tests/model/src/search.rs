//! A search of all states, breadth first, for scenarios that are too large for stateright's: of each state it keeps a
//! fingerprint, and that of the state before it. In every other scenario it finds as many states as stateright does.

use ahash::RandomState;
use stateright::Model;
use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

const THREADS: usize = 2;
const SHARDS: usize = 256;
/// So many states a thread takes at once.
const CHUNK: usize = 1024;

/// The bytes of a state, which are hashed at once.
struct Bytes {
    all: [u8; 1024],
    length: usize,
}

impl Hasher for Bytes {
    fn finish(&self) -> u64 {
        RandomState::with_seeds(1, 2, 3, 4).hash_one(&self.all[..self.length])
    }

    fn write(&mut self, bytes: &[u8]) {
        self.all[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

pub fn fingerprint(state: &impl Hash) -> u64 {
    let mut bytes = Bytes { all: [0; 1024], length: 0 };
    state.hash(&mut bytes);
    bytes.finish()
}

/// Fingerprints are spread evenly as they are.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a fingerprint is one number")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

type Parents = HashMap<u64, u64, BuildHasherDefault<AsItIs>>;

pub struct Search<'a, M: Model> {
    model: &'a M,
    seen: Vec<Mutex<Parents>>,
}

/// A property that is false, and the fingerprint of the state.
type Falsified = Option<(&'static str, u64)>;

impl<M> Search<'_, M>
where
    M: Model + Sync,
    M::State: Hash + Send + Sync,
    M::Action: Clone,
{
    pub fn of(model: &M) -> Search<'_, M> {
        Search { model, seen: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, fingerprint: u64) -> &Mutex<Parents> {
        // The table within a shard uses the lowest bits and the highest ones.
        &self.seen[(fingerprint >> 40) as usize % SHARDS]
    }

    fn parent(&self, fingerprint: u64) -> Option<u64> {
        self.shard(fingerprint).lock().unwrap().get(&fingerprint).copied()
    }

    pub fn contains(&self, state: &M::State) -> bool {
        self.parent(fingerprint(state)).is_some()
    }

    pub fn states(&self) -> usize {
        self.seen.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }

    fn is_new(&self, fingerprint: u64, parent: u64) -> bool {
        match self.shard(fingerprint).lock().unwrap().entry(fingerprint) {
            Entry::Vacant(entry) => {
                entry.insert(parent);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Visits every state, until a property is false; that, and a shortest way there.
    pub fn run(&self, visit: impl Fn(&M::State) + Sync) -> Option<(&'static str, Vec<M::Action>)> {
        let mut level = self.model.init_states();
        for state in &level {
            self.is_new(fingerprint(state), 0);
        }
        while !level.is_empty() {
            let at = AtomicUsize::new(0);
            let parts: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| self.expand(&level, &at, &visit))).collect();
                threads.into_iter().map(|thread| thread.join().expect("a thread of the search")).collect()
            });
            level = vec![];
            for (states, falsified) in parts {
                if let Some((property, fingerprint)) = falsified {
                    return Some((property, self.way_to(fingerprint)));
                }
                level.extend(states);
            }
        }
        None
    }

    fn expand(
        &self,
        level: &[M::State],
        at: &AtomicUsize,
        visit: &(impl Fn(&M::State) + Sync),
    ) -> (Vec<M::State>, Falsified) {
        let properties = self.model.properties();
        let (mut next, mut actions) = (vec![], vec![]);
        loop {
            let from = at.fetch_add(CHUNK, Ordering::Relaxed);
            if from >= level.len() {
                return (next, None);
            }
            for state in &level[from..level.len().min(from + CHUNK)] {
                visit(state);
                let before = fingerprint(state);
                if let Some(property) = properties.iter().find(|property| !(property.condition)(self.model, state)) {
                    return (next, Some((property.name, before)));
                }
                self.model.actions(state, &mut actions);
                for action in actions.drain(..) {
                    let Some(after) = self.model.next_state(state, action) else { continue };
                    if self.is_new(fingerprint(&after), before) {
                        next.push(after);
                    }
                }
            }
        }
    }

    fn way_to(&self, last: u64) -> Vec<M::Action> {
        let mut way = vec![last];
        while let Some(parent) = self.parent(way[way.len() - 1]).filter(|&parent| parent != 0) {
            way.push(parent);
        }
        let (mut steps, mut state) = (vec![], self.model.init_states().remove(0));
        for &wanted in way.iter().rev().skip(1) {
            let mut actions = vec![];
            self.model.actions(&state, &mut actions);
            let step = actions.into_iter().find_map(|action| {
                let after = self.model.next_state(&state, action.clone())?;
                (fingerprint(&after) == wanted).then_some((action, after))
            });
            let (action, after) = step.expect("a step between two states that were found");
            steps.push(action);
            state = after;
        }
        steps
    }
}
