//! Dates and times, in UTC: without leap seconds, in the Gregorian calendar.

use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::strtime::BrokenDownTime;
use jiff::SignedDuration;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The last second of a day.
const END_OF_DAY: Time = Time::constant(23, 59, 59, 0);

/// How a time of day is written: with or without seconds, in UTC or with an offset.
const CLOCKS: [&str; 6] = ["%H:%M", "%H:%M:%S", "%H:%MZ", "%H:%M:%SZ", "%H:%M%:::z", "%H:%M:%S%:::z"];

/// By more than this no clock is ahead of UTC or behind it.
const OFFSET_MAX_SECONDS: i32 = 15 * 3600 - 1;

/// Seconds since 1970 of `YYYY-MM-DD[(T| )HH:MM[:SS][Z|(+|-)HH[:MM]]]`, in UTC unless an offset says otherwise. A day alone
/// means its end. A leap second is the second before it. Only times whose year in UTC has four digits are known:
/// [`format_time`] writes each of them so that it is read again.
pub fn parse_time(text: &str) -> Option<i64> {
    let (day, clock) = match text.find(['T', ' ']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let date = Date::strptime("%Y-%m-%d", day).ok()?;
    let (time, ahead) = match clock {
        Some(clock) => CLOCKS.iter().find_map(|form| read_clock(form, clock))?,
        None => (END_OF_DAY, 0),
    };
    let seconds = date.to_datetime(time).duration_since(EPOCH).as_secs() - i64::from(ahead);
    let shown = EPOCH.checked_add(SignedDuration::from_secs(seconds)).ok()?;
    (shown.year() >= 0).then_some(seconds)
}

/// A time of day, and the seconds by which its clock is ahead of UTC.
fn read_clock(form: &str, clock: &str) -> Option<(Time, i32)> {
    let read = BrokenDownTime::parse(form, clock).ok()?;
    let ahead = read.offset().map_or(0, |offset| offset.seconds());
    (ahead.abs() <= OFFSET_MAX_SECONDS).then_some((read.to_time().ok()?, ahead))
}

/// `YYYY-MM-DDTHH:MM:SSZ`: ISO 8601, in UTC. [`parse_time`] reads it.
pub fn format_time(time: i64) -> String {
    format!("{}Z", civil(time))
}

/// What a clock in UTC shows at a time in seconds since 1970; the first or last second of the calendar where it has no such
/// time.
pub(crate) fn civil(time: i64) -> DateTime {
    EPOCH.saturating_add(SignedDuration::from_secs(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        assert_eq!(parse_time("1970-01-01T00:00"), Some(0));
        assert_eq!(parse_time("2026-11-21 22:00:01Z"), Some(1_795_298_401));
        assert_eq!(parse_time("2024-02-29"), Some(1_709_251_199));
        assert_eq!(parse_time("2016-12-31T23:59:60Z"), parse_time("2016-12-31T23:59:59Z"));
        for same in ["2026-11-22T00:00:01+02:00", "2026-11-21 15:30:01-06:30", "2026-11-22T00:00:01+02"] {
            assert_eq!(parse_time(same), Some(1_795_298_401), "{same}");
        }
        for bad in [
            "",
            "20240101",
            "2024-01-01+02:00",
            "2024-01-01T10:00+2",
            "2024-01-01T10:00+02:60",
            "2024-01-01T10:00+15:00",
            "2024-01-01T10:00+02:00Z",
            "2024-01-01T10:00+-2",
            "2024-01-01T10:00 ",
            "2024-01-01T10:00:00.5",
            "2024",
            "2024-13-01",
            "2026-02-31",
            "2023-02-29",
            "2026-04-31",
            "2024-01-01T25:00",
            "a-b-c",
            "2024-01-01T",
            // In UTC these are in the years -1 and 10000.
            "-001-01-01",
            "0000-01-01T13:59:59+14:00",
            "9999-12-31T10:00-14:00",
        ] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
        // The first and the last are the ends of what four digits of a year can say.
        for t in [-62_167_219_200, -1, 0, 951_782_400, 1_709_251_199, 4_102_444_800, 253_402_300_799] {
            let text = format_time(t);
            assert_eq!(parse_time(&text), Some(t), "{text}");
        }
        // What a damaged object may say.
        for t in [i64::MIN, -62_167_219_201, 253_402_300_800, i64::MAX] {
            assert_eq!(parse_time(&format_time(t)).filter(|read| *read == t), None, "{t}");
        }
    }
}
