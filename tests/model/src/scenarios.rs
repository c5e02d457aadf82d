//! The bounds within which every interleaving is checked: small, and each with other things that may happen.

use crate::protocol::Protocol;
use crate::state::Spent;

pub fn scenarios() -> Vec<Protocol> {
    let base = Protocol {
        name: "commit",
        incarnations: &[0, 2],
        bookkeepers: 2,
        snapshots: 4,
        network: 2,
        most: Spent { published: 3, crashes: 1, ..Spent::default() },
        reaper: false,
        rewrite: false,
        broken: None,
        oldest_first: vec![],
    };
    vec![
        Protocol {
            name: "listings",
            incarnations: &[2],
            most: Spent { published: 2, missed: 1, reappeared: 1, crashes: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "replies",
            incarnations: &[2],
            network: 3,
            most: Spent { published: 2, waited: 1, doubled: 1, crashes: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "rollback",
            incarnations: &[2],
            most: Spent { published: 2, rolled_back: 1, foreign: 1, crashes: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "expiry",
            incarnations: &[2],
            bookkeepers: 1,
            reaper: true,
            most: Spent {
                published: 2,
                retained: 1,
                foreign: 1,
                reappeared: 1,
                rolled_back: 1,
                crashes: 1,
                ..Spent::default()
            },
            ..base.clone()
        },
        Protocol {
            name: "rewrite",
            incarnations: &[2],
            bookkeepers: 1,
            reaper: true,
            rewrite: true,
            snapshots: 5,
            most: Spent { published: 2, retained: 1, foreign: 1, crashes: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "sources",
            incarnations: &[0, 1],
            bookkeepers: 2,
            most: Spent { published: 3, missed: 1, ..Spent::default() },
            ..base.clone()
        },
        base,
    ]
}
