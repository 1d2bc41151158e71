//! The list of dead chunks of a container: chunks that no recipe references any more.

use crate::bytes::{In, Malformed, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};
use crate::ids::ContainerId;
use crate::runs::RunSet;

/// Dead chunks of one container. Each log is whole: it replaces the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLog {
    /// The container.
    pub container: ContainerId,
    /// Chunks that no recipe references, and none ever will.
    pub dead: RunSet,
}

impl DeadLog {
    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.u64(self.container.raw());
        self.dead.encode(&mut o);
        encode_frame(Kind::Dead, context, &o.0)
    }

    /// From a frame.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Dead, context, bytes)?;
        let mut i = In::within(&body, Kind::Dead.memory_max());
        let container = ContainerId::from_raw(i.u64()?)?;
        let dead = RunSet::decode(&mut i)?;
        i.end()?;
        if dead.is_empty() {
            return Err(Malformed::new("an empty list of dead chunks"));
        }
        Ok(DeadLog { container, dead })
    }
}
