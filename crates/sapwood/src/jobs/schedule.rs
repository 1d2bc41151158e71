//! Schedules of jobs: `hourly`, `every 4h`, `daily 02:30`, `weekly sun 03:00`, `monthly 1 04:00`.
//!
//! A schedule is a rule for days and a list of clock times. Times are those of a zone's clocks. A time that
//! the clocks skip is due as much later as they skip (02:30 becomes 03:30); a time that comes twice is due
//! the first time.

#[cfg(test)]
mod tests;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// What a schedule may be, for error messages.
const FORMS: &str = "write hourly, every 4h, daily 02:30, weekly sun 03:00 or monthly 1 04:00";

/// The days that are searched for the next or the previous time: more than any two due times are apart.
const DAYS_MAX: usize = 400;

/// When a job is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    text: String,
    days: Days,
    /// In order.
    times: Vec<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Days {
    All,
    Week(Weekday),
    Month(i8),
}

impl Schedule {
    /// Parses one.
    ///
    /// # Errors
    /// What may be written instead.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        let wrong = |why: &str| format!("{text:?} is not a schedule: {why}");
        let words: Vec<&str> = text.split_whitespace().collect();
        let (days, times) = match words[..] {
            ["hourly"] => (Days::All, every(60)),
            ["every", step] => (Days::All, every(minutes_of_step(step).map_err(wrong)?)),
            ["daily", at] => (Days::All, vec![clock(at).map_err(wrong)?]),
            ["weekly", day, at] => {
                let day = weekday(day).ok_or_else(|| wrong("days are mon, tue, wed, thu, fri, sat, sun"))?;
                (Days::Week(day), vec![clock(at).map_err(wrong)?])
            }
            ["monthly", day, at] => {
                let day = number(day).filter(|d| (1..=28).contains(d)).and_then(|d| i8::try_from(d).ok());
                let day = day.ok_or_else(|| wrong("the day is 1 to 28: every month has these"))?;
                (Days::Month(day), vec![clock(at).map_err(wrong)?])
            }
            _ => return Err(wrong(FORMS)),
        };
        Ok(Schedule { text: words.join(" "), days, times })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first due time after `now`, in seconds since 1970; `None` only at the end of the calendar.
    pub fn next(&self, now: i64, zone: &TimeZone) -> Option<i64> {
        let first = date_of(now, zone)?.yesterday().ok()?;
        let days = std::iter::successors(Some(first), |day| day.tomorrow().ok());
        let later = |day: Date| self.due_on(day, zone).into_iter().filter(|t| *t > now).min();
        days.take(DAYS_MAX).find_map(later)
    }

    /// The last due time up to `now`, in seconds since 1970; `None` only at the beginning of the calendar.
    pub fn previous(&self, now: i64, zone: &TimeZone) -> Option<i64> {
        let first = date_of(now, zone)?.tomorrow().ok()?;
        let days = std::iter::successors(Some(first), |day| day.yesterday().ok());
        let earlier = |day: Date| self.due_on(day, zone).into_iter().filter(|t| *t <= now).max();
        days.take(DAYS_MAX).find_map(earlier)
    }

    /// The due times that belong to a day. Where clocks skip, they may lie on the day after it.
    fn due_on(&self, day: Date, zone: &TimeZone) -> Vec<i64> {
        let is_due = match self.days {
            Days::All => true,
            Days::Week(weekday) => day.weekday() == weekday,
            Days::Month(number) => day.day() == number,
        };
        let instant = |at: &Time| zone.to_ambiguous_timestamp(day.to_datetime(*at)).compatible().ok();
        let instants = self.times.iter().filter(|_| is_due).filter_map(instant);
        instants.map(Timestamp::as_second).collect()
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Schedule::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

fn date_of(time: i64, zone: &TimeZone) -> Option<Date> {
    Some(zone.to_datetime(Timestamp::from_second(time).ok()?).date())
}

/// The times of a day at every so many minutes, from midnight.
fn every(minutes: u16) -> Vec<Time> {
    let all = (0..24 * 60).step_by(usize::from(minutes));
    all.filter_map(|m: u16| Time::new((m / 60) as i8, (m % 60) as i8, 0, 0).ok()).collect()
}

fn minutes_of_step(step: &str) -> Result<u16, &'static str> {
    const WHY: &str = "a step is 15m, 20m, 30m, 1h, 2h, 3h, 4h, 6h, 8h or 12h, which divide a day";
    match step {
        "15m" => Ok(15),
        "20m" => Ok(20),
        "30m" => Ok(30),
        _ => {
            let hours = step.strip_suffix('h').and_then(number).ok_or(WHY)?;
            if [1, 2, 3, 4, 6, 8, 12].contains(&hours) {
                Ok(hours * 60)
            } else {
                Err(WHY)
            }
        }
    }
}

fn clock(text: &str) -> Result<Time, &'static str> {
    const WHY: &str = "a time is 00:00 to 23:59";
    let two_digits = |s: &str| Some(s).filter(|s| s.len() == 2).and_then(number);
    let (hours, minutes) = text.split_once(':').ok_or(WHY)?;
    match (two_digits(hours), two_digits(minutes)) {
        (Some(h @ 0..24), Some(m @ 0..60)) => Time::new(h as i8, m as i8, 0, 0).map_err(|_| WHY),
        _ => Err(WHY),
    }
}

/// A number without a sign.
fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
}

fn weekday(text: &str) -> Option<Weekday> {
    Some(match text {
        "mon" => Weekday::Monday,
        "tue" => Weekday::Tuesday,
        "wed" => Weekday::Wednesday,
        "thu" => Weekday::Thursday,
        "fri" => Weekday::Friday,
        "sat" => Weekday::Saturday,
        "sun" => Weekday::Sunday,
        _ => return None,
    })
}

/// A zone of the time zone database, such as `Europe/Berlin`.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

impl Default for Zone {
    fn default() -> Self {
        Zone(TimeZone::UTC)
    }
}

impl Zone {
    /// Looks one up.
    pub fn parse(name: &str) -> Result<Zone, String> {
        let zone = TimeZone::get(name);
        let zone =
            zone.map_err(|_| format!("{name:?} is not a time zone: UTC, or one like Europe/Berlin"))?;
        Ok(Zone(zone))
    }

    /// Its rules.
    pub fn rules(&self) -> &TimeZone {
        &self.0
    }

    /// What its clocks show at a time, both in seconds since 1970.
    pub fn clock(&self, time: i64) -> i64 {
        Timestamp::from_second(time).map_or(time, |t| time + i64::from(self.0.to_offset(t).seconds()))
    }

    /// A time in it, in ISO 8601: `2026-11-21T22:00:00+01:00`.
    pub fn show(&self, time: i64) -> String {
        match Timestamp::from_second(time) {
            Ok(t) if self.0 != TimeZone::UTC => t.display_with_offset(self.0.to_offset(t)).to_string(),
            _ => vault::format_time(time),
        }
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Zone::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}
