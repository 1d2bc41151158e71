//! Values of options that several commands have.

use std::convert::Infallible;

/// Parses a percentage.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|p: &f64| *p > 0.0 && *p <= 100.0);
    percent.ok_or_else(|| format!("{text:?} is not a percentage: more than 0, at most 100"))
}

/// Parses octal permissions.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} is not a mode: three octal digits, such as 644"))
}

/// The name of a disk or snapshot. New names never begin with a dash; `./-vm/disk` names an old one that does.
pub fn parse_name(text: &str) -> Result<String, Infallible> {
    Ok(text.strip_prefix("./").unwrap_or(text).to_owned())
}
