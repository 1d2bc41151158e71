//! Single values of a configuration file, checked as they are read.

use crate::sizes::{parse_duration, parse_rate, parse_time_limit};
use crate::tags;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use vault::{CodecChoice, Policy, RetentionRules, RECOMPRESS_LEVELS};

/// What is verified after the backups of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Nothing.
    #[default]
    No,
    /// As `sapwood verify DISK`.
    Metadata,
    /// As `sapwood verify DISK --data`.
    Data,
}

/// Reads a value and converts it; what the conversion says is the error.
fn checked<'de, D, T, U>(from: D, convert: impl FnOnce(T) -> Result<U, String>) -> Result<U, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    convert(T::deserialize(from)?).map_err(D::Error::custom)
}

/// Bytes a second.
#[derive(Clone, Copy, Debug)]
pub struct Rate(pub u64);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        checked(from, |text: String| parse_rate(&text).map(Rate))
    }
}

/// A level of zstd.
#[derive(Clone, Copy, Debug)]
pub struct Level(pub u8);

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        checked(from, |level: u8| {
            let is_level = RECOMPRESS_LEVELS.contains(&level);
            is_level
                .then_some(Level(level))
                .ok_or_else(|| format!("{level} is not a level of zstd from 1 to 19"))
        })
    }
}

/// A number of seconds.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub u64);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        checked(from, |text: String| parse_duration(&text).map(Seconds))
    }
}

/// A number of seconds for something that takes seconds or minutes.
#[derive(Clone, Copy, Debug)]
pub struct Timeout(pub u64);

impl<'de> Deserialize<'de> for Timeout {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        checked(from, |text: String| parse_time_limit(&text).map(Timeout))
    }
}

/// The name of a policy that there is.
#[derive(Clone, Debug)]
pub struct PolicyName(pub String);

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        checked(from, |name: String| {
            Policy::by_name(&name).map_err(|e| e.to_string())?;
            Ok(PolicyName(name))
        })
    }
}

/// A codec, as `--codec` takes it.
#[derive(Clone, Debug)]
pub struct Codec(pub String);

impl<'de> Deserialize<'de> for Codec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        checked(from, |text: String| {
            text.parse::<CodecChoice>().map_err(|e| e.to_string())?;
            Ok(Codec(text))
        })
    }
}

/// Tags that users may give.
#[derive(Clone, Debug, Default)]
pub struct Tags(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Tags {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        checked(from, |all: BTreeMap<String, String>| {
            all.keys().try_for_each(|name| tags::check_name(name).map_err(|why| format!("{name}: {why}")))?;
            Ok(Tags(all))
        })
    }
}

/// The rules of `sapwood retain`, at least one.
#[derive(Clone, Debug)]
pub struct Rules(pub RetentionRules);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRules {
    last: Option<NonZeroU32>,
    hourly: Option<NonZeroU32>,
    daily: Option<NonZeroU32>,
    weekly: Option<NonZeroU32>,
    monthly: Option<NonZeroU32>,
    yearly: Option<NonZeroU32>,
    within: Option<Seconds>,
}

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        checked(from, |r: WrittenRules| {
            let n = |count: Option<NonZeroU32>| count.map_or(0, NonZeroU32::get);
            let counts = [r.last, r.hourly, r.daily, r.weekly, r.monthly, r.yearly];
            if r.within.is_none() && counts.iter().all(Option::is_none) {
                return Err(
                    "has no rule; allowed are last, hourly, daily, weekly, monthly, yearly, within".into()
                );
            }
            Ok(Rules(RetentionRules {
                last: n(r.last),
                hourly: n(r.hourly),
                daily: n(r.daily),
                weekly: n(r.weekly),
                monthly: n(r.monthly),
                yearly: n(r.yearly),
                within_seconds: r.within.map(|s| s.0),
            }))
        })
    }
}
