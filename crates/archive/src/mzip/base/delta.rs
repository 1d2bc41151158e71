//! Chunks as deltas to others: zstd frames that have the other chunk as prefix.

use std::io;

/// The level of zstd that makes deltas.
const LEVEL: i32 = 9;

/// The delta from a base to a chunk.
///
/// # Errors
/// If the compressor fails.
pub(in crate::mzip) fn delta(base: &[u8], chunk: &[u8]) -> io::Result<Vec<u8>> {
    let mut to = Vec::with_capacity(zstd_safe::compress_bound(chunk.len()));
    let mut context = zstd_safe::CCtx::create();
    context.set_parameter(zstd_safe::CParameter::CompressionLevel(LEVEL)).map_err(of_zstd)?;
    context.ref_prefix(base).map_err(of_zstd)?;
    context.compress2(&mut to, chunk).map_err(of_zstd)?;
    Ok(to)
}

/// The chunk of this length that a delta makes of a base.
///
/// # Errors
/// If it makes none, or one of another length.
pub(in crate::mzip) fn undone(base: &[u8], delta: &[u8], bytes: usize) -> io::Result<Vec<u8>> {
    let mut to = Vec::with_capacity(bytes);
    let mut context = zstd_safe::DCtx::create();
    context.ref_prefix(base).map_err(of_zstd)?;
    context.decompress(&mut to, delta).map_err(of_zstd)?;
    if to.len() != bytes {
        return Err(io::Error::other(format!("it makes {} bytes, {bytes} expected", to.len())));
    }
    Ok(to)
}

fn of_zstd(code: usize) -> io::Error {
    io::Error::other(zstd_safe::get_error_name(code))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn deltas_are_short_and_come_back() {
        let base = testing::noise(1, 8000);
        let mut chunk = base.clone();
        chunk[4000] ^= 1;
        chunk.splice(100..100, [1, 2, 3]);
        let made = delta(&base, &chunk).unwrap();
        assert!(made.len() < 100, "{}", made.len());
        assert_eq!(undone(&base, &made, chunk.len()).unwrap(), chunk);
        for bytes in [0, chunk.len() - 1, chunk.len() + 1] {
            assert!(undone(&base, &made, bytes).is_err());
        }
        assert!(undone(&base, b"none", 10).is_err());
        assert!(undone(&base[..10], &made, chunk.len()).is_err());
    }
}
