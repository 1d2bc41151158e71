//! The disks of a job and their sources, as `sapwood backup` takes them.

use crate::live::{domain_pattern, Definition, LiveSourceName, THEIR_OWN_NAMES};
use crate::tags::{TAR, VOLUME};
use image::{Format, NbdSource};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::path::{Path, PathBuf};

/// The disks of a job.
#[derive(Clone, Debug)]
pub enum Disks {
    /// Disks and machines, by name, at least one.
    From(Vec<(String, DiskSource)>),
    /// All that the vault has: `"all"`.
    AllThere,
}

/// Where a disk, or the disks of a machine, are read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSource {
    /// As on the command line.
    pub source: PathBuf,
    /// `--source-format`
    #[serde(default)]
    pub source_format: Option<String>,
    /// `--agent`
    #[serde(default)]
    pub agent: Option<PathBuf>,
    /// `--allow-backing-outside`
    #[serde(default)]
    pub allow_backing_outside: bool,
    /// `--force`
    #[serde(default)]
    pub force: bool,
}

impl DiskSource {
    /// Whether it is a running machine, or a disk of one.
    pub fn is_live(&self) -> bool {
        LiveSourceName::parse(&self.source).is_some()
    }

    /// Whether it is a volume of a pool.
    pub fn is_volume(&self) -> bool {
        self.source.to_str().is_some_and(|source| source.starts_with(VOLUME))
    }

    /// Whether it is a domain of libvirt, whose definition is kept.
    pub fn is_domain(&self) -> bool {
        self.source.to_string_lossy().starts_with("libvirt:")
    }

    /// Whether the source is well-formed, and the name is one that it can have.
    fn check(&self, name: &str) -> Result<(), String> {
        let source = self.source.to_string_lossy();
        match (name == THEIR_OWN_NAMES, domain_pattern(&self.source)) {
            (true, None) => {
                return Err(format!(
                    "'*' is for machines that keep their own names, such as libvirt:*, not {source}"
                ));
            }
            (false, Some(_)) => {
                return Err(format!(
                    "{name}: {source} may be several machines, which keep their own names: write \"*\" instead"
                ));
            }
            (true, Some(_)) => return Ok(()),
            (false, None) => {}
        }
        if let Some(format) = self.source_format.as_ref().filter(|f| *f != TAR) {
            Format::by_name(format)
                .ok_or_else(|| format!("{format:?} is not a format: raw, qcow2, vmdk, tar"))?;
        }
        if let Some(live) = LiveSourceName::parse(&self.source) {
            let live = live.map_err(|e| e.to_string())?;
            if source.strip_prefix("qmp:").is_some_and(|socket| !socket.starts_with('/')) {
                return Err(format!("{source}: the path of the socket must begin with /"));
            }
            if live.is_machine() {
                let why =
                    format!("{name}: {source} is all disks of a machine; name the machine alone, like web01");
                return check_name(&format!("{name}/{}", Definition::DISK)).map_err(|_| why);
            }
        } else if source == "-" {
            return Err("- is standard input, which a job has not; name a file, a device or an export".into());
        } else if let Some(volume) = source.strip_prefix(VOLUME) {
            if volume.is_empty() {
                return Err(format!("{source} names no volume: {VOLUME}NAME"));
            }
            if volume.contains('@') && self.agent.is_some() {
                return Err(format!("{source} is a snapshot that is there: agent is for {VOLUME}NAME"));
            }
            if self.source_format.is_some() {
                return Err(format!("{source}: a volume has no source_format"));
            }
        } else if NbdSource::is_uri(&source) {
            NbdSource::check_uri(&source).map_err(|e| e.to_string())?;
        } else if !Path::new(&self.source).is_absolute() {
            return Err(format!(
                "{source:?} is not a source: a path that begins with /, nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH, nbds://…, \
                 qmp:SOCKET#NODE, qmp:SOCKET, libvirt:DOMAIN or volume:NAME"
            ));
        }
        check_name(name)
    }
}

fn check_name(name: &str) -> Result<(), String> {
    vault::check_disk_name(name).map_err(|e| e.to_string())
}

impl<'de> Deserialize<'de> for Disks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(DisksVisitor)
    }
}

struct DisksVisitor;

impl<'de> Visitor<'de> for DisksVisitor {
    type Value = Disks;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a table from disks to sources, such as \"web01/vda\" = \"/images/web01.qcow2\", or \"all\"",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Disks, E> {
        match text {
            "all" => Ok(Disks::AllThere),
            _ => Err(E::custom(format!(
                "{text:?} is no table from disks to sources; \"all\" is for what the vault has already"
            ))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Disks, A::Error> {
        let mut disks = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let source = map.next_value_seed(SourceOf(&name))?;
            disks.push((name, source));
        }
        if disks.is_empty() {
            return Err(A::Error::custom(
                "names no disk; add one, such as \"web01/vda\" = \"/images/web01.qcow2\"",
            ));
        }
        Ok(Disks::From(disks))
    }
}

/// The source of a disk of this name: a text, or a table with options.
struct SourceOf<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for SourceOf<'_> {
    type Value = DiskSource;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<DiskSource, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for SourceOf<'_> {
    type Value = DiskSource;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a source, or a table like { source = \"/images/web01.qcow2\", source_format = \"qcow2\" }",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<DiskSource, E> {
        let source = DiskSource {
            source: text.into(),
            source_format: None,
            agent: None,
            allow_backing_outside: false,
            force: false,
        };
        source.check(self.0).map_err(E::custom)?;
        Ok(source)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DiskSource, A::Error> {
        let source = DiskSource::deserialize(MapAccessDeserializer::new(map))?;
        source.check(self.0).map_err(A::Error::custom)?;
        Ok(source)
    }
}
