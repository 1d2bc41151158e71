//! Schedules against tables of known times, and against a walk minute by minute.

use super::*;
use jiff::civil::DateTime;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn at(text: &str) -> i64 {
    vault::parse_time(text).unwrap()
}

fn zone(name: &str) -> TimeZone {
    Zone::parse(name).unwrap().rules().clone()
}

#[track_caller]
fn check(schedule: &str, zone_name: &str, now: &str, previous: &str, next: &str) {
    let (schedule, zone) = (Schedule::parse(schedule).unwrap(), zone(zone_name));
    let shown = |t: Option<i64>| vault::format_time(t.unwrap()).replace('T', " ").replace('Z', "");
    assert_eq!(shown(schedule.previous(at(now), &zone)), previous, "previous");
    assert_eq!(shown(schedule.next(at(now), &zone)), next, "next");
}

#[test]
fn due_times_are_found_over_the_ends_of_days_and_years() {
    check("hourly", "UTC", "2026-12-31T23:30", "2026-12-31 23:00:00", "2027-01-01 00:00:00");
    check("every 4h", "UTC", "2026-12-31T20:00", "2026-12-31 20:00:00", "2027-01-01 00:00:00");
    check("every 15m", "UTC", "2026-11-21T22:14:59", "2026-11-21 22:00:00", "2026-11-21 22:15:00");
    check("daily 02:30", "UTC", "2027-01-01T02:29:59", "2026-12-31 02:30:00", "2027-01-01 02:30:00");
    // 2026-11-22 is a Sunday.
    check("weekly sun 03:00", "UTC", "2026-11-22T03:00", "2026-11-22 03:00:00", "2026-11-29 03:00:00");
    check("weekly mon 00:00", "UTC", "2026-12-31", "2026-12-28 00:00:00", "2027-01-04 00:00:00");
    check("monthly 1 04:00", "UTC", "2026-12-31", "2026-12-01 04:00:00", "2027-01-01 04:00:00");
}

#[test]
fn leap_days_are_days() {
    check("daily 12:00", "UTC", "2028-02-29T11:00", "2028-02-28 12:00:00", "2028-02-29 12:00:00");
    check("monthly 1 00:00", "UTC", "2028-02-29", "2028-02-01 00:00:00", "2028-03-01 00:00:00");
    check("weekly tue 06:00", "UTC", "2028-03-01T00:00", "2028-02-29 06:00:00", "2028-03-07 06:00:00");
}

#[test]
fn clocks_of_a_zone_count() {
    // Winter time is UTC+1, summer time UTC+2.
    check("daily 02:30", "Europe/Berlin", "2026-01-10T12:00", "2026-01-10 01:30:00", "2026-01-11 01:30:00");
    check("daily 02:30", "Europe/Berlin", "2026-07-10T12:00", "2026-07-10 00:30:00", "2026-07-11 00:30:00");
    check(
        "monthly 1 00:30",
        "Europe/Berlin",
        "2026-06-30T22:30",
        "2026-06-30 22:30:00",
        "2026-07-31 22:30:00",
    );
}

/// On 2026-03-29 the clocks of Berlin skip from 02:00 to 03:00 (01:00 UTC); on 2026-10-25 they go back from
/// 03:00 to 02:00.
#[test]
fn a_skipped_time_is_due_later_and_a_repeated_one_once() {
    check("daily 02:30", "Europe/Berlin", "2026-03-29T01:00", "2026-03-28 01:30:00", "2026-03-29 01:30:00");
    check("daily 02:30", "Europe/Berlin", "2026-03-29T12:00", "2026-03-29 01:30:00", "2026-03-30 00:30:00");
    check("daily 02:30", "Europe/Berlin", "2026-10-25T00:30", "2026-10-25 00:30:00", "2026-10-26 01:30:00");
    check("daily 02:30", "Europe/Berlin", "2026-10-25T01:45", "2026-10-25 00:30:00", "2026-10-26 01:30:00");
    check("hourly", "Europe/Berlin", "2026-10-25T00:10", "2026-10-25 00:00:00", "2026-10-25 02:00:00");
}

#[test]
fn what_is_no_schedule_is_refused_with_what_may_be_written() {
    for (text, why) in [
        ("", "every 4h"),
        ("nightly", "daily 02:30"),
        ("daily", "daily 02:30"),
        ("daily 2:30", "00:00 to 23:59"),
        ("daily 24:00", "00:00 to 23:59"),
        ("daily +2:30", "00:00 to 23:59"),
        ("daily -0:00", "00:00 to 23:59"),
        ("daily 02:30:00", "00:00 to 23:59"),
        ("every 5h", "divide a day"),
        ("every 24h", "divide a day"),
        ("every -4h", "divide a day"),
        ("every 0h", "divide a day"),
        ("every +4h", "divide a day"),
        ("monthly +1 04:00", "1 to 28"),
        ("weekly sunday 03:00", "mon, tue"),
        ("weekly 03:00", "weekly sun 03:00"),
        ("monthly 29 04:00", "1 to 28"),
        ("monthly 0 04:00", "1 to 28"),
        ("hourly 15", "hourly, every"),
    ] {
        let said = Schedule::parse(text).unwrap_err();
        assert!(said.contains(why) && said.contains("is not a schedule"), "{text}: {said}");
    }
    assert_eq!(Schedule::parse("  daily   02:30 ").unwrap().text(), "daily 02:30");
}

#[test]
fn zones_are_looked_up() {
    assert!(Zone::parse("Europe/Atlantis").unwrap_err().contains("Europe/Berlin"));
    assert!(Zone::parse("").is_err());
    assert_eq!(
        Zone::parse("Europe/Berlin").unwrap().show(at("2026-07-01T00:00")),
        "2026-07-01T02:00:00+02:00"
    );
    assert_eq!(Zone::default().show(at("2026-07-01T00:00")), "2026-07-01T00:00:00Z");
}

/// Whether a clock shows a due time, by the text of the schedule.
fn is_shown(schedule: &str, clock: DateTime) -> bool {
    let words: Vec<&str> = schedule.split(' ').collect();
    let shows = |text: &str| text == format!("{:02}:{:02}", clock.hour(), clock.minute());
    let minute_of_day = i64::from(clock.hour()) * 60 + i64::from(clock.minute());
    match words[..] {
        ["hourly"] => clock.minute() == 0,
        ["every", step] if step.ends_with('m') => {
            minute_of_day % step.trim_end_matches('m').parse::<i64>().unwrap() == 0
        }
        ["every", step] => minute_of_day % (60 * step.trim_end_matches('h').parse::<i64>().unwrap()) == 0,
        ["daily", time] => shows(time),
        ["weekly", day, time] => {
            shows(time) && format!("{:?}", clock.weekday()).to_lowercase().starts_with(day)
        }
        ["monthly", day, time] => shows(time) && day.parse() == Ok(clock.day()),
        _ => unreachable!("{schedule}"),
    }
}

/// All due times in a span, by looking at the clock every minute. A time counts when it is shown first; one
/// that is skipped counts as much later as the clock skips.
fn walk(schedule: &str, zone: &TimeZone, from: i64, to: i64) -> BTreeSet<i64> {
    let clock = |t: i64| zone.to_datetime(Timestamp::from_second(t).unwrap());
    let later = |c: DateTime, minutes: i64| c + jiff::SignedDuration::from_mins(minutes);
    let mut due = BTreeSet::new();
    let (mut shown_until, mut before) = (clock(from), clock(from));
    for t in (from + 60..=to).step_by(60) {
        let now = clock(t);
        let mut skipped = 0;
        while later(before, 1 + skipped) < now {
            if is_shown(schedule, later(before, 1 + skipped)) {
                due.insert(t + 60 * skipped);
            }
            skipped += 1;
        }
        if now > shown_until && is_shown(schedule, now) {
            due.insert(t);
        }
        shown_until = shown_until.max(now);
        before = now;
    }
    due
}

/// Instants around which clocks change: by an hour, by half an hour, at and over midnight, by a whole day;
/// and a year's end.
const CHANGES: [(&str, &str); 10] = [
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("America/Sao_Paulo", "2017-10-15T03:00"),
    ("America/Nuuk", "2025-03-30T01:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("UTC", "2027-12-31T23:59"),
];

fn schedules() -> impl Strategy<Value = (String, i64)> {
    let days = prop::sample::select(vec!["mon", "tue", "wed", "thu", "fri", "sat", "sun"]);
    let steps = vec!["15m", "20m", "30m", "1h", "2h", "3h", "4h", "6h", "8h", "12h"];
    // Changes of clocks are at night.
    let hour = || prop_oneof![0..4u32, 0..24u32];
    prop_oneof![
        Just(("hourly".to_owned(), 2)),
        prop::sample::select(steps).prop_map(|s| (format!("every {s}"), 2)),
        (hour(), 0..60u32).prop_map(|(h, m)| (format!("daily {h:02}:{m:02}"), 4)),
        (days, hour(), 0..60u32).prop_map(|(d, h, m)| (format!("weekly {d} {h:02}:{m:02}"), 16)),
        (1..=28u32, hour(), 0..60u32).prop_map(|(d, h, m)| (format!("monthly {d} {h:02}:{m:02}"), 34)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_walk_minute_by_minute_finds_the_same_times(
        (text, days) in schedules(),
        change in 0..CHANGES.len(),
        offset in -3 * 86_400..3 * 86_400_i64,
    ) {
        let (name, around) = CHANGES[change];
        let (schedule, zone, now) = (Schedule::parse(&text).unwrap(), zone(name), at(around) + offset);
        // Two days more than it takes: what is shown twice, and days that are skipped.
        let span = (days + 2) * 86_400;
        let minute = now.div_euclid(60) * 60;
        let due = walk(&text, &zone, minute - span, minute + span);
        prop_assert_eq!(schedule.previous(now, &zone), due.range(..=now).next_back().copied());
        prop_assert_eq!(schedule.next(now, &zone), due.range(now + 1..).next().copied());
    }
}
