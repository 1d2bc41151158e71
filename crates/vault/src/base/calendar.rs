//! Dates and times, in UTC: without leap seconds, in the Gregorian calendar.

pub(crate) const SECONDS_PER_DAY: i64 = 86_400;

/// Seconds since 1970 of `YYYY-MM-DD[(T| )HH:MM[:SS][Z|(+|-)HH[:MM]]]`, in UTC unless an offset says otherwise. A day alone
/// means its end. Only times whose year in UTC has four digits are known: [`format_time`] writes each of them so that
/// it is read again.
pub fn parse_time(text: &str) -> Option<i64> {
    let (day, clock) = match text.find(['T', ' ']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let (clock, ahead) = match clock {
        Some(clock) => {
            let (clock, ahead) = split_offset(clock)?;
            (Some(clock), ahead)
        }
        None => (None, 0),
    };
    let numbers = |s: &str, sep: char| -> Option<Vec<i64>> {
        s.split(sep).map(|p| p.parse().ok().filter(|n| (0..10_000).contains(n))).collect()
    };
    let date = numbers(day, '-')?;
    let [y, m, d] = date[..] else { return None };
    let leap = y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    let days_in_month = match m {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days_in_month).contains(&d) {
        return None;
    }
    let seconds = match clock {
        None => 86_399,
        Some(c) => match numbers(c, ':')?[..] {
            [h, min] if h < 24 && min < 60 => h * 3600 + min * 60,
            [h, min, s] if h < 24 && min < 60 && s < 61 => h * 3600 + min * 60 + s,
            _ => return None,
        },
    };
    let time = days_of(y, m, d) * SECONDS_PER_DAY + seconds - ahead;
    (days_of(0, 1, 1)..days_of(10_000, 1, 1)).contains(&time.div_euclid(SECONDS_PER_DAY)).then_some(time)
}

/// A time of day without its offset, and how many seconds that is ahead of UTC.
fn split_offset(clock: &str) -> Option<(&str, i64)> {
    if let Some(clock) = clock.strip_suffix('Z') {
        return Some((clock, 0));
    }
    let Some(at) = clock.find(['+', '-']) else { return Some((clock, 0)) };
    let offset = &clock[at + 1..];
    let (hours, minutes) = offset.split_once(':').unwrap_or((offset, "00"));
    let two = |text: &str| -> Option<i64> {
        let is_number = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| text.parse().ok())?
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    let seconds = (hours <= 14 && minutes < 60).then_some(hours * 3600 + minutes * 60)?;
    Some((&clock[..at], if clock[at..].starts_with('-') { -seconds } else { seconds }))
}

/// `YYYY-MM-DDTHH:MM:SSZ`: ISO 8601, in UTC. [`parse_time`] reads it.
pub fn format_time(time: i64) -> String {
    let (days, seconds) = (time.div_euclid(SECONDS_PER_DAY), time.rem_euclid(SECONDS_PER_DAY));
    let (y, m, d) = date_of(days);
    format!("{y:04}-{m:02}-{d:02}T{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Days since 1970 of a date. The year is counted from March.
fn days_of(y: i64, m: i64, d: i64) -> i64 {
    let (y, m) = if m <= 2 { (y - 1, m + 9) } else { (y, m - 3) };
    let era = y.div_euclid(400);
    let year_of_era = y - era * 400;
    let day_of_year = (153 * m + 2) / 5 + d - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a day since 1970.
pub(crate) fn date_of(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z - era * 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (d, m) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    (yoe + era * 400 + i64::from(m <= 2), m, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        assert_eq!(parse_time("1970-01-01T00:00"), Some(0));
        assert_eq!(parse_time("2026-11-21 22:00:01Z"), Some(1_795_298_401));
        assert_eq!(parse_time("2024-02-29"), Some(1_709_251_199));
        for same in ["2026-11-22T00:00:01+02:00", "2026-11-21 15:30:01-06:30", "2026-11-22T00:00:01+02"] {
            assert_eq!(parse_time(same), Some(1_795_298_401), "{same}");
        }
        for bad in [
            "",
            "2024-01-01+02:00",
            "2024-01-01T10:00+2",
            "2024-01-01T10:00+02:60",
            "2024-01-01T10:00+15:00",
            "2024-01-01T10:00+02:00Z",
            "2024-01-01T10:00+-2",
            "2024",
            "2024-13-01",
            "2026-02-31",
            "2023-02-29",
            "2026-04-31",
            "2024-01-01T25:00",
            "a-b-c",
            "2024-01-01T",
            // In UTC these are in the years -1 and 10000.
            "0000-01-01T13:59:59+14:00",
            "9999-12-31T10:00-14:00",
            "9999-12-31T23:59:60",
        ] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
        // The first and the last are the ends of what four digits of a year can say.
        for t in [-62_167_219_200, -1, 0, 951_782_400, 1_709_251_199, 4_102_444_800, 253_402_300_799] {
            let text = format_time(t);
            assert_eq!(parse_time(&text), Some(t), "{text}");
        }
    }
}
