//! The bounds within which every interleaving is checked: small, and each with other things that may happen.

use crate::protocol::{Protocol, Rule};
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
        keyed: false,
        channels: false,
        reduced: false,
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
            name: "replay",
            incarnations: &[2],
            most: Spent { published: 2, spoiled: 1, replayed: 2, crashes: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "reread",
            incarnations: &[0, 1],
            bookkeepers: 1,
            most: Spent { published: 3, spoiled: 1, replayed: 1, crashes: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "prune",
            incarnations: &[0, 2],
            bookkeepers: 1,
            most: Spent { published: 3, days: 1, reappeared: 1, replayed: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "force",
            incarnations: &[0, 2],
            bookkeepers: 1,
            most: Spent { published: 3, days: 1, delayed: 1, replayed: 1, reappeared: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "waiting",
            incarnations: &[0, 2, 3],
            bookkeepers: 1,
            most: Spent { published: 3, days: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "keyed",
            incarnations: &[2, 3],
            keyed: true,
            most: Spent { published: 2, missed: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "order",
            incarnations: &[2, 3],
            keyed: true,
            most: Spent { published: 3, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "held",
            incarnations: &[2, 3],
            bookkeepers: 1,
            keyed: true,
            most: Spent { published: 3, spoiled: 1, replayed: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "newest",
            incarnations: &[0, 2, 3],
            bookkeepers: 1,
            keyed: true,
            most: Spent { published: 3, days: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "fold",
            incarnations: &[2],
            keyed: true,
            snapshots: 5,
            most: Spent { published: 2, folded: 2, foreign: 1, ..Spent::default() },
            ..base.clone()
        },
        Protocol {
            name: "compact",
            incarnations: &[2],
            keyed: true,
            rewrite: true,
            snapshots: 5,
            most: Spent { published: 2, folded: 1, ..Spent::default() },
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
        Protocol {
            name: "channels",
            incarnations: &[0, 1],
            channels: true,
            most: Spent { published: 3, ..Spent::default() },
            ..base.clone()
        },
        base.clone(),
        Protocol {
            name: "joint",
            incarnations: &[0, 1, 2, 3],
            snapshots: 5,
            network: 6,
            most: Spent { published: 3, retained: 1, foreign: 1, crashes: 1, ..Spent::default() },
            reaper: true,
            reduced: true,
            ..base.clone()
        },
        Protocol {
            name: "joint-back",
            incarnations: &[0, 1, 2, 3],
            snapshots: 4,
            network: 6,
            most: Spent { published: 3, rolled_back: 1, ..Spent::default() },
            reaper: true,
            reduced: true,
            ..base
        },
    ]
}

/// `joint` within bounds that allow a search without reduction (compare.rs).
pub fn small() -> Protocol {
    let joint = scenarios().into_iter().find(|protocol| protocol.name == "joint").expect("the scenario");
    let most = Spent { published: 2, ..joint.most };
    Protocol { name: "small", incarnations: &[2], most, reduced: false, network: 2, snapshots: 4, ..joint }
}

/// A scenario in which a property is false without the rule.
pub fn shown_in(rule: Rule) -> &'static str {
    match rule {
        Rule::Guard | Rule::MarksInCommit | Rule::Prefix | Rule::FileFirst => "listings",
        Rule::LookByName | Rule::ListFirst | Rule::CopyFirst | Rule::RejectFirst | Rule::Positions => "sources",
        Rule::WriterListsFirst | Rule::CopyNewer => "sources",
        Rule::Halt => "rollback",
        Rule::ExpireGuard | Rule::Verify => "expiry",
        Rule::ReplacedLive => "rewrite",
        Rule::OwnReply => "replies",
        Rule::ReplayKeepsRejected => "replay",
        Rule::ReplayAsks | Rule::PrunedRejected | Rule::PruneIdle | Rule::PruneNamed | Rule::GoesOn => "prune",
        Rule::PruneWaiting => "waiting",
        Rule::RemadeRefused => "force",
        Rule::StepNumbers | Rule::ExplicitNumbers | Rule::ShadowBelow | Rule::OneCommit => "keyed",
        Rule::OlderRefused | Rule::WaitsForEarlier | Rule::ListedTwice => "keyed",
        Rule::HoldsBehindRejected => "held",
        Rule::PruneKeepsNewest => "newest",
        Rule::FoldExamined | Rule::FoldIsDelete => "fold",
        Rule::RewriteNumber | Rule::DeletesApplied => "compact",
        Rule::PositionsNeverRecur | Rule::OffsetsMerged => "channels",
        Rule::OffsetsOfPending | Rule::RejectedMovesNothing => "channels",
    }
}
