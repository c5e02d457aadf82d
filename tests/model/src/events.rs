//! The events of a recorded run, each as a step.

use crate::finer::{refuse, Known, Memory, Refusal, Step};
use crate::protocol::{Action, Protocol};
use crate::state::*;
use serde_json::Value;

fn number(event: &Value, key: &str) -> Result<usize, Refusal> {
    match event[key].as_u64() {
        Some(number) => Ok(number as usize),
        None => refuse(format!("it has no number {key}")),
    }
}

fn slots(event: &Value, key: &str) -> Slots {
    let listed = event[key].as_array().into_iter().flatten().filter_map(Value::as_u64);
    listed.fold(0, |all, slot| all | bit(slot as usize))
}

fn snapshot(value: &Value) -> SnapshotId {
    value.as_u64().map_or(NONE, |id| id as SnapshotId)
}

/// What differs between the marks of an event and those of the model.
fn difference(event: &Value, marks: &Marks, with_snapshot: bool) -> Option<String> {
    let told = &event["marks"];
    for i in 0..INCARNATIONS {
        let last = told["last"][i.to_string()].as_u64().unwrap_or(0);
        if last != marks.last[i] as u64 {
            return Some(format!("the marks have last {last} of incarnation {i}, the model has {}", marks.last[i]));
        }
    }
    if slots(told, "holes") != marks.holes {
        let expected: Vec<usize> = members(marks.holes).collect();
        return Some(format!("the marks have holes {}, the model has {expected:?}", told["holes"]));
    }
    if told["position"].as_u64().unwrap_or(0) != marks.position as u64 {
        return Some(format!("the marks have position {}, the model has {}", told["position"], marks.position));
    }
    if with_snapshot && snapshot(&told["snapshot"]) != marks.snapshot {
        return Some(format!("the marks are of snapshot {}, the model's of {}", told["snapshot"], marks.snapshot));
    }
    None
}

impl Known {
    /// The state after an event of a run.
    pub fn take(&self, protocol: &Protocol, event: &Value) -> Step {
        match event["do"].as_str().unwrap_or("") {
            "writer-lists" => self.act(protocol, Action::WriterLists(number(event, "i")?)),
            "writer-starts" => self.writer_starts(protocol, event),
            "file" => self.file(protocol, number(event, "slot")?),
            "put" => self.put(protocol, number(event, "slot")?),
            "tick" if self.phase(number(event, "b")?) == Phase::Idle => Ok(self.clone()),
            "list" => self.lists(protocol, event),
            "read" => self.reads(event),
            "load" => self.loads(protocol, event),
            "copy" => self.copies(protocol, event),
            "send" => self.sends(protocol, event),
            "swap" => self.swaps(protocol, event),
            "answer" => self.answered(protocol, event),
            "reject" => self.act(protocol, Action::Rejects(number(event, "b")?, number(event, "slot")?)),
            "unpend" => self.unpends(protocol, event),
            "rest" => Ok(self.ends(number(event, "b")?, false)),
            "die" => Ok(self.ends(number(event, "b")?, true)),
            "expire" => self.expires(protocol, event),
            "gone" => self.loses(protocol, number(event, "slot")?),
            "append" => self.act(protocol, Action::ForeignAppends),
            "rollback" => self.rolls_back(protocol, event),
            other => refuse(format!("the model has no step {other:?} here")),
        }
    }

    fn writer_starts(&self, protocol: &Protocol, event: &Value) -> Step {
        let i = number(event, "i")?;
        let after = self.act(protocol, Action::WriterStarts(i))?;
        let Writer::Running { from, .. } = after.state.writers[i] else { return refuse("it does not start") };
        match event["from"].as_u64() {
            Some(told) if has_positions(i) && told != from as u64 => {
                refuse(format!("it starts at position {told}, the model's writer at {from}"))
            }
            _ => Ok(after),
        }
    }

    fn file(&self, protocol: &Protocol, slot: usize) -> Step {
        let after = self.act(protocol, Action::WritesFile(incarnation(slot)))?;
        if after.state.disk & !self.state.disk != 1 << slot {
            return refuse("the model's writer writes another file");
        }
        Ok(after)
    }

    fn put(&self, protocol: &Protocol, slot: usize) -> Step {
        if self.state.published & bit(slot) != 0 {
            return self.act(protocol, Action::Reappears(slot));
        }
        let after = self.act(protocol, Action::Publishes(incarnation(slot)))?;
        if after.state.pending & !self.state.pending != bit(slot) {
            return refuse("the model's writer publishes another txlog");
        }
        Ok(after)
    }

    fn lists(&self, protocol: &Protocol, event: &Value) -> Step {
        let (b, found) = (number(event, "b")?, slots(event, "found"));
        if found != self.state.pending {
            let there: Vec<usize> = members(self.state.pending).collect();
            return refuse(format!("pending/ holds {there:?}"));
        }
        match self.phase(b) {
            Phase::Idle => self.forced(protocol, Action::Lists(b)),
            Phase::Loaded | Phase::Copied | Phase::Planned => {
                let mut after = self.clone();
                let keeper = &mut after.state.bookkeepers[b];
                (keeper.found, keeper.twice, keeper.phase) = (found, true, Phase::Listed);
                Ok(after)
            }
            phase => refuse(format!("no listing in phase {phase:?}")),
        }
    }

    fn reads(&self, event: &Value) -> Step {
        let (b, slot) = (number(event, "b")?, number(event, "slot")?);
        let there = event["there"] == true;
        if there != (self.state.pending & bit(slot) != 0) {
            return refuse("pending/ holds something else");
        }
        let mut after = self.clone();
        let memory = &mut after.keepers[b];
        memory.sought |= bit(slot);
        memory.there = memory.there & !bit(slot) | if there { bit(slot) } else { 0 };
        Ok(after)
    }

    fn loads(&self, protocol: &Protocol, event: &Value) -> Step {
        let (b, state) = (number(event, "b")?, &self.state);
        if snapshot(&event["head"]) != state.head {
            return refuse(format!("main is {}", state.head));
        }
        if let Some(why) = difference(event, &state.marks, true) {
            return refuse(why);
        }
        let mut after = self.clone();
        after.keepers[b].view = Some((state.head, state.marks));
        after.keepers[b].uncopied = false;
        match self.phase(b) {
            Phase::Idle | Phase::Settling => Ok(after),
            Phase::Committed => refuse("marks.json is written first"),
            Phase::Sent => refuse("the answer comes first"),
            _ => {
                after.state.bookkeepers[b].phase = Phase::Listed;
                after.act(protocol, Action::Loads(b))
            }
        }
    }

    fn copies(&self, protocol: &Protocol, event: &Value) -> Step {
        let b = number(event, "b")?;
        let mut after = match self.phase(b) {
            Phase::Loaded => self.act(protocol, Action::Copies(b))?,
            Phase::Copied | Phase::Planned => {
                let mut before = self.clone();
                before.state.bookkeepers[b].phase = Phase::Loaded;
                let mut after = before.act(protocol, Action::Copies(b))?;
                after.state.bookkeepers[b].phase = self.phase(b);
                after
            }
            Phase::Committed => self.act(protocol, Action::CopiesAfterCommit(b))?,
            phase => return refuse(format!("marks.json is not written in phase {phase:?}")),
        };
        after.keepers[b].uncopied = false;
        match difference(event, &after.state.copy.1, true) {
            Some(why) => refuse(why),
            None => Ok(after),
        }
    }

    fn sends(&self, protocol: &Protocol, event: &Value) -> Step {
        let b = number(event, "b")?;
        let keeper = &self.state.bookkeepers[b];
        match (keeper.phase, self.keepers[b].view) {
            (Phase::Sent, _) => refuse("the answer comes first"),
            // A renewal and retention follow each other; marks.json is written once, after both.
            (Phase::Committed, _) if keeper.batch != 0 => refuse("marks.json is written first"),
            (Phase::Planned, _) if keeper.batch != 0 => match difference(event, &keeper.marks, false) {
                Some(why) => refuse(why),
                None => self.act(protocol, Action::Sends(b)),
            },
            (_, Some((base, marks))) => match difference(event, &marks, false) {
                Some(why) => refuse(format!("no batch is planned, and {why}")),
                None => Ok(self.retains(protocol, b, base, marks)),
            },
            (phase, None) => refuse(format!("nothing is sent in phase {phase:?}")),
        }
    }

    /// What follows a batch: retention, or an empty commit that renews the marks. Which files it removes, the swap says.
    fn retains(&self, protocol: &Protocol, b: usize, base: SnapshotId, marks: Marks) -> Known {
        let mut after = self.clone();
        after.state.bookkeepers[b] = Bookkeeper { marks, ..IDLE };
        let request = Request { from: b as u8, base, marks, ..NO_REQUEST };
        protocol.send(&mut after.state, b, request);
        after
    }

    fn swaps(&self, protocol: &Protocol, event: &Value) -> Step {
        let mut why = "nothing was sent".to_string();
        // One that arrives late is of a sender that waits no more.
        let from = event["b"].as_u64().unwrap_or(BOOKKEEPERS as u64);
        let sent = self.state.network.iter().enumerate().filter(|(_, request)| request.from as u64 == from);
        for (index, request) in sent {
            if request.reply.is_some() || request.adds != slots(event, "adds") {
                why = format!("a commit of {:?} was sent", members(request.adds).collect::<Vec<_>>());
                continue;
            }
            let removes = slots(event, "removes") as Files;
            if removes != 0 && (request.adds != 0 || removes & !self.state.live(self.state.head) != 0) {
                why = "these files are not removed by it".to_string();
                continue;
            }
            let mut before = self.clone();
            before.state.network[index].removes = removes;
            let after = before.act(protocol, Action::Applies(index))?;
            if after.state.head == self.state.head {
                why = "the guard on main refuses it".to_string();
                continue;
            }
            match difference(event, &after.state.marks, true) {
                Some(differs) => why = differs,
                None => return Ok(after),
            }
        }
        refuse(why)
    }

    fn answered(&self, protocol: &Protocol, event: &Value) -> Step {
        let b = number(event, "b")?;
        if self.phase(b) != Phase::Sent {
            return refuse("nothing was sent");
        }
        if event["ok"] == true {
            let mut after = self.act(protocol, Action::Hears(b))?;
            let keeper = after.state.bookkeepers[b];
            if keeper.phase != Phase::Committed {
                return refuse("it is not in");
            }
            after.keepers[b].view = Some((keeper.marks.snapshot, keeper.marks));
            return Ok(after);
        }
        // It goes on with what it listed, after another load.
        let keeper = self.state.bookkeepers[b];
        let mut after = self.ends(b, true);
        after.keepers[b] = Memory { view: None, uncopied: false, ..self.keepers[b] };
        let again = Bookkeeper { phase: Phase::Listed, twice: keeper.twice, found: keeper.found, ..IDLE };
        after.state.bookkeepers[b] = Bookkeeper { first_found: keeper.first_found, ..again };
        Ok(after)
    }

    fn unpends(&self, protocol: &Protocol, event: &Value) -> Step {
        let (b, slot) = (number(event, "b")?, number(event, "slot")?);
        if self.keepers[b].uncopied {
            return refuse("marks.json is older than the marks by which it goes");
        }
        self.act(protocol, Action::DeletesCommitted(b, slot))
            .or_else(|_| self.act(protocol, Action::Unpends(b, slot)))
            .or_else(|_: Refusal| -> Step {
                // Where storage refuses to take a rejected one out of pending/, what is in goes all the same.
                let mut before = self.clone();
                before.state.bookkeepers[b].rejects = 0;
                let mut after = before.act(protocol, Action::Deletes(b, slot))?;
                after.state.bookkeepers[b].rejects = self.state.bookkeepers[b].rejects;
                Ok(after)
            })
            .or_else(|_| refuse(format!("a bookkeeper in phase {:?} does not delete it", self.phase(b))))
    }

    fn expires(&self, protocol: &Protocol, event: &Value) -> Step {
        let listed = event["snapshots"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        let snapshots: Snapshots = listed.fold(0, |all, id| all | 1 << id);
        if snapshots == 0 || snapshots & !protocol.expirable(&self.state) != 0 {
            return refuse("the reaper may not expire these snapshots");
        }
        let mut after = self.clone();
        let (mut doomed, mut kept): (Files, Files) = (self.left_to_delete(), 0);
        for (id, snapshot) in self.state.snapshots.iter().enumerate() {
            if snapshots & (1 << id) != 0 {
                doomed |= snapshot.live;
            } else if !snapshot.expired {
                kept |= snapshot.live;
            }
        }
        let files = doomed & !kept;
        after.state.reaper = Reaper { phase: ReaperPhase::Journaled, guard: self.state.head, snapshots, files };
        after.act(protocol, Action::ReaperExpires)
    }

    /// What an earlier journal names is in the next one, too.
    fn left_to_delete(&self) -> Files {
        self.state.reaper.files & self.state.disk
    }

    fn loses(&self, protocol: &Protocol, slot: usize) -> Step {
        let mut before = self.clone();
        if before.state.reaper.phase == ReaperPhase::Journaled {
            before = before.act(protocol, Action::ReaperVerifies)?;
        }
        before.act(protocol, Action::ReaperDeletes(slot))
    }

    fn rolls_back(&self, protocol: &Protocol, event: &Value) -> Step {
        let (to, mut after) = (snapshot(&event["head"]), self.clone());
        while after.state.head != to {
            after = after.act(protocol, Action::RollsBack)?;
        }
        Ok(after)
    }
}
