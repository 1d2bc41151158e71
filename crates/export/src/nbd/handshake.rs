//! The handshake: client and server agree on an export and on the features to use.

use crate::device::BlockDevice;
use crate::exports::Exports;
use format::nbd::*;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;

/// Contexts of one client at most.
const CONTEXTS_MAX: usize = 4;
/// No client needs more options to say what it wants.
const OPTIONS_MAX: usize = 1000;

/// What client and server agreed on.
pub(super) struct Agreement {
    /// What is served.
    pub device: Arc<dyn BlockDevice>,
    /// Its name.
    pub export: String,
    /// Structured replies.
    pub structured: bool,
    /// What may be asked for of blocks. A context's number is its place, counted from 1.
    pub contexts: Vec<Context>,
}

/// A metadata context.
pub(super) enum Context {
    /// `base:allocation`.
    Allocation,
    /// `qemu:dirty-bitmap:NAME`: what has changed since the state of that name.
    Changed(Vec<Range<u64>>),
}

struct Handshake<'a, S> {
    socket: &'a mut S,
    exports: &'a dyn Exports,
    no_zeroes: bool,
    structured: bool,
    chosen: Option<Chosen>,
}

/// The export whose contexts were chosen last, and these.
struct Chosen {
    export: String,
    device: Arc<dyn BlockDevice>,
    contexts: Vec<Context>,
}

/// An option and its data.
struct ClientOption {
    option: u32,
    data: Vec<u8>,
}

/// What came of a handshake.
pub(super) enum Negotiated {
    /// The client left, or named an unknown export by an option that has no error reply.
    Nothing,
    /// The options go on with TLS.
    StartsTls(Greeting),
    /// An export was chosen.
    Export(Agreement),
}

/// What was said before the options.
#[derive(Clone, Copy)]
pub(super) struct Greeting {
    no_zeroes: bool,
}

/// Whether a client talks by TLS, or must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Security {
    /// There is no TLS.
    Plain,
    /// It must begin TLS first.
    WantsTls,
    /// It has begun.
    Tls,
}

/// Greets a client that has just connected.
pub(super) fn greet<S: Read + Write>(socket: &mut S) -> io::Result<Greeting> {
    let mut hello = Vec::with_capacity(18);
    hello.extend(MAGIC.to_be_bytes());
    hello.extend(OPTION_MAGIC.to_be_bytes());
    hello.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    socket.write_all(&hello)?;
    let mut flags = [0; 4];
    socket.read_exact(&mut flags)?;
    let flags = u32::from_be_bytes(flags);
    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(broken("unknown handshake flags"));
    }
    Ok(Greeting { no_zeroes: flags & u32::from(NO_ZEROES) != 0 })
}

/// Answers options until an export is chosen, or TLS begins.
pub(super) fn negotiate<S: Read + Write>(
    socket: &mut S,
    exports: &dyn Exports,
    greeting: Greeting,
    security: Security,
) -> io::Result<Negotiated> {
    let no_zeroes = greeting.no_zeroes;
    let mut h = Handshake { socket, exports, no_zeroes, structured: false, chosen: None };
    for _ in 0..OPTIONS_MAX {
        let choice = h.option()?;
        match choice.option {
            OPT_ABORT => {
                h.reply(&choice, REP_ACK, &[])?;
                return Ok(Negotiated::Nothing);
            }
            OPT_STARTTLS if !choice.data.is_empty() || security == Security::Tls => {
                h.reply(&choice, REP_ERR_INVALID, &[])?;
            }
            OPT_STARTTLS if security == Security::Plain => {
                h.reply(&choice, REP_ERR_POLICY, &[b"the server has no certificate"])?;
            }
            OPT_STARTTLS => {
                h.reply(&choice, REP_ACK, &[])?;
                return Ok(Negotiated::StartsTls(greeting));
            }
            // It has no error reply.
            OPT_EXPORT_NAME if security == Security::WantsTls => return Ok(Negotiated::Nothing),
            _ if security == Security::WantsTls => {
                h.reply(&choice, REP_ERR_TLS_REQD, &[b"begin TLS first"])?;
            }
            OPT_EXPORT_NAME => {
                return Ok(h.export_name(&choice)?.map_or(Negotiated::Nothing, Negotiated::Export))
            }
            OPT_LIST => h.list(&choice)?,
            OPT_INFO | OPT_GO => {
                if let Some(agreed) = h.go(&choice)? {
                    return Ok(Negotiated::Export(agreed));
                }
            }
            OPT_STRUCTURED_REPLY if choice.data.is_empty() => {
                h.structured = true;
                h.reply(&choice, REP_ACK, &[])?;
            }
            OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => h.contexts(&choice)?,
            OPT_STRUCTURED_REPLY => h.reply(&choice, REP_ERR_INVALID, &[])?,
            _ => h.reply(&choice, REP_ERR_UNSUP, &[])?,
        }
    }
    Ok(Negotiated::Nothing)
}

impl<S: Read + Write> Handshake<'_, S> {
    fn option(&mut self) -> io::Result<ClientOption> {
        if u64::from_be_bytes(self.read()?) != OPTION_MAGIC {
            return Err(broken("no option where one was expected"));
        }
        let option = u32::from_be_bytes(self.read()?);
        let len = u32::from_be_bytes(self.read()?);
        if len > OPTION_BYTES_MAX {
            self.reply(&ClientOption { option, data: Vec::new() }, REP_ERR_TOO_BIG, &[])?;
            return Err(broken("an option of more than 64 KiB"));
        }
        let mut data = vec![0; len as usize];
        self.socket.read_exact(&mut data)?;
        Ok(ClientOption { option, data })
    }

    /// The old option to choose an export. It has no error reply.
    fn export_name(&mut self, choice: &ClientOption) -> io::Result<Option<Agreement>> {
        let name = String::from_utf8_lossy(&choice.data).into_owned();
        let Some(device) = self.exports.open(&name) else { return Ok(None) };
        let mut answer = Vec::with_capacity(134);
        answer.extend(device.size().to_be_bytes());
        answer.extend(self.flags(&*device).to_be_bytes());
        if !self.no_zeroes {
            answer.resize(answer.len() + 124, 0);
        }
        self.socket.write_all(&answer)?;
        Ok(Some(self.agree(device, name)))
    }

    fn list(&mut self, choice: &ClientOption) -> io::Result<()> {
        if !choice.data.is_empty() {
            return self.reply(choice, REP_ERR_INVALID, &[]);
        }
        for (name, description) in self.exports.list() {
            let len = (name.len() as u32).to_be_bytes();
            self.reply(choice, REP_SERVER, &[&len, name.as_bytes(), description.as_bytes()])?;
        }
        self.reply(choice, REP_ACK, &[])
    }

    fn go(&mut self, choice: &ClientOption) -> io::Result<Option<Agreement>> {
        let Some((name, wanted)) = export_and_infos(&choice.data) else {
            self.reply(choice, REP_ERR_INVALID, &[])?;
            return Ok(None);
        };
        let Some(device) = self.exports.open(&name) else {
            self.reply(choice, REP_ERR_UNKNOWN, &[b"there is no such export"])?;
            return Ok(None);
        };
        let list = self.exports.list();
        // An only export also answers to the empty name.
        let is_it = |e: &&(String, String)| e.0 == name || (name.is_empty() && list.len() == 1);
        let listed = list.iter().find(is_it).cloned().unwrap_or_else(|| (name.clone(), String::new()));
        let (size, flags) = (device.size().to_be_bytes(), self.flags(&*device).to_be_bytes());
        self.info(choice, INFO_EXPORT, &[&size, &flags])?;
        for info in wanted {
            match info {
                INFO_NAME => self.info(choice, info, &[listed.0.as_bytes()])?,
                INFO_DESCRIPTION if !listed.1.is_empty() => {
                    self.info(choice, info, &[listed.1.as_bytes()])?;
                }
                INFO_BLOCK_SIZE => {
                    let sizes = [1u32, 4096, PAYLOAD_BYTES_MAX].map(u32::to_be_bytes);
                    self.info(choice, info, &[&sizes.concat()])?;
                }
                _ => {}
            }
        }
        self.reply(choice, REP_ACK, &[])?;
        Ok((choice.option == OPT_GO).then(|| self.agree(device, name)))
    }

    fn contexts(&mut self, choice: &ClientOption) -> io::Result<()> {
        let set = choice.option == OPT_SET_META_CONTEXT;
        let (true, Some((name, queries))) = (self.structured, export_and_queries(&choice.data)) else {
            return self.reply(choice, REP_ERR_INVALID, &[]);
        };
        let Some(device) = self.exports.open(&name) else {
            return self.reply(choice, REP_ERR_UNKNOWN, &[]);
        };
        if set {
            self.choose_contexts(choice, name, device, &queries)?;
        } else {
            let bitmaps = device.earlier().into_iter().map(|earlier| format!("{DIRTY_BITMAP}{earlier}"));
            let is_asked = |context: &String| {
                // Namespaces, and all bitmaps, can be listed, not chosen.
                let is_prefix = |q: &str| q == "base:" || q == "qemu:" || q == DIRTY_BITMAP;
                let fits = |q: &String| q == context || (is_prefix(q) && context.starts_with(&**q));
                queries.is_empty() || queries.iter().any(fits)
            };
            for context in std::iter::once(ALLOCATION.to_owned()).chain(bitmaps).filter(is_asked) {
                self.reply(choice, REP_META_CONTEXT, &[&[0; 4], context.as_bytes()])?;
            }
        }
        self.reply(choice, REP_ACK, &[])
    }

    /// Chooses the contexts of these names, in their order, as far as there are such.
    fn choose_contexts(
        &mut self,
        choice: &ClientOption,
        export: String,
        device: Arc<dyn BlockDevice>,
        names: &[String],
    ) -> io::Result<()> {
        let mut contexts = Vec::new();
        for (n, name) in names.iter().enumerate() {
            if names[..n].contains(name) {
                continue;
            }
            if contexts.len() == CONTEXTS_MAX {
                break;
            }
            let found = match name.strip_prefix(DIRTY_BITMAP) {
                // What cannot be compared is not offered.
                Some(earlier) => device.changed_since(earlier).ok().flatten().map(Context::Changed),
                None => (name == ALLOCATION).then_some(Context::Allocation),
            };
            if let Some(found) = found {
                contexts.push(found);
                let id = (contexts.len() as u32).to_be_bytes();
                self.reply(choice, REP_META_CONTEXT, &[&id, name.as_bytes()])?;
            }
        }
        self.chosen = Some(Chosen { export, device, contexts });
        Ok(())
    }

    fn agree(&mut self, device: Arc<dyn BlockDevice>, export: String) -> Agreement {
        let structured = self.structured;
        match self.chosen.take().filter(|chosen| chosen.export == export) {
            // What was compared is what is served, whatever has this name by now.
            Some(Chosen { device, contexts, .. }) => Agreement { device, export, structured, contexts },
            None => Agreement { device, export, structured, contexts: Vec::new() },
        }
    }

    fn flags(&self, device: &dyn BlockDevice) -> u16 {
        let write = SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES;
        let writing = if device.is_writable() { write } else { READ_ONLY };
        let structured = if self.structured { SEND_DF } else { 0 };
        HAS_FLAGS | SEND_FLUSH | SEND_CACHE | CAN_MULTI_CONN | writing | structured
    }

    fn info(&mut self, choice: &ClientOption, info: u16, parts: &[&[u8]]) -> io::Result<()> {
        let all = [&info.to_be_bytes(), &*parts.concat()].concat();
        self.reply(choice, REP_INFO, &[&all])
    }

    fn reply(&mut self, choice: &ClientOption, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
        let data = parts.concat();
        let mut all = Vec::with_capacity(20 + data.len());
        all.extend(OPTION_REPLY_MAGIC.to_be_bytes());
        all.extend(choice.option.to_be_bytes());
        all.extend(kind.to_be_bytes());
        all.extend((data.len() as u32).to_be_bytes());
        all.extend(data);
        self.socket.write_all(&all)
    }

    fn read<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.socket.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// The error of a client that breaks the protocol: `InvalidData`.
pub(super) fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the client does not keep to the protocol: {why}"))
}

/// Takes a text, preceded by its length, off the front.
fn take_text(data: &mut &[u8]) -> Option<String> {
    let (len, rest) = data.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok().filter(|l| *l <= NAME_BYTES_MAX)?;
    let (text, rest) = rest.split_at_checked(len)?;
    *data = rest;
    String::from_utf8(text.to_vec()).ok()
}

fn export_and_infos(mut data: &[u8]) -> Option<(String, Vec<u16>)> {
    let name = take_text(&mut data)?;
    let (count, rest) = data.split_first_chunk::<2>()?;
    if rest.len() != 2 * usize::from(u16::from_be_bytes(*count)) {
        return None;
    }
    Some((name, rest.chunks_exact(2).map(|b| u16::from_be_bytes([b[0], b[1]])).collect()))
}

fn export_and_queries(mut data: &[u8]) -> Option<(String, Vec<String>)> {
    let name = take_text(&mut data)?;
    let (count, mut rest) = data.split_first_chunk::<4>()?;
    let mut queries = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        queries.push(take_text(&mut rest)?);
    }
    rest.is_empty().then_some((name, queries))
}
