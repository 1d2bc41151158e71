//! Backups of the disks of a running machine: `qmp:SOCKET#NODE`, `qmp:SOCKET` for all disks of a QEMU at one instant, and
//! `libvirt:DOMAIN`, for which libvirt carries out the same steps ([`libvirt`]).
//!
//! 1. Exports, jobs and nodes that killed backups left in QEMU are removed ([`leftovers`], [`bitmaps::settle`]).
//! 2. In one QEMU transaction: the next bitmap begins, a fleecing job saves old data before the guest overwrites it,
//!    and the old bitmap stops. This is the point in time ([`qemu`]).
//! 3. The fleecing node is exported over NBD with the old bitmap; the backup reads the ranges that are dirty in the
//!    bitmap.
//! 4. The old bitmap is removed after the snapshot is committed. If the backup fails, both bitmaps are merged.
//!
//! A bitmap is called `sapwood-VAULT-SNAPSHOT`: it records what changed since that snapshot, and is used only while
//! that is the newest one. If no bitmap can be used, the whole disk is read, and the report says why.

mod agent;
mod bitmaps;
mod definition;
mod leftovers;
mod libvirt;
mod names;
mod node;
mod point;
mod qemu;
mod qmp;
mod scratch;
mod users;
mod watched;

pub use agent::{freeze, is_guest_frozen, Freeze, Frozen, THAWED_ITSELF};
pub use definition::Definition;
pub use libvirt::{
    all_domains, define, defined_disks, has_domain, relocate, DomainDisk, Relocated, CHECKPOINT_TAG,
    IMAGE_TAG,
};
pub use point::{DiskFormat, DiskRequest, LiveOptions, Point};
pub use watched::WatchedPoint;

use anyhow::Result;
use std::fmt;
use std::path::{Path, PathBuf};
use vault::{VaultError, VaultId};

/// The name that stands, beside a pattern of domains, for those of the machines themselves.
pub const THEIR_OWN_NAMES: &str = "*";

/// The pattern of domains in a source such as `libvirt:web*`.
pub fn domain_pattern(source: &Path) -> Option<&str> {
    source.to_str()?.strip_prefix("libvirt:").filter(|pattern| pattern.contains(['*', '?']))
}

/// Disks of a running machine, as users name them.
#[derive(Clone, Debug)]
pub enum LiveSourceName {
    /// `qmp:SOCKET#NODE`, or `qmp:SOCKET` for all disks.
    Qemu {
        /// Of QEMU's monitor.
        socket: PathBuf,
        /// A block node, or the id or QOM path of a device.
        node: Option<String>,
    },
    /// `libvirt:DOMAIN`: all disks of a domain.
    Libvirt {
        /// Its name, id or UUID.
        domain: String,
    },
}

impl fmt::Display for LiveSourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveSourceName::Qemu { socket, node: None } => write!(f, "qmp:{}", socket.display()),
            LiveSourceName::Qemu { socket, node: Some(node) } => write!(f, "qmp:{}#{node}", socket.display()),
            LiveSourceName::Libvirt { domain } => write!(f, "libvirt:{domain}"),
        }
    }
}

impl LiveSourceName {
    /// Understands a source; `None` where it is nothing of the kind.
    pub fn parse(source: &Path) -> Option<Result<Self>> {
        let source_text = source.to_str()?;
        if let Some(domain) = source_text.strip_prefix("libvirt:") {
            // What virsh would take for an option is no name of a domain either.
            if domain.is_empty() || domain.starts_with('-') {
                return Some(Err(VaultError::Usage(format!(
                    "{source_text} names no domain; write libvirt:DOMAIN"
                ))
                .into()));
            }
            return Some(Ok(LiveSourceName::Libvirt { domain: domain.into() }));
        }
        let rest = source_text.strip_prefix("qmp:")?;
        let (socket, node) = match rest.rsplit_once('#') {
            Some((socket, node)) => (socket, Some(node)),
            None => (rest, None),
        };
        if socket.is_empty() || node.is_some_and(str::is_empty) {
            let why = format!(
                "{} names no socket, or no node; write qmp:SOCKET#NODE, or qmp:SOCKET for all disks",
                source.display()
            );
            return Some(Err(VaultError::Usage(why).into()));
        }
        Some(Ok(LiveSourceName::Qemu { socket: socket.into(), node: node.map(str::to_owned) }))
    }

    /// Whether all disks of a machine are meant.
    pub fn is_machine(&self) -> bool {
        !matches!(self, LiveSourceName::Qemu { node: Some(_), .. })
    }

    /// The one disk that is meant, or all that the guest may write to, by names that [`Self::take`] knows.
    pub fn disks(&self) -> Result<Vec<String>> {
        match self {
            LiveSourceName::Qemu { node: Some(node), .. } => Ok(vec![node.clone()]),
            LiveSourceName::Qemu { socket, node: None } => {
                node::writable_disks(&mut qmp::Qmp::connect(socket)?)
            }
            LiveSourceName::Libvirt { domain } => libvirt::disks_of(domain),
        }
    }

    /// All disks of a domain of libvirt that is off; `None` where it is not, and for a QEMU, which runs.
    pub fn disks_if_off(&self) -> Result<Option<Vec<DomainDisk>>> {
        match self {
            LiveSourceName::Qemu { .. } => Ok(None),
            LiveSourceName::Libvirt { domain } => libvirt::disks_if_off(domain),
        }
    }

    /// Takes one point in time of all of `wanted`.
    pub fn take(&self, how: &LiveOptions, vault: VaultId, wanted: &[DiskRequest]) -> Result<Box<dyn Point>> {
        Ok(match self {
            LiveSourceName::Qemu { socket, .. } => {
                Box::new(qemu::QemuPoint::take(socket, how, vault, wanted)?)
            }
            LiveSourceName::Libvirt { .. } if how.agent.is_some() => {
                let why = "--agent is for qmp: sources; libvirt talks to the guest's agent itself";
                return Err(VaultError::Usage(why.into()).into());
            }
            LiveSourceName::Libvirt { domain } => {
                Box::new(libvirt::LibvirtPoint::take(domain, &how.scratch, vault, wanted)?)
            }
        })
    }

    /// What the machine is made of.
    pub fn definition(&self) -> Result<Definition> {
        match self {
            LiveSourceName::Qemu { socket, .. } => Definition::of_qemu(&qmp::Qmp::connect(socket)?),
            LiveSourceName::Libvirt { domain } => Ok(Definition::new(libvirt::definition(domain)?)),
        }
    }
}
