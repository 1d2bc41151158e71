//! Numbers of the NBD protocol, for its client and its server. On the wire all of them are big-endian.
//!
//! Names and meanings are those of
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.

/// The first eight bytes that a server sends.
pub const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// What each option begins with, and the second eight bytes of a server.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// What each reply to an option begins with.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// What each request begins with.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// What a simple reply begins with.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// What a chunk of a structured reply begins with.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// The TCP port of a server.
pub const PORT: u16 = 10809;

/// Handshake flag: fixed newstyle negotiation.
pub const FIXED_NEWSTYLE: u16 = 1;
/// Handshake flag: no 124 zeros after the answer to [`OPT_EXPORT_NAME`].
pub const NO_ZEROES: u16 = 2;

/// Option: choose an export and end the handshake; an error has no answer.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Option: end the handshake without an export.
pub const OPT_ABORT: u32 = 2;
/// Option: list the exports.
pub const OPT_LIST: u32 = 3;
/// Option: go on with TLS.
pub const OPT_STARTTLS: u32 = 5;
/// Option: describe an export.
pub const OPT_INFO: u32 = 6;
/// Option: choose an export and end the handshake.
pub const OPT_GO: u32 = 7;
/// Option: replies to reads come in chunks.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// Option: list metadata contexts.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Option: choose metadata contexts.
pub const OPT_SET_META_CONTEXT: u32 = 10;

/// Reply to an option: done.
pub const REP_ACK: u32 = 1;
/// Reply to an option: one export of a list.
pub const REP_SERVER: u32 = 2;
/// Reply to an option: a fact about an export.
pub const REP_INFO: u32 = 3;
/// Reply to an option: a metadata context and its number.
pub const REP_META_CONTEXT: u32 = 4;
/// The bit that all replies of errors have.
pub const REP_ERR: u32 = 1 << 31;
/// Error reply: the option is not supported.
pub const REP_ERR_UNSUP: u32 = REP_ERR + 1;
/// Error reply: the server does not want that.
pub const REP_ERR_POLICY: u32 = REP_ERR + 2;
/// Error reply: the option's data is invalid.
pub const REP_ERR_INVALID: u32 = REP_ERR + 3;
/// Error reply: the server wants TLS first.
pub const REP_ERR_TLS_REQD: u32 = REP_ERR + 5;
/// Error reply: there is no such export.
pub const REP_ERR_UNKNOWN: u32 = REP_ERR + 6;
/// Error reply: the option's data is too long.
pub const REP_ERR_TOO_BIG: u32 = REP_ERR + 9;

/// Fact about an export: size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// Fact about an export: its name.
pub const INFO_NAME: u16 = 1;
/// Fact about an export: its description.
pub const INFO_DESCRIPTION: u16 = 2;
/// Fact about an export: least, preferred and largest size of a request.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flag: there are flags.
pub const HAS_FLAGS: u16 = 1 << 0;
/// Transmission flag: the export is read-only.
pub const READ_ONLY: u16 = 1 << 1;
/// Transmission flag: [`CMD_FLUSH`] is supported.
pub const SEND_FLUSH: u16 = 1 << 2;
/// Transmission flag: [`FLAG_FUA`] is supported.
pub const SEND_FUA: u16 = 1 << 3;
/// Transmission flag: [`CMD_TRIM`] is supported.
pub const SEND_TRIM: u16 = 1 << 5;
/// Transmission flag: [`CMD_WRITE_ZEROES`] is supported.
pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flag: [`FLAG_DF`] is supported.
pub const SEND_DF: u16 = 1 << 7;
/// Transmission flag: [`CMD_CACHE`] is supported.
pub const SEND_CACHE: u16 = 1 << 10;
/// Transmission flag: several connections see each other's writes.
pub const CAN_MULTI_CONN: u16 = 1 << 8;

/// Command: read.
pub const CMD_READ: u16 = 0;
/// Command: write.
pub const CMD_WRITE: u16 = 1;
/// Command: end the connection.
pub const CMD_DISC: u16 = 2;
/// Command: make earlier writes durable.
pub const CMD_FLUSH: u16 = 3;
/// Command: a range is not needed any more.
pub const CMD_TRIM: u16 = 4;
/// Command: a range will be read soon.
pub const CMD_CACHE: u16 = 5;
/// Command: write zeros.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// Command: describe the blocks of a range.
pub const CMD_BLOCK_STATUS: u16 = 7;

/// Command flag: durable before it is answered.
pub const FLAG_FUA: u16 = 1 << 0;
/// Command flag: the zeros must take space.
pub const FLAG_NO_HOLE: u16 = 1 << 1;
/// Command flag: the data of a read must come in one chunk.
pub const FLAG_DF: u16 = 1 << 2;
/// Command flag: describe one extent only.
pub const FLAG_REQ_ONE: u16 = 1 << 3;

/// Chunk flag: the last chunk of its reply.
pub const CHUNK_DONE: u16 = 1;
/// Chunk: nothing.
pub const TYPE_NONE: u16 = 0;
/// Chunk: an offset and data.
pub const TYPE_OFFSET_DATA: u16 = 1;
/// Chunk: an offset and the length of a hole.
pub const TYPE_OFFSET_HOLE: u16 = 2;
/// Chunk: a context's number and pairs of length and flags.
pub const TYPE_BLOCK_STATUS: u16 = 5;
/// The bit that all chunks of errors have.
pub const TYPE_ERROR_BIT: u16 = 1 << 15;
/// Chunk: an error number and a message.
pub const TYPE_ERROR: u16 = TYPE_ERROR_BIT + 1;

/// The metadata context that tells holes and zeros from data.
pub const ALLOCATION: &str = "base:allocation";
/// Flag of [`ALLOCATION`]: the blocks take no space.
pub const STATE_HOLE: u32 = 1;
/// Flag of [`ALLOCATION`]: the blocks read as zeros.
pub const STATE_ZERO: u32 = 2;
/// What the name of QEMU's metadata context of a dirty bitmap begins with; the bitmap's name follows.
pub const DIRTY_BITMAP: &str = "qemu:dirty-bitmap:";
/// Flag of [`DIRTY_BITMAP`]: the blocks were written since the bitmap began.
pub const STATE_DIRTY: u32 = 1;

/// Error number: not permitted.
pub const EPERM: u32 = 1;
/// Error number: reading or writing failed.
pub const EIO: u32 = 5;
/// Error number: out of memory.
pub const ENOMEM: u32 = 12;
/// Error number: the request is invalid.
pub const EINVAL: u32 = 22;
/// Error number: no space left.
pub const ENOSPC: u32 = 28;
/// Error number: the reply would be too long.
pub const EOVERFLOW: u32 = 75;
/// Error number: not supported.
pub const ENOTSUP: u32 = 95;

/// Bytes of data that every server takes and gives in one request.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Bytes of a name at most.
pub const NAME_BYTES_MAX: usize = 4096;
/// Bytes of the data of an option, or of a reply to one, that are accepted; every name fits.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;
