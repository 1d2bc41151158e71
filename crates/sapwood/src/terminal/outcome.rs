//! Exit codes and error lines.

use super::escape::escaped;
use super::exit_code::{DAMAGED, FAILED, INTERRUPTED, REFUSED, USAGE};
use super::output::{is_json_printed, print_json};
use super::streams::{self, errln};
use archive::mtar::MtarError;
use archive::mzip::MzipError;
use filesystem::FsError;
use image::ImageError;
use pool::PoolError;
use serde_json::json;
use std::io::ErrorKind;
use std::process::ExitCode;
use store::StoreError;
use vault::VaultError;

/// Tells an error in one line. Returns its exit code.
pub fn told(e: &anyhow::Error) -> ExitCode {
    // The reader of a pipe has gone, and needs no message; what else standard output cannot take, the end tells.
    if !streams::is_unwritable(e) && !is_reader_gone(e) {
        errln!("sapwood: {}", one_line(e));
    }
    exit_code(e)
}

/// Whether an image or an archive was being written to a pipe whose reader has gone.
fn is_reader_gone(e: &anyhow::Error) -> bool {
    if let Some(MtarError::Write(why)) = e.downcast_ref::<MtarError>() {
        return why.kind() == ErrorKind::BrokenPipe;
    }
    if let Some(MzipError::Write(why)) = e.downcast_ref::<MzipError>() {
        return why.kind() == ErrorKind::BrokenPipe;
    }
    let image = match e.downcast_ref::<VaultError>() {
        Some(VaultError::Image(i)) => Some(i),
        _ => e.downcast_ref::<ImageError>(),
    };
    matches!(image, Some(ImageError::Io { path, source, .. })
        if path == "-" && source.kind() == ErrorKind::BrokenPipe)
}

/// Tells an error as the object that `--json` promises, if none was printed yet.
pub fn told_as_json(e: &anyhow::Error) {
    if !streams::is_unwritable(e) && !is_json_printed() {
        print_json(&json!({ "error": one_line(e), "exit_code": code_of(e) }));
    }
}

/// 1 failed, 2 wrong usage, 3 damage, 4 refused, 130 stopped by the user.
pub fn exit_code(e: &anyhow::Error) -> ExitCode {
    ExitCode::from(code_of(e))
}

fn code_of(e: &anyhow::Error) -> u8 {
    match e.downcast_ref::<VaultError>() {
        Some(v) if v.is_damage() => DAMAGED,
        Some(VaultError::Busy { .. } | VaultError::Fenced { .. } | VaultError::Newer { .. }) => REFUSED,
        Some(VaultError::Refused(_)) => REFUSED,
        Some(VaultError::Usage(_)) => USAGE,
        Some(VaultError::Cancelled) => INTERRUPTED,
        Some(VaultError::Store(s)) => of_store(s),
        Some(VaultError::Image(i)) => of_image(i),
        _ => match (e.downcast_ref::<StoreError>(), e.downcast_ref::<ImageError>()) {
            (Some(s), _) => of_store(s),
            (_, Some(i)) => of_image(i),
            _ => match e.downcast_ref::<PoolError>() {
                Some(p) => of_pool(p),
                None => match (e.downcast_ref::<MtarError>(), e.downcast_ref::<MzipError>()) {
                    (Some(m), _) => of_mtar(m),
                    (_, Some(m)) => of_mzip(m),
                    _ => e.downcast_ref::<FsError>().map_or(FAILED, of_file_system),
                },
            },
        },
    }
}

fn of_store(e: &StoreError) -> u8 {
    match e {
        StoreError::Unsuitable { .. } | StoreError::Unwritable { .. } | StoreError::Locked { .. } => REFUSED,
        _ => FAILED,
    }
}

/// What a command of a pool ends with.
pub fn of_pool(e: &PoolError) -> u8 {
    match e {
        PoolError::Damaged { .. } => DAMAGED,
        PoolError::Newer(_) | PoolError::Refused(_) => REFUSED,
        PoolError::Invalid(_) => USAGE,
        PoolError::Io { source, .. } if source.kind() == ErrorKind::ResourceBusy => REFUSED,
        _ => FAILED,
    }
}

fn of_mtar(e: &MtarError) -> u8 {
    match e {
        MtarError::Damaged { .. } => DAMAGED,
        MtarError::Newer(_) => REFUSED,
        MtarError::Alignment(_) => USAGE,
        MtarError::Read(_) | MtarError::Write(_) => FAILED,
    }
}

fn of_mzip(e: &MzipError) -> u8 {
    match e {
        MzipError::Damaged { .. } => DAMAGED,
        MzipError::Newer(_) => REFUSED,
        MzipError::Outside(_) | MzipError::Memory(_) => USAGE,
        MzipError::Stopped => INTERRUPTED,
        MzipError::Read(_)
        | MzipError::Write(_)
        | MzipError::Scratch(_)
        | MzipError::Thread(_)
        | MzipError::Changed => FAILED,
    }
}

fn of_file_system(e: &FsError) -> u8 {
    if is_of_vault(e) {
        DAMAGED
    } else {
        FAILED
    }
}

/// Whether this is damage of the vault below a guest's file system, and not the guest's.
pub fn is_of_vault(e: &FsError) -> bool {
    let FsError::Read(below) = e else { return false };
    let vault = below.get_ref().and_then(|e| e.downcast_ref::<VaultError>());
    vault.is_some_and(VaultError::is_damage)
}

fn of_image(e: &ImageError) -> u8 {
    match e {
        ImageError::Refused { .. }
        | ImageError::Outside { .. }
        | ImageError::InUse { .. }
        | ImageError::Unsupported { .. } => REFUSED,
        ImageError::Address { .. } => USAGE,
        _ => FAILED,
    }
}

/// Says what is damaged beside a result that is whole otherwise.
pub fn with_damage(damaged: &[String]) -> ExitCode {
    for line in damaged {
        errln!("sapwood: {line}; `sapwood verify --data` lists the snapshots it affects, `sapwood repair` may heal it");
    }
    match damaged {
        [] => ExitCode::SUCCESS,
        _ => ExitCode::from(DAMAGED),
    }
}

/// The error with its causes, each said once.
pub fn one_line(e: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in e.chain() {
        let text = cause.to_string();
        if !line.contains(&text) {
            if !line.is_empty() {
                line.push_str(": ");
            }
            line.push_str(&text);
        }
    }
    // What a guest calls its files is not to be obeyed by a terminal.
    escaped(line.replace('\n', " ").as_bytes())
}
