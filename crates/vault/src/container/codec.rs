//! Compressing and decompressing chunk groups.

use crate::base::policy::CodecChoice;
use format::Codec;
use zstd_safe::{CCtx, CParameter, DCtx};

/// Room that a stored group may save at least, as a fraction of its length: less is not worth decompressing.
const WORTH: usize = 32;

/// Window of 4 MiB: a whole group of the default policy (zstd takes less for smaller ones).
const WINDOW_LOG: u32 = 22;

/// Compresses groups. One for each thread.
pub(crate) struct Packer {
    zstd: CCtx<'static>,
    level: Option<i32>,
}

impl Packer {
    /// With a context of its own, which it uses again for each group.
    pub fn new() -> Self {
        Packer { zstd: CCtx::create(), level: None }
    }

    /// Compresses `raw` into `out`. `busy` tells that compression holds everything else up.
    pub fn pack(&mut self, choice: CodecChoice, busy: bool, raw: &[u8], out: &mut Vec<u8>) -> Codec {
        out.clear();
        let shrinks = choice != CodecChoice::Raw && chunk::compressible(raw);
        let codec = match choice {
            _ if !shrinks => None,
            CodecChoice::Raw => None,
            CodecChoice::Lz4 => lz4(raw, out).then_some(Codec::Lz4),
            CodecChoice::Zstd(level) => self.zstd(level, raw, out).then_some(Codec::Zstd),
            CodecChoice::Auto { idle, busy: fast } => {
                let level = if busy { fast } else { idle };
                self.zstd(level, raw, out).then_some(Codec::Zstd)
            }
        };
        match codec {
            Some(c) if out.len() + raw.len() / WORTH < raw.len() => c,
            _ => {
                out.clear();
                out.extend_from_slice(raw);
                Codec::Raw
            }
        }
    }

    fn zstd(&mut self, level: i32, raw: &[u8], out: &mut Vec<u8>) -> bool {
        if self.level != Some(level) {
            let set = self
                .zstd
                .set_parameter(CParameter::CompressionLevel(level))
                .and_then(|_| self.zstd.set_parameter(CParameter::WindowLog(WINDOW_LOG)));
            self.level = set.is_ok().then_some(level);
        }
        out.reserve(zstd_safe::compress_bound(raw.len()));
        self.zstd.compress2(out, raw).is_ok()
    }
}

fn lz4(raw: &[u8], out: &mut Vec<u8>) -> bool {
    out.resize(lz4_flex::block::get_maximum_output_size(raw.len()), 0);
    match lz4_flex::block::compress_into(raw, out) {
        Ok(n) => {
            out.truncate(n);
            true
        }
        Err(_) => false,
    }
}

/// Decompresses groups. One for each thread.
pub(crate) struct Unpacker {
    zstd: DCtx<'static>,
}

impl Unpacker {
    /// With a context of its own, which it uses again for each group.
    pub fn new() -> Self {
        Unpacker { zstd: DCtx::create() }
    }

    /// Decompresses a group that must have exactly `raw_len` bytes.
    pub fn unpack(
        &mut self,
        codec: Codec,
        stored: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        out.clear();
        let n = match codec {
            Codec::Raw => {
                out.extend_from_slice(stored);
                out.len()
            }
            Codec::Zstd => {
                out.reserve(raw_len);
                self.zstd.decompress(out, stored).map_err(|_| "does not decompress")?
            }
            Codec::Lz4 => {
                out.resize(raw_len, 0);
                lz4_flex::block::decompress_into(stored, out).map_err(|_| "does not decompress")?
            }
        };
        if n == raw_len {
            Ok(())
        } else {
            Err("decompresses to another length than its table says")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_back_with_every_codec() {
        let text: Vec<u8> = (0..100_000u32).flat_map(|n| (n / 7 % 977).to_le_bytes()).collect();
        let noise: Vec<u8> =
            (0..50_000u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect();
        let (mut p, mut u) = (Packer::new(), Unpacker::new());
        let (mut stored, mut back) = (Vec::new(), Vec::new());
        for choice in ["auto", "zstd:1", "zstd:19", "lz4", "none"] {
            let choice: CodecChoice = choice.parse().unwrap();
            for raw in [&text, &noise, &Vec::new(), &vec![1]] {
                let codec = p.pack(choice, false, raw, &mut stored);
                u.unpack(codec, &stored, raw.len(), &mut back).unwrap();
                assert_eq!(&back, raw);
                assert!(u.unpack(codec, &stored, raw.len() + 1, &mut back).is_err());
            }
        }
        assert!(stored.len() <= text.len());
    }
}
