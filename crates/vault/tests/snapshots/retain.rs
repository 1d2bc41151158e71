//! Retention: what stays, by the rule as the documentation says it.

use crate::common;
use crate::common::{rng, seed};
use rand::rngs::StdRng;
use rand::RngExt;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use vault::{utc, BackupOptions, Progress, RetentionRules, VaultError, BALANCED};

/// Which snapshots stay, by going through the periods from the newest to the oldest, as one would with a calendar. `dates`
/// are what `date` says of the times: hour, day, week of its ISO year, month, year.
fn by_the_book(rules: &RetentionRules, times: &[i64], dates: &[[String; 5]]) -> BTreeSet<usize> {
    let mut newest_first: Vec<usize> = (0..times.len()).collect();
    newest_first.sort_by_key(|n| (times[*n], *n));
    newest_first.reverse();
    let mut stay: BTreeSet<usize> = newest_first.iter().take(rules.last as usize).copied().collect();
    if let (Some(seconds), Some(newest)) = (rules.within_seconds, newest_first.first()) {
        let oldest = times[*newest] - seconds as i64;
        stay.extend((0..times.len()).filter(|n| times[*n] >= oldest));
    }
    let counts = [rules.hourly, rules.daily, rules.weekly, rules.monthly, rules.yearly];
    for (kind, count) in counts.into_iter().enumerate() {
        let mut periods: Vec<&String> = Vec::new();
        for n in &newest_first {
            let period = &dates[*n][kind];
            if !periods.contains(&period) && periods.len() < count as usize {
                periods.push(period);
                stay.insert(*n);
            }
        }
    }
    stay
}

/// What `date` says of times in a zone.
fn dates(times: &[i64], zone: &str) -> Vec<[String; 5]> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("times");
    let lines: String = times.iter().map(|t| format!("@{t}\n")).collect();
    std::fs::write(&file, lines).unwrap();
    let mut date = Command::new("date");
    date.env("TZ", zone).arg("-f").arg(&file).arg("+%Y-%m-%d-%H %Y-%m-%d %G-%V %Y-%m %Y");
    let said = String::from_utf8(date.output().unwrap().stdout).unwrap();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
    said.lines().map(words).collect()
}

/// Times of one history: regular ones, irregular ones, some of them equal, before and after 1970.
fn history(rng: &mut StdRng) -> Vec<i64> {
    let mut time: i64 = rng.random_range(-2_000_000_000..4_000_000_000);
    let step = [600, 3600, 86_400, 7 * 86_400, 40 * 86_400][rng.random_range(0..5)];
    let mut times = Vec::new();
    for _ in 0..rng.random_range(0..60) {
        times.push(time);
        time += match rng.random_range(0..6) {
            0 => 0,
            1 => rng.random_range(-step..step),
            2 => rng.random_range(0..10 * step),
            _ => step,
        };
    }
    times
}

fn rules(rng: &mut StdRng) -> RetentionRules {
    let mut n = |most: u32| if rng.random_bool(0.5) { rng.random_range(0..most) } else { 0 };
    let (last, hourly, daily, weekly, monthly, yearly) = (n(5), n(30), n(20), n(10), n(15), n(6));
    let within_seconds = rng.random_bool(0.3).then(|| rng.random_range(0..100 * 86_400));
    RetentionRules { last, hourly, daily, weekly, monthly, yearly, within_seconds }
}

/// UTC, and zones whose clocks are put forward and back: by an hour, by half an hour, to the other side of the date line.
const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu"];

#[test]
fn what_stays_is_what_the_documented_rule_says() {
    let mut rng = rng(seed("what_stays_is_what_the_documented_rule_says"));
    for name in ZONES {
        if name != "UTC" && !Path::new("/usr/share/zoneinfo").join(name).exists() {
            testing::skip("the time zone database, for date", name);
            continue;
        }
        let zone = jiff::tz::TimeZone::get(name).unwrap();
        let clock = |time: i64| {
            let time = jiff::Timestamp::from_second(time).unwrap();
            time.as_second() + i64::from(zone.to_offset(time).seconds())
        };
        let count = if name == "UTC" { 10_000 } else { 2_000 };
        let histories: Vec<Vec<i64>> = (0..count).map(|_| history(&mut rng)).collect();
        let all = dates(&histories.concat(), name);
        let mut all = &all[..];
        for times in &histories {
            let of_history;
            (of_history, all) = all.split_at(times.len());
            let rules = rules(&mut rng);
            let kept = rules.apply(times, &clock);
            let stay: BTreeSet<usize> = (0..times.len()).filter(|n| !kept[*n].is_empty()).collect();
            assert_eq!(stay, by_the_book(&rules, times, of_history), "{name}: {rules:?} of {times:?}");
        }
    }
}

#[test]
fn held_snapshots_stay_and_nothing_changes_in_a_dry_run() {
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let mut ids = Vec::new();
    for day in 1..=10i64 {
        let time = Some(1_790_000_000 + day * 86_400);
        let options = BackupOptions { policy: Some(BALANCED), time, ..BackupOptions::default() };
        let bytes = vec![day as u8; 100_000];
        let source = common::source(&bytes, true);
        ids.push(vault.backup("vm/d", source, &options, &Progress::default()).unwrap().snapshot.id);
    }
    vault.set_held("vm/d", &ids[2].to_string(), true).unwrap();
    let listed = || -> Vec<_> {
        vault.snapshots(Some("vm/d")).unwrap().snapshots.iter().map(|s| s.entry.id).collect()
    };
    let rules = RetentionRules { daily: 3, ..RetentionRules::default() };
    let would = vault.retain("vm/d", &rules, &utc, true).unwrap();
    assert!(would.deletion.deleted.is_empty() && listed() == ids);
    let stay: Vec<_> = would.snapshots.iter().filter(|(_, why)| !why.is_empty()).map(|(s, _)| s.id).collect();
    assert_eq!(stay, [ids[2], ids[7], ids[8], ids[9]]);
    let did = vault.retain("vm/d", &rules, &utc, false).unwrap();
    assert_eq!((did.deletion.deleted.len(), listed()), (6, stay.clone()));
    // Again: nothing goes.
    assert!(vault.retain("vm/d", &rules, &utc, false).unwrap().deletion.deleted.is_empty());
    let nothing = vault.retain("vm/d", &RetentionRules::default(), &utc, false);
    assert!(matches!(nothing, Err(VaultError::Usage(_))), "{nothing:?}");
    assert!(matches!(vault.retain("vm/e", &rules, &utc, false), Err(VaultError::NotFound { .. })));
    for id in &stay {
        common::restore(&vault, "vm/d", &id.to_string()).unwrap();
    }
}

#[test]
fn a_removed_disk_is_gone_unless_others_use_it() {
    let mut rng = rng(seed("a_removed_disk_is_gone_unless_others_use_it"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    let mut bytes = vec![0; 8 << 20];
    rng.fill(&mut bytes[..]);
    common::backup(&vault, "a/d", &bytes, BALANCED).unwrap();
    common::backup(&vault, "b/d", &bytes, BALANCED).unwrap();
    let held = vault.set_held("a/d", "latest", true).unwrap().0.id;
    assert!(matches!(vault.remove("a/d"), Err(VaultError::Refused(_))));
    vault.set_held("a/d", &held.to_string(), false).unwrap();
    let first = vault.remove("a/d").unwrap();
    assert_eq!((first.deletion.deleted.len(), first.is_gone), (1, false), "b has its chunks");
    assert!(common::restore(&vault, "b/d", "latest").unwrap() == bytes);
    let second = vault.remove("b/d").unwrap();
    assert!(second.is_gone && second.deletion.held_up.is_none());
    assert!(vault.snapshots(None).unwrap().snapshots.is_empty());
    vault.gc(false).unwrap();
    let stored = vault.stats(None).unwrap();
    assert!(stored.disks.is_empty(), "{:?}", stored.disks);
    // Its name is free.
    common::backup(&vault, "a/d", &bytes, BALANCED).unwrap();
    assert!(common::restore(&vault, "a/d", "latest").unwrap() == bytes);
}
