//! Pages that manifests name: of the container table, and of snapshots.

use super::{of, Case, B};
use crate::forge::{varint, Body, Vault};
use crate::parts::{far, tags};
use format::{
    names, ContainerEntry, ContainerPage, DataName, Kind, PageRef, SnapId, SnapshotEntry, SnapshotPage,
    SnapshotPageRef, WriterNo,
};

pub const CASES: &[Case] = &[
    of("container-page", B, |v| {
        let folder = v.folder();
        v.put_manifest(|m| {
            let page = PageRef { first: far(0), writer: WriterNo(1), number: 900 };
            m.pages.push(page);
        });
        let entry = |n: u32| ContainerEntry {
            id: far(n),
            table: WriterNo(1),
            data: DataName { container: far(n), generation: WriterNo(1) },
            dead: Some(WriterNo(u32::MAX)),
            chunks: u32::MAX,
            dead_chunks: u32::MAX - 1,
            stored_bytes: u64::MAX / 1000,
            level: 0,
        };
        let name = names::page(&folder, WriterNo(1), 900);
        let entries = (0..256).map(entry).collect();
        v.write(&name, &ContainerPage { entries }.encode(v.context(&name)));
    }),
    of("container-page-bomb", B, |v| {
        let page = &v.manifest().pages[0];
        let name = names::page(&v.folder(), page.writer, page.number);
        let times = (64 << 20) / 44;
        v.put(
            Kind::ContainerPage,
            &name,
            &Body::Repeated { head: &varint(times as u64), item: &[0; 44], times },
        );
    }),
    of("snapshot-pages", B, |v| {
        let entries: Vec<SnapshotEntry> = (1..=32_000).map(|n| small_snapshot(v, n)).collect();
        put_snapshot_pages(v, entries);
    }),
    of("snapshot-page-tags", B, |v| {
        // All that the pages of a manifest may take, in one of them.
        let mut entry = small_snapshot(v, 1);
        let room = format::Manifest::MEMORY_MAX - v.manifest().memory_bytes() - entry.memory_bytes() - 1000;
        entry.tags = tags(room);
        put_snapshot_pages(v, vec![entry]);
    }),
    of("snapshot-page-bomb", B, |v| {
        put_snapshot_pages(v, vec![small_snapshot(v, 1)]);
        let at = v.manifest().older[0];
        let times = (1 << 30) / 27 - 10;
        for name in names::snapshot_page(&v.folder(), at.writer, at.number) {
            let head = varint(times as u64);
            v.put(Kind::SnapshotPage, &name, &Body::Repeated { head: &head, item: &[0; 27], times });
        }
    }),
    of("snapshot-pages-lost", B, |v| {
        // As many as may be named, of as many snapshots as there may be.
        v.put_manifest(|m| {
            let page = |number| SnapshotPageRef {
                writer: WriterNo(1),
                number,
                entries: 7,
                bytes: 8000,
                latest: i64::MIN,
                depends_to: WriterNo(1),
                has_pending: false,
                has_unindexed: true,
            };
            m.older = (1000..5000).map(page).collect();
        });
    }),
];

/// One without lists.
fn small_snapshot(v: &Vault, n: u64) -> SnapshotEntry {
    SnapshotEntry {
        id: SnapId(n),
        generation: WriterNo(1),
        depends: Vec::new(),
        tags: Vec::new(),
        ..v.manifest().recent[0].clone()
    }
}

/// Pages of snapshots in front of those that are there.
pub fn put_snapshot_pages(v: &Vault, entries: Vec<SnapshotEntry>) {
    let mut older = Vec::new();
    for (n, part) in entries.chunks(format::SNAPSHOTS_PER_PAGE).enumerate() {
        let page = SnapshotPage { entries: part.to_vec() };
        let at = SnapshotPageRef::of(&page, WriterNo(1), 900 + n as u32);
        for name in names::snapshot_page(&v.folder(), at.writer, at.number) {
            v.write(&name, &page.encode(v.context(&name)));
        }
        older.push(at);
    }
    v.put_manifest(|m| m.older = older);
}
