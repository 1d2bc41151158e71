//! The handshake: which export, how large, and what the server tells of its blocks.

use super::socket::Socket;
use super::uri::Uri;
use crate::error::{ImageError, Result};
use format::nbd::*;
use std::io;

/// No server answers an option with more replies.
const MOST_REPLIES: usize = 1000;

const WANTS_TLS: &str = "the server wants TLS: write nbds://HOST/EXPORT?tls-certificates=DIRECTORY, or nbds+unix:///EXPORT?socket=PATH&tls-certificates=DIRECTORY";

/// What client and server agreed on.
#[derive(Clone, Debug)]
pub(super) struct Export {
    /// Bytes of the disk.
    pub size: u64,
    /// Whether replies to reads come in chunks.
    pub structured: bool,
    /// The most bytes in one read.
    pub payload_bytes: u32,
    /// Number of the context that tells where there are zeros.
    pub allocation: Option<u32>,
    /// Number of the bitmap's.
    pub bitmap: Option<u32>,
}

struct Handshake<'a> {
    socket: &'a mut dyn Socket,
    name: &'a str,
}

/// Carries the handshake out on a new connection; `name` is what errors call the server.
///
/// # Errors
/// `Refused` where the server, the export or the bitmap is not there; `Corrupt` where the server breaks the protocol.
pub(super) fn negotiate(
    mut socket: Box<dyn Socket>,
    name: &str,
    uri: &Uri,
    bitmap: Option<&str>,
) -> Result<(Box<dyn Socket>, Export)> {
    let mut h = Handshake { socket: &mut *socket, name };
    h.greet()?;
    if let Some(tls) = &uri.tls {
        h.start_tls()?;
        socket = tls.connect(socket).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidInput => ImageError::refused(name, e.to_string()),
            _ => ImageError::io(name, "agree on TLS with the NBD server", e),
        })?;
    }
    let export = choose(&mut Handshake { socket: &mut *socket, name }, &uri.export, bitmap)?;
    Ok((socket, export))
}

/// Chooses an export, and what is asked of it.
fn choose(h: &mut Handshake<'_>, export: &str, bitmap: Option<&str>) -> Result<Export> {
    let structured = h.structured_replies()?;
    let (mut allocation, mut dirty) = (None, None);
    if structured {
        let chosen = h.context(export, &[ALLOCATION])?;
        allocation = chosen.iter().find(|c| c.0 == ALLOCATION).map(|c| c.1);
    }
    if let Some(bitmap) = bitmap {
        let wanted = format!("{DIRTY_BITMAP}{bitmap}");
        // One option replaces what the one before has chosen: both are asked for.
        let chosen = if structured { h.context(export, &[ALLOCATION, &wanted])? } else { Vec::new() };
        let number = |name: &str| chosen.iter().find(|c| c.0 == name).map(|c| c.1);
        (allocation, dirty) = (number(ALLOCATION), number(&wanted));
        if dirty.is_none() {
            return Err(h.refused(format!(
                "export {export:?} has no dirty bitmap {bitmap:?}; the server must offer it (qemu-nbd --bitmap)"
            )));
        }
    }
    let (size, payload_bytes) = h.go(export)?;
    Ok(Export { size, structured, payload_bytes, allocation, bitmap: dirty })
}

impl Handshake<'_> {
    fn greet(&mut self) -> Result<()> {
        let magic = u64::from_be_bytes(self.read()?);
        let style = u64::from_be_bytes(self.read()?);
        if magic != MAGIC || style != OPTION_MAGIC {
            return Err(self.broken("is not an NBD server with the fixed newstyle handshake"));
        }
        let flags = u16::from_be_bytes(self.read()?);
        if flags & FIXED_NEWSTYLE == 0 {
            return Err(self.broken("does not offer the fixed newstyle handshake"));
        }
        self.write(&u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes())
    }

    fn start_tls(&mut self) -> Result<()> {
        self.option(OPT_STARTTLS, &[])?;
        match self.reply(OPT_STARTTLS)? {
            (REP_ACK, data) if data.is_empty() => Ok(()),
            (kind, why) if kind & REP_ERR != 0 => {
                Err(self.refused(format!("the server has no TLS{}", said(&why))))
            }
            (kind, _) => Err(self.broken(&format!("answered the wish for TLS with {kind}"))),
        }
    }

    fn structured_replies(&mut self) -> Result<bool> {
        self.option(OPT_STRUCTURED_REPLY, &[])?;
        match self.reply(OPT_STRUCTURED_REPLY)? {
            (REP_ACK, _) => Ok(true),
            (REP_ERR_TLS_REQD, _) => Err(self.refused(WANTS_TLS.into())),
            (kind, _) if kind & REP_ERR != 0 => Ok(false),
            (kind, _) => Err(self.broken(&format!("answered structured replies with {kind}"))),
        }
    }

    /// Chooses metadata contexts. Returns those that the server has, with their numbers.
    fn context(&mut self, export: &str, names: &[&str]) -> Result<Vec<(String, u32)>> {
        let mut data = Vec::new();
        put_text(&mut data, export);
        data.extend((names.len() as u32).to_be_bytes());
        names.iter().for_each(|n| put_text(&mut data, n));
        self.option(OPT_SET_META_CONTEXT, &data)?;
        let mut chosen = Vec::new();
        for _ in 0..MOST_REPLIES {
            match self.reply(OPT_SET_META_CONTEXT)? {
                (REP_META_CONTEXT, data) => {
                    let Some((number, name)) = data.split_first_chunk::<4>() else {
                        return Err(self.broken("named a context without its number"));
                    };
                    chosen.push((String::from_utf8_lossy(name).into_owned(), u32::from_be_bytes(*number)));
                }
                (REP_ACK, _) => return Ok(chosen),
                (kind, _) if kind & REP_ERR != 0 => return Ok(Vec::new()),
                (kind, _) => return Err(self.broken(&format!("answered a choice of contexts with {kind}"))),
            }
        }
        Err(self.broken("sent an endless answer"))
    }

    /// Ends the handshake. Returns size and the most bytes in one read.
    fn go(&mut self, export: &str) -> Result<(u64, u32)> {
        let mut data = Vec::new();
        put_text(&mut data, export);
        data.extend(1u16.to_be_bytes());
        data.extend(INFO_BLOCK_SIZE.to_be_bytes());
        self.option(OPT_GO, &data)?;
        let (mut size, mut payload_bytes) = (None, PAYLOAD_BYTES_MAX);
        for _ in 0..MOST_REPLIES {
            match self.reply(OPT_GO)? {
                (REP_INFO, data) => {
                    let number = |at: usize| {
                        data.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
                    };
                    match data.get(..2).map(|b| u16::from_be_bytes([b[0], b[1]])) {
                        Some(INFO_EXPORT) => {
                            let Some((high, low)) = number(2).zip(number(6)) else {
                                return Err(self.broken("did not tell the size of the export"));
                            };
                            size = Some(u64::from(high) << 32 | u64::from(low));
                        }
                        Some(INFO_BLOCK_SIZE) => {
                            payload_bytes = number(10).unwrap_or(PAYLOAD_BYTES_MAX).max(4096)
                        }
                        _ => {}
                    }
                }
                (REP_ACK, _) => {
                    let size = size.ok_or_else(|| self.broken("did not tell the size of the export"))?;
                    return Ok((size, payload_bytes));
                }
                (REP_ERR_UNKNOWN, why) => {
                    let said = said(&why);
                    let why =
                        format!("there is no export {export:?}{said}; `nbdinfo --list` tells what there is");
                    return Err(self.refused(why));
                }
                (REP_ERR_UNSUP, _) => {
                    return Err(self.refused("the server is too old: it has no NBD_OPT_GO".into()))
                }
                (REP_ERR_TLS_REQD, _) => {
                    return Err(self.refused(WANTS_TLS.into()));
                }
                (kind, why) if kind & REP_ERR != 0 => {
                    return Err(self.refused(format!("export {export:?} was refused{}", said(&why))));
                }
                (kind, _) => {
                    return Err(self.broken(&format!("answered the choice of an export with {kind}")))
                }
            }
        }
        Err(self.broken("sent an endless answer"))
    }

    fn option(&mut self, option: u32, data: &[u8]) -> Result<()> {
        let mut all = Vec::with_capacity(16 + data.len());
        all.extend(OPTION_MAGIC.to_be_bytes());
        all.extend(option.to_be_bytes());
        all.extend((data.len() as u32).to_be_bytes());
        all.extend_from_slice(data);
        self.write(&all)
    }

    fn reply(&mut self, option: u32) -> Result<(u32, Vec<u8>)> {
        let magic = u64::from_be_bytes(self.read()?);
        let to = u32::from_be_bytes(self.read()?);
        let kind = u32::from_be_bytes(self.read()?);
        let len = u32::from_be_bytes(self.read()?);
        if magic != OPTION_REPLY_MAGIC || to != option || len > OPTION_BYTES_MAX {
            return Err(self.broken("sent something other than the reply to an option"));
        }
        let mut data = vec![0; len as usize];
        self.socket.read_exact(&mut data).map_err(|e| self.io(e))?;
        Ok((kind, data))
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.socket.read_exact(&mut bytes).map_err(|e| self.io(e))?;
        Ok(bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes).map_err(|e| self.io(e))
    }

    fn io(&self, e: io::Error) -> ImageError {
        ImageError::io(self.name, "agree with the NBD server", e)
    }

    fn broken(&self, why: &str) -> ImageError {
        ImageError::corrupt(self.name, "NBD", why)
    }

    fn refused(&self, why: String) -> ImageError {
        ImageError::refused(self.name, why)
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn said(why: &[u8]) -> String {
    match String::from_utf8_lossy(why).trim() {
        "" => String::new(),
        why => format!(": {why}"),
    }
}
