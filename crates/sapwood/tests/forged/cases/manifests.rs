//! Manifests with as many items as they may have, or more.

use super::{of, Case, B};
use crate::forge::{varint, Body, Vault};
use crate::parts::{far, nobody, tags};
use format::{
    names, ContainerId, DiskId, Kind, OwnerNo, PageRef, RecipeName, Release, Released, Reverse, SnapId,
    SnapshotEntry, Token, Writer, WriterKind, WriterNo,
};

pub const CASES: &[Case] = &[
    of("manifest-bomb", B, |v| {
        // A gibibyte of zeros: snapshots of 27 bytes.
        let name = names::manifest(&v.folder());
        let m = v.manifest();
        let mut head = m.sequence.0.to_le_bytes().to_vec();
        head.extend_from_slice(&m.disk.0);
        head.extend_from_slice(&varint(m.name.len() as u64));
        head.extend_from_slice(m.name.as_bytes());
        head.extend_from_slice(&[0, 9, 0, 0, 0, 0]);
        let times = (1 << 30) / 27 - 10;
        head.extend_from_slice(&varint(times as u64));
        v.put(Kind::Manifest, &name, &Body::Repeated { head: &head, item: &[0; 27], times });
    }),
    of("manifest-writers", B, |v| {
        v.put_manifest(|m| {
            let (kind, parent, since) = (WriterKind::Maintenance, None, format::Sequence(1));
            let writer = |n| Writer { no: WriterNo(n), token: Token(u64::from(n)), kind, parent, since };
            m.writers = (1000..66_536).map(writer).collect();
            m.next_writer = WriterNo(100_000);
        });
    }),
    of("manifest-snapshots", B, |v| with_snapshots(v, Reverse::No)),
    of("manifest-chain", B, |v| with_snapshots(v, Reverse::Done)),
    of("manifest-depends", B, |v| {
        v.put_manifest(|m| {
            let name = |n| RecipeName { snap: SnapId(n), generation: WriterNo(1) };
            let room = (format::Manifest::MEMORY_MAX - m.memory_bytes()) / size_of::<RecipeName>();
            m.recent[0].depends.extend((0..room as u64).map(name));
        });
    }),
    of("manifest-tags", B, |v| {
        v.put_manifest(|m| {
            m.recent[0].tags = tags(format::Manifest::MEMORY_MAX - m.memory_bytes());
        });
    }),
    of("manifest-pages", B, |v| {
        v.put_manifest(|m| {
            let page = |n: u32| PageRef { first: far(n), writer: WriterNo(1), number: n };
            m.pages.extend((0..65_536 - m.pages.len() as u32).map(page));
        });
    }),
    of("manifest-released", B, |v| {
        let folder = v.folder();
        v.put_manifest(|m| {
            let what = |n| Release::Object(names::page(&folder, WriterNo(7), n));
            m.released =
                (0..131_072).map(|n| Released { sequence: format::Sequence::FIRST, what: what(n) }).collect();
        });
    }),
    of("manifest-punches", B, |v| {
        v.put_manifest(|m| {
            let what = |n| Release::Punch { container: far(n), dead: WriterNo(3) };
            m.released =
                (0..131_072).map(|n| Released { sequence: format::Sequence::FIRST, what: what(n) }).collect();
        });
    }),
    of("manifest-damaged", B, |v| {
        v.put_manifest(|m| {
            m.damaged =
                (0..((format::Manifest::MEMORY_MAX - m.memory_bytes()) / 32) as u32).map(far).collect();
        });
    }),
    of("manifest-unswept", "reverse", |v| {
        v.put_manifest(|m| {
            let id = |n| ContainerId::new(OwnerNo(n % 7 + 1), WriterNo(n), 0);
            let room = (format::Manifest::MEMORY_MAX - m.memory_bytes()) / 32;
            m.unswept = (1..room as u32).map(id).collect();
        });
    }),
    of("snapshots-of-many-disks", B, |v| {
        with_snapshots(v, Reverse::No);
        for n in 0..4 {
            let (disk, name) = (nobody(n), format!("vm/disk-{n}"));
            let m = format::Manifest { disk, name, ..v.manifest() };
            let object = names::manifest(&names::folder(disk));
            v.write(&object, &m.encode(v.context(&object)));
        }
    }),
    of("manifest-of-popular-set", B, |v| {
        let folder = names::folder(DiskId::POPULAR);
        let name = names::manifest(&folder);
        let mut m = format::Manifest::decode(v.context(&name), &v.read(&name)).unwrap();
        m.damaged = (0..((format::Manifest::MEMORY_MAX - m.memory_bytes()) / 32) as u32).map(far).collect();
        m.sequence = m.sequence.next();
        v.write(&name, &m.encode(v.context(&name)));
    }),
];

/// As many snapshots as a manifest may have, in front of those that are there.
fn with_snapshots(v: &Vault, reverse: Reverse) {
    v.put_manifest(|m| {
        let snapshot = |n: u64| SnapshotEntry {
            id: SnapId(n),
            reverse,
            generation: WriterNo(1),
            depends: Vec::new(),
            tags: Vec::new(),
            ..m.recent[0].clone()
        };
        let fresh: Vec<SnapshotEntry> = (1..=32_768 - m.recent.len() as u64).map(snapshot).collect();
        m.recent.splice(0..0, fresh);
    });
}
