//! What must hold in every state (docs/maintain/guarantees.md).

use super::Protocol;
use crate::state::*;
use stateright::Property;

pub fn properties() -> Vec<Property<Protocol>> {
    vec![
        Property::<Protocol>::always("no stream sees a row twice", |_, state| {
            state.head == NONE || !state.snapshots[state.head as usize].twice
        }),
        Property::<Protocol>::always("no reader finds a row twice", |_, state| !state.readable().1),
        Property::<Protocol>::always("no row of a source is in twice", |protocol, state| {
            if protocol.channels {
                let appended = state.appended(state.head);
                return every_row(|channel, offset| state.channels.holding(appended, channel, offset) <= 1);
            }
            let slots: Vec<usize> =
                members(state.appended(state.head)).filter(|&slot| has_positions(incarnation(slot))).collect();
            (0..SOURCE_ROWS).all(|row| slots.iter().filter(|&&slot| state.source_row(slot) == row).count() <= 1)
        }),
        Property::<Protocol>::always("no published row is lost", |_, state| {
            let kept = state.pending | state.rejected | state.appended(state.head) | state.rolled_back;
            state.published & !kept == 0
        }),
        Property::<Protocol>::always("no row of a source is passed over", |protocol, state| {
            // A rejected txlog of a source is one whose row another holds, or which its writer reads again.
            let held = state.appended(state.head) | state.pending | state.rolled_back;
            if protocol.channels {
                let read = |channel: usize, offset| offset <= state.marks.offsets[channel];
                return every_row(|channel, offset| {
                    !read(channel, offset) || state.channels.holding(held, channel, offset) > 0
                });
            }
            let rows: Vec<u8> = members(held)
                .filter(|&slot| has_positions(incarnation(slot)))
                .map(|slot| state.source_row(slot))
                .collect();
            (0..state.marks.position).all(|row| rows.contains(&row))
        }),
        Property::<Protocol>::always("no txlog of a source is rejected before its row is in", |protocol, state| {
            // Of a slot, what is rejected may be rows of channels that the other run has not read: they are read again.
            protocol.channels
                || state.halted()
                || state.rolled_back != 0
                || members(state.spoiled).any(|slot| has_positions(incarnation(slot)))
                || members(state.rejected)
                    .filter(|&slot| has_positions(incarnation(slot)))
                    .all(|slot| state.source_row(slot) < state.marks.position)
        }),
        Property::<Protocol>::always("no good txlog is rejected before its rows are in", |_, state| {
            let accounted = state.appended(state.head) | state.rolled_back | state.spoiled | state.late;
            members(state.rejected & !accounted).all(|slot| has_positions(incarnation(slot)))
        }),
        Property::<Protocol>::always("a keyed table is what its txlogs make of it", |protocol, state| {
            !protocol.keyed || state.halted() || state.rolled_back != 0 || protocol.is_true_state(state)
        }),
        Property::<Protocol>::always("no rejected txlog of a keyed table is overtaken", |protocol, state| {
            let waits = state.spoiled & state.rejected & !state.late & !state.appended(state.head);
            !protocol.keyed || !members(waits).any(|slot| protocol.is_overtaken(&state.marks, slot))
        }),
        Property::<Protocol>::always("a writer goes on behind what was published", |_, state| !state.repeated),
        Property::<Protocol>::always("no needed file is gone", |_, state| {
            let mut needed: Files = state.pending as Files;
            for snapshot in state.snapshots.iter().filter(|snapshot| !snapshot.expired) {
                needed |= snapshot.live;
            }
            // Of a txlog that came back after it was committed, the file may be gone: it is recognised by its mark.
            let in_already: Files = members(state.pending)
                .filter(|&slot| state.marks.is_in(slot))
                .fold(0, |files, slot| files | file(slot));
            let mut live: Files = 0;
            for snapshot in state.snapshots.iter().filter(|snapshot| !snapshot.expired) {
                live |= snapshot.live;
            }
            (needed & !(in_already & !live)) & !state.disk == 0
        }),
        Property::<Protocol>::always("what the marks say is in, is in", |_, state| {
            state.halted()
                || (0..SLOTS).all(|slot| !state.marks.is_in(slot) || state.appended(state.head) & bit(slot) != 0)
        }),
    ]
}

fn every_row(holds: impl Fn(usize, u8) -> bool) -> bool {
    (0..CHANNELS).all(|channel| (1..=SOURCE_ROWS).all(|offset| holds(channel, offset)))
}
