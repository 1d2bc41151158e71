//! Decompressing one cluster.

use flate2::{Decompress, FlushDecompress, Status};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

/// How clusters are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// A bare deflate stream.
    Deflate,
    /// A deflate stream in a zlib envelope.
    Zlib,
    /// A zstd frame.
    Zstd,
}

/// The largest window a zstd frame may ask memory for; clusters are smaller.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// A decompressor, used for one cluster after the other.
pub(crate) enum Decoder {
    Inflate(Decompress, bool),
    Zstd(DCtx<'static>),
}

impl Decoder {
    /// A decompressor for clusters that are compressed as `packing` says.
    pub fn new(packing: Packing) -> Self {
        match packing {
            Packing::Deflate => Self::Inflate(Decompress::new(false), false),
            Packing::Zlib => Self::Inflate(Decompress::new(true), true),
            Packing::Zstd => Self::Zstd(DCtx::create()),
        }
    }

    /// Decompresses until `out` is full or the stream ends; bytes after the stream are no error.
    pub fn decode(&mut self, packed: &[u8], out: &mut [u8]) -> std::result::Result<usize, String> {
        match self {
            Self::Inflate(inflate, zlib) => {
                inflate.reset(*zlib);
                let status =
                    inflate.decompress(packed, out, FlushDecompress::Finish).map_err(|e| e.to_string())?;
                let n = inflate.total_out() as usize;
                if n < out.len() && status != Status::StreamEnd {
                    return Err(format!("the deflate stream is cut off after {n} bytes"));
                }
                Ok(n)
            }
            Self::Zstd(context) => {
                let describe = |code| zstd_safe::get_error_name(code).to_owned();
                context
                    .reset(ResetDirective::SessionOnly)
                    .and_then(|_| context.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX)))
                    .map_err(describe)?;
                let len = out.len();
                let mut input = InBuffer::around(packed);
                let mut output = OutBuffer::around(out);
                loop {
                    let before = (input.pos(), output.pos());
                    let left = context.decompress_stream(&mut output, &mut input).map_err(describe)?;
                    if left == 0 || output.pos() == len {
                        return Ok(output.pos());
                    }
                    if (input.pos(), output.pos()) == before {
                        return Err(format!("the zstd frame is cut off after {} bytes", before.1));
                    }
                }
            }
        }
    }
}
