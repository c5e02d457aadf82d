//! A source of channels: what the txlogs of writer A say (docs/maintain/txlog-format.md, "Offsets").

use super::{bit, members, Slots, INCARNATIONS, SLOTS};

pub const CHANNELS: usize = 2;
/// So many txlogs are of writer A.
pub const OF_A: usize = SLOTS / 2;

/// How far each channel is read.
pub type Offsets = [u8; CHANNELS];

/// A txlog: the position that it continues from, and the offset that it reaches in one channel, by one row.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Said {
    pub previous: u8,
    pub channel: u8,
    pub offset: u8,
}

/// Where the chain of a run ends.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Chain {
    pub position: u8,
    pub offsets: Offsets,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Channels {
    pub said: [Said; OF_A],
    pub chains: [Chain; INCARNATIONS / 2],
}

pub const NO_CHANNELS: Channels = Channels {
    said: [Said { previous: 0, channel: 0, offset: 0 }; OF_A],
    chains: [Chain { position: 0, offsets: [0; CHANNELS] }; INCARNATIONS / 2],
};

impl Channels {
    /// How many of these txlogs hold this row: that before the offset.
    pub fn holding(&self, txlogs: Slots, channel: usize, offset: u8) -> usize {
        let of_a = members(txlogs & (bit(OF_A) - 1));
        of_a.filter(|&slot| self.said[slot].channel as usize == channel && self.said[slot].offset == offset).count()
    }
}
