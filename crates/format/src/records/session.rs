//! The body of a session's object: which process it is, for messages of processes that wait for it.

use crate::bytes::{In, Malformed, Out, Result};
use crate::frame::{decode_frame, encode_frame, Context, Kind};

/// A process at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// What it does, such as `backup`.
    pub work: String,
    /// The name of its host.
    pub host: String,
    /// Its number there.
    pub process: u32,
    /// Since when, in seconds since 1970.
    pub since: i64,
}

impl SessionRecord {
    /// As a frame.
    pub fn encode(&self, context: Context<'_>) -> Vec<u8> {
        let mut o = Out::default();
        o.string(&self.work);
        o.string(&self.host);
        o.varint(self.process.into());
        o.signed(self.since);
        encode_frame(Kind::Session, context, &o.0)
    }

    /// From a frame.
    pub fn decode(context: Context<'_>, bytes: &[u8]) -> Result<Self> {
        let body = decode_frame(Kind::Session, context, bytes)?;
        let mut i = In::within(&body, Kind::Session.memory_max());
        let record = SessionRecord {
            work: i.string()?,
            host: i.string()?,
            process: i.varint32()?,
            since: i.signed()?,
        };
        i.end()?;
        if record.work.chars().chain(record.host.chars()).any(char::is_control) {
            return Err(Malformed::new("control characters in a session's text"));
        }
        Ok(record)
    }
}
