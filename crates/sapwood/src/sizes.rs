//! Sizes and rates as users write them.

/// Parses a size in bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    bytes_of(text).ok_or_else(|| format!("{text:?} is no size: 64M, 1.5G, 512MiB, bytes"))
}

/// Bytes a second, of `500k`, `50M`, `1.5G`, `20MiB`, or a number of bytes.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    match bytes_of(text.trim_end_matches("/s")) {
        None => Err(format!("{text:?} is no rate: 50M, 1.5G, 20MiB, bytes a second")),
        // A stop waits for the read that is under way.
        Some(0..500_000) => Err(format!("{text:?} is too slow: 500k at least")),
        Some(rate) => Ok(rate),
    }
}

/// A number of bytes, with a unit or without.
fn bytes_of(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let factor = match text[digits..].trim().trim_end_matches(['B', 'b']) {
        "" => 1.0,
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        "g" | "G" => 1e9,
        "Ki" | "ki" => 1024.0,
        "Mi" | "mi" => 1024.0 * 1024.0,
        "Gi" | "gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some((number * factor) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_understood() {
        for (text, rate) in [
            ("50M", 50_000_000),
            ("50MB/s", 50_000_000),
            ("1.5G", 1_500_000_000),
            ("20MiB", 20 << 20),
            ("500k", 500_000),
            ("4096000", 4_096_000),
            ("1 Gi", 1 << 30),
        ] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for text in ["", "fast", "-1M", "M", "1T", "0", "499k", "1.2.3M"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
