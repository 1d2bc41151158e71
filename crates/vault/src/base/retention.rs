//! Retention: which snapshots of a disk rules keep.
//!
//! The rule is that of `restic forget`: of each of the last N hours, days, weeks, months and years that have a snapshot,
//! the newest one stays. What any rule keeps stays. Times are those of the snapshots, as the clocks of a zone show them;
//! weeks begin on Monday (ISO 8601). An hour that comes twice, when clocks are put back, is one hour.

use crate::base::calendar::civil;
use std::collections::HashSet;

/// What the clocks of a zone show at a time, both in seconds since 1970.
pub type Clock<'a> = &'a dyn Fn(i64) -> i64;

/// The clocks of UTC.
pub fn utc(time: i64) -> i64 {
    time
}

/// How many snapshots stay. A rule with 0 keeps none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionRules {
    /// The newest ones.
    pub last: u32,
    /// The newest of each of so many hours.
    pub hourly: u32,
    /// The newest of each of so many days.
    pub daily: u32,
    /// The newest of each of so many weeks.
    pub weekly: u32,
    /// The newest of each of so many months.
    pub monthly: u32,
    /// The newest of each of so many years.
    pub yearly: u32,
    /// Those not older than so many seconds before the newest one.
    pub within_seconds: Option<u64>,
}

/// Why a snapshot stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keeps {
    /// [`RetentionRules::last`].
    Last,
    /// [`RetentionRules::within_seconds`].
    Within,
    /// [`RetentionRules::hourly`].
    Hourly,
    /// [`RetentionRules::daily`].
    Daily,
    /// [`RetentionRules::weekly`].
    Weekly,
    /// [`RetentionRules::monthly`].
    Monthly,
    /// [`RetentionRules::yearly`].
    Yearly,
    /// It is held.
    Held,
}

impl Keeps {
    /// As the options are called.
    pub fn name(self) -> &'static str {
        match self {
            Keeps::Last => "last",
            Keeps::Within => "within",
            Keeps::Hourly => "hourly",
            Keeps::Daily => "daily",
            Keeps::Weekly => "weekly",
            Keeps::Monthly => "monthly",
            Keeps::Yearly => "yearly",
            Keeps::Held => "held",
        }
    }

    /// The number of the period in which a time of a clock is.
    fn period(self, time: i64) -> i64 {
        let day = time.div_euclid(86_400);
        let shown = civil(time);
        let (year, month) = (i64::from(shown.year()), i64::from(shown.month()));
        match self {
            Keeps::Hourly => time.div_euclid(3600),
            Keeps::Daily => day,
            // 1970-01-01 was a Thursday.
            Keeps::Weekly => (day + 3).div_euclid(7),
            Keeps::Monthly => year * 12 + month,
            Keeps::Yearly => year,
            Keeps::Last | Keeps::Within | Keeps::Held => time,
        }
    }
}

impl RetentionRules {
    /// Whether no rule keeps anything.
    pub fn is_empty(&self) -> bool {
        self.counts().iter().all(|(_, n)| *n == 0) && self.last == 0 && self.within_seconds.is_none()
    }

    fn counts(&self) -> [(Keeps, u32); 5] {
        [
            (Keeps::Hourly, self.hourly),
            (Keeps::Daily, self.daily),
            (Keeps::Weekly, self.weekly),
            (Keeps::Monthly, self.monthly),
            (Keeps::Yearly, self.yearly),
        ]
    }

    /// Which rules keep each of the snapshots of these times, seconds since 1970; those without any may go. Of two of one
    /// time the later one in the list is the newer one. Periods are those of a clock.
    pub fn apply(&self, times: &[i64], clock: Clock<'_>) -> Vec<Vec<Keeps>> {
        let mut kept = vec![Vec::new(); times.len()];
        let mut newest_first: Vec<usize> = (0..times.len()).collect();
        newest_first.sort_by_key(|n| std::cmp::Reverse((times[*n], *n)));
        let Some(newest) = newest_first.first().map(|n| times[*n]) else { return kept };
        for n in newest_first.iter().take(self.last as usize) {
            kept[*n].push(Keeps::Last);
        }
        if let Some(seconds) = self.within_seconds {
            for n in newest_first.iter().filter(|n| newest.abs_diff(times[**n]) <= seconds) {
                kept[*n].push(Keeps::Within);
            }
        }
        for (rule, count) in self.counts() {
            // Where clocks are put back, a period may begin twice.
            let mut seen = HashSet::new();
            for n in &newest_first {
                if seen.len() < count as usize && seen.insert(rule.period(clock(times[*n]))) {
                    kept[*n].push(rule);
                }
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::calendar::parse_time;

    fn kept(rules: &RetentionRules, times: &[&str]) -> Vec<String> {
        let seconds: Vec<i64> = times.iter().map(|t| parse_time(t).unwrap_or_default()).collect();
        let names = |k: Vec<Keeps>| k.into_iter().map(Keeps::name).collect::<Vec<_>>().join(" ");
        rules.apply(&seconds, &utc).into_iter().map(names).collect()
    }

    #[test]
    fn the_newest_of_each_period_stays() {
        let rules = RetentionRules { last: 1, daily: 2, monthly: 3, ..RetentionRules::default() };
        let times = [
            "2026-08-31T12:00",
            "2026-10-01T00:00",
            "2026-10-31T23:59:59",
            "2026-11-20T08:00",
            "2026-11-20T09:00",
            "2026-11-22T10:00",
            "2026-11-22T11:00",
        ];
        assert_eq!(kept(&rules, &times), ["monthly", "", "monthly", "", "daily", "", "last daily monthly"]);
    }

    #[test]
    fn weeks_begin_on_monday_and_hours_are_those_of_the_clock() {
        let rules = RetentionRules { weekly: 2, hourly: 2, ..RetentionRules::default() };
        // A Sunday, the Monday after it, and two minutes of one hour.
        let times = [
            "2026-11-15T23:00",
            "2026-11-16T00:00",
            "2026-11-22T23:59",
            "2026-11-23T01:00",
            "2026-11-23T01:59",
        ];
        assert_eq!(kept(&rules, &times), ["", "", "hourly weekly", "", "hourly weekly"]);
        let years = RetentionRules { yearly: 5, ..RetentionRules::default() };
        assert_eq!(kept(&years, &["1969-12-31T23:59:59", "1970-01-01T00:00", "2026-01-01"]), ["yearly"; 3]);
    }

    #[test]
    fn within_counts_from_the_newest() {
        let rules = RetentionRules { within_seconds: Some(2 * 86_400), ..RetentionRules::default() };
        let times = ["2026-11-19T12:00", "2026-11-20T12:00", "2026-11-22T12:00", "2026-11-20T11:59:59"];
        assert_eq!(kept(&rules, &times), ["", "within", "within", ""]);
        assert_eq!(kept(&rules, &[]), [""; 0]);
    }

    #[test]
    fn of_equal_times_the_later_one_is_newer() {
        let rules = RetentionRules { last: 1, daily: 1, ..RetentionRules::default() };
        assert_eq!(kept(&rules, &["2026-11-22T12:00"; 3]), ["", "", "last daily"]);
    }
}
