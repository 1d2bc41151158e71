//! Sizes, rates and durations as users write them.

/// Parses a size in bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    bytes_of(text).ok_or_else(|| format!("{text:?} is not a size: 64M, 1.5G, 512MiB, bytes"))
}

/// Bytes a second, of `500k`, `50M`, `1.5G`, `20MiB`, or a number of bytes.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    match bytes_of(text.trim_end_matches("/s")) {
        None => Err(format!("{text:?} is not a rate: 50M, 1.5G, 20MiB, bytes a second")),
        // A stop waits for the read that is under way.
        Some(0..500_000) => Err(format!("{text:?} is too slow: 500k at least")),
        Some(rate) => Ok(rate),
    }
}

/// Seconds, of hours, days or weeks: `48h`, `14d`, `8w`.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let seconds = || {
        let unit = match text.chars().next_back()? {
            'h' => 3600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            _ => return None,
        };
        text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(unit)
    };
    seconds().ok_or_else(|| format!("{text:?} is not a duration: 48h, 14d, 8w"))
}

/// `90s`, `10m`, `2h` in seconds, at least one.
pub fn parse_time_limit(text: &str) -> Result<u64, String> {
    let of = |unit: char, seconds: u64| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(seconds);
    let seconds = of('s', 1).or_else(|| of('m', 60)).or_else(|| of('h', 3600)).filter(|s| *s > 0);
    seconds.ok_or_else(|| format!("{text:?} is not a time limit: 90s, 10m, 2h"))
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
    fn durations_are_understood() {
        for (text, seconds) in [("0h", 0), ("48h", 172_800), ("14d", 1_209_600), ("8w", 4_838_400)] {
            assert_eq!(parse_duration(text), Ok(seconds), "{text}");
        }
        for text in
            ["", "d", "3", "1m", "-1d", "1.5d", "99999999999999999999d", "9999999999999999999w", "3 d", "1ä"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

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
