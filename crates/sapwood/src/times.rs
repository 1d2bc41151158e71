//! Times as users write them: `2026-11-21T22:00:00Z`, without seconds, with an offset, or a day alone. Without an offset they
//! are in UTC.

/// What a time may be, for messages.
pub const FORMS: &str =
    "give it as 2026-11-21T22:00:00, in UTC, or with an offset, as 2026-11-21T23:00:00+01:00";

const SECONDS_PER_DAY: i64 = 86_400;
/// Seconds by which clocks of different hosts may differ.
const CLOCKS_DIFFER: i64 = 600;

/// Seconds since 1970 of a time; of a day alone, its last second.
pub fn end(text: &str) -> Result<i64, String> {
    vault::parse_time(text).ok_or_else(|| format!("{text:?} is not a time: {FORMS}"))
}

/// Seconds since 1970 of a time; of a day alone, its first second.
pub fn beginning(text: &str) -> Result<i64, String> {
    let is_day = !text.contains(['T', ' ']);
    Ok(end(text)? - if is_day { SECONDS_PER_DAY - 1 } else { 0 })
}

/// Whether a time is later than clocks differ.
pub fn is_future(time: i64) -> bool {
    time > vault::now().saturating_add(CLOCKS_DIFFER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_and_ends() {
        assert_eq!((beginning("1970-01-02"), end("1970-01-02")), (Ok(86_400), Ok(172_799)));
        for text in ["1970-01-02T00:00", "1970-01-02 01:00:00+01:00", "1970-01-02T00:00:00Z"] {
            assert_eq!((beginning(text), end(text)), (Ok(86_400), Ok(86_400)), "{text}");
        }
        assert!(beginning("yesterday").is_err_and(|why| why.contains("UTC")));
    }
}
