//! What is forged: of every kind of object what takes most memory within the limits, and what is far beyond them.

use crate::forge::{recipe_of, varint, Body, Vault};
use format::{
    names, BlockAt, ChunkNo, ClaimRecord, Codec, ContainerEntry, ContainerId, ContainerPage, DataFooter,
    DataName, DeadLog, DiskId, Group, Hook, HooksFooter, IndexRef, Kind, Ordinal, OwnerNo, PageAt, PageRef,
    RecipeName, RecipePage, RecipePageRef, Reference, ReferenceBlock, ReferenceEntry, ReferenceFooter,
    Release, Released, Reverse, RunSet, SegmentNo, SegmentRecipe, SnapId, SnapshotEntry, SnapshotPage,
    SnapshotPageRef, SnapshotState, Summary, Table, TableIndex, Token, Writer, WriterKind, WriterNo,
    DATA_FOOTER_BYTES, HOOK_BYTES,
};

/// One thing that is wrong with a vault.
pub struct Case {
    pub name: &'static str,
    pub policy: &'static str,
    pub forge: fn(&Vault),
}

pub const fn of(name: &'static str, policy: &'static str, forge: fn(&Vault)) -> Case {
    Case { name, policy, forge }
}

const B: &str = "balanced";

pub const CASES: &[Case] = &[
    of("manifest-bomb", B, |v| {
        // A gibibyte of zeros: snapshots of 27 bytes.
        let name = names::manifest(&v.folder());
        let m = v.manifest();
        let mut head = m.sequence.to_le_bytes().to_vec();
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
            let (kind, parent, since) = (WriterKind::Maintenance, None, 1);
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
            let room = format::Manifest::MEMORY_MAX - m.memory_bytes();
            m.recent[0].tags = (0..room / 120).map(|n| (format!("{n:06}"), String::new())).collect();
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
            m.released = (0..131_072).map(|n| Released { sequence: 0, what: what(n) }).collect();
        });
    }),
    of("manifest-punches", B, |v| {
        v.put_manifest(|m| {
            let what = |n| Release::Punch { container: far(n), dead: WriterNo(3) };
            m.released = (0..131_072).map(|n| Released { sequence: 0, what: what(n) }).collect();
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
        entry.tags = (0..room / 120).map(|n| (format!("{n:06}"), String::new())).collect();
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
            };
            m.older = (1000..5000).map(page).collect();
        });
    }),
    of("root-newer", B, |v| with_pages(v, 0, |_| PageAt::Newer)),
    of("root-pages", B, |v| {
        let recipe = recipe_of(&newest(v));
        with_pages(v, 2, move |n| {
            PageAt::Page(RecipePageRef { recipe, offset: n << 20, page_len: 300, summary_len: 300 })
        });
    }),
    of("root-one-page", B, |v| {
        let s = newest(v);
        let mut root = v.root(&s);
        root.pages = vec![root.pages[0]; 2048];
        root.size = 2048 * 1024 * u64::from(root.segment_bytes);
        v.put_root(&s, &root);
    }),
    of("root-long-pages", B, |v| {
        // A part of 4 GiB in an object that has a hole of that length.
        let s = newest(v);
        let mut root = v.root(&s);
        let name = names::recipe_pages(&v.folder(), recipe_of(&s));
        let recipe = recipe_of(&s);
        let at = RecipePageRef { recipe, offset: 0, page_len: u32::MAX, summary_len: u32::MAX };
        root.pages[0] = PageAt::Page(at);
        v.put_root(&s, &root);
        v.put_hole(&name, 1 << 33);
    }),
    of("page-bomb", B, |v| {
        // A segment with 2^30 references of one byte.
        let times = 1 << 30;
        let head = [&[0, 1, 0][..], &[7; 40], &varint(times as u64)].concat();
        let page = Body::Repeated { head: &head, item: &[4], times };
        v.put_recipe_of(&newest(v), &[(page, Body::Of(&[0]))]);
    }),
    of("page-nulls", B, |v| v.put_recipe(&newest(v), &[nulls()])),
    of("page-nulls-of-all", B, |v| {
        for s in v.manifest().recent {
            v.put_recipe(&s, &[nulls(), nulls()]);
        }
    }),
    of("page-directs", B, |v| v.put_recipe(&newest(v), &[directs(v), directs(v)])),
    of("page-counts", B, |v| {
        let container = first_container(v);
        let r = Reference::Direct { container, first: ChunkNo(0), count: u32::MAX };
        v.put_recipe(&newest(v), &[page_of(&[r; 64])]);
    }),
    of("page-indirect", B, |v| {
        // A few bytes of the older ones lead to as many references as a page may have, any number of times.
        let all = v.manifest().recent;
        v.put_recipe(&all[2], &[directs(v)]);
        let indirect =
            |n: u64, m: u32| Reference::Indirect { segment: SegmentNo(n), ordinal: Ordinal(m), count: 1000 };
        let segment = |n: u64| (0..1000).map(|m| indirect(n, m)).collect::<Vec<_>>();
        let segments = (0..1024).map(|n| (n as u16, segment_of(segment(n)))).collect();
        let page = RecipePage { segments };
        v.put_recipe(&all[1], std::slice::from_ref(&page));
        v.put_recipe(&all[0], &[page]);
    }),
    of("page-indirect-whole", B, |v| {
        // As reverse passes leave it, at the limits of a page.
        let all = v.manifest().recent;
        v.put_recipe(&all[2], &[directs(v)]);
        let whole = |n: u64| Reference::Indirect { segment: SegmentNo(n), ordinal: Ordinal(0), count: 2048 };
        let segments = (0..1024).map(|n| (n as u16, segment_of(vec![whole(n)]))).collect();
        let page = RecipePage { segments };
        v.put_recipe(&all[1], std::slice::from_ref(&page));
        v.put_recipe(&all[0], &[page]);
    }),
    of("page-indirect-counts", B, |v| {
        let r = Reference::Indirect { segment: SegmentNo(0), ordinal: Ordinal(0), count: u32::MAX };
        for s in &v.manifest().recent[..2] {
            v.put_recipe(s, &[page_of(&[r; 1000])]);
        }
    }),
    of("summary-runs", B, |v| {
        let runs = (0..2_000_000).map(|n| (n * 2, 1)).collect();
        with_summary(v, Summary { containers: [(first_container(v), RunSet::from_unsorted(runs))].into() });
    }),
    of("summary-containers", B, |v| {
        let run = || RunSet::from_unsorted(vec![(0, u32::MAX - 1)]);
        with_summary(v, Summary { containers: (0..400_000).map(|n| (far(n), run())).collect() });
    }),
    of("summaries-of-many-pages", B, |v| {
        // All together they name 64 million chunks of one container, none beside another.
        let page = page_body(v, &page_of(&[Reference::Null { bytes: 4 << 20 }]));
        let body = |n: u32| {
            let runs = RunSet::from_unsorted((0..1_000_000).map(|k| (k * 128 + n * 2, 1)).collect());
            let summary = Summary { containers: [(first_container(v), runs)].into() };
            let frame = summary.encode(v.context("x"));
            format::decode_frame(Kind::Summary, v.context("x"), &frame).unwrap().into_owned()
        };
        let bodies: Vec<Vec<u8>> = (0..64).map(body).collect();
        let pages: Vec<_> = bodies.iter().map(|b| (Body::Of(&page), Body::Of(b))).collect();
        for s in &v.manifest().recent[1..] {
            v.put_recipe_of(s, &pages);
        }
    }),
    of("summary-bomb", B, |v| {
        let times = 256 << 20;
        let head = [&[1][..], &first_container(v).raw().to_le_bytes(), &varint(times as u64)].concat();
        let summary = Body::Repeated { head: &head, item: &[1, 1], times };
        let page = page_body(v, &directs(v));
        v.put_recipe_of(&newest(v), &[(Body::Of(&page), summary)]);
    }),
    of("leaks", "vm-centric-bloom", |v| {
        // Snapshots reference every other chunk of many containers, and something was deleted by filters.
        let page = page_body(v, &page_of(&[Reference::Null { bytes: 2 << 20 }]));
        let body = |n: u32| {
            let runs = RunSet::from_unsorted((0..500_000).map(|k| (k * 2, 1)).collect());
            let summary = Summary { containers: [(far(n), runs)].into() };
            let frame = summary.encode(v.context("x"));
            format::decode_frame(Kind::Summary, v.context("x"), &frame).unwrap().into_owned()
        };
        let bodies: Vec<Vec<u8>> = (0..64).map(body).collect();
        let pages: Vec<_> = bodies.iter().map(|b| (Body::Of(&page), Body::Of(b))).collect();
        v.put_recipe_of(&newest(v), &pages);
        v.put_manifest(|m| m.by_filter = 1);
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
    of("equal-chunks", "vm-centric-bloom", |v| {
        // One chunk, half a million times in each container of a disk.
        with_table(v, |t| set_chunks(t, vec![(0, CHUNKS)], 4096, Codec::Raw));
    }),
    of("table-chunks", B, |v| with_table(v, |t| set_chunks(t, vec![(0, CHUNKS)], 4096, Codec::Raw))),
    of("table-runs", B, |v| {
        let runs: Vec<(u32, u32)> = (0..CHUNKS).map(|n| (n * 8000, 1)).collect();
        with_table(v, |t| set_chunks(t, runs.clone(), 4096, Codec::Raw));
    }),
    of("table-small-chunks", B, |v| with_table(v, |t| set_chunks(t, vec![(0, CHUNKS)], 1, Codec::Zstd))),
    of("table-large-chunks", B, |v| with_table(v, |t| set_chunks(t, vec![(0, 5000)], 16 << 20, Codec::Raw))),
    of("groups-zstd", B, |v| with_groups(v, Codec::Zstd)),
    of("groups-lz4", B, |v| with_groups(v, Codec::Lz4)),
    of("group-longer", B, |v| {
        with_table(v, |t| {
            let g = &mut t.groups[0];
            (g.stored_len, g.codec) = (u32::MAX, Codec::Zstd);
        });
    }),
    of("directory-hole", B, |v| {
        for name in v.objects(".data") {
            let (at, len) = (1 << 20, 1 << 42);
            v.put_hole(&name, at + len);
            let path = v.path(&name);
            let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
            let footer = DataFooter { directory_offset: at, directory_len: len }.encode();
            assert_eq!(footer.len(), DATA_FOOTER_BYTES);
            std::io::Write::write_all(&mut file, &footer).unwrap();
        }
    }),
    of("directory-chunks", B, |v| {
        for name in v.objects(".data") {
            let data = v.read(&name);
            let at = data.len() as u64;
            let mut body = [far(0).raw().to_le_bytes(), far(0).raw().to_le_bytes()].concat();
            body.extend_from_slice(&[1, 0, 0, 0, 1, 0]);
            body.extend_from_slice(&[&varint(u64::from(CHUNKS))[..], &[1, 0]].concat());
            let directory = v.frame(Kind::Directory, &format!("{name}#{at}"), &Body::Of(&body));
            let footer = DataFooter { directory_offset: at, directory_len: directory.len() as u64 }.encode();
            v.write(&name, &[data, directory, footer].concat());
        }
    }),
    of("references-runs", B, |v| {
        let runs: Vec<(u32, u32)> = (0..500_000).map(|n| (n * 3 + 1, 1)).collect();
        let entry = |n| ReferenceEntry {
            container: first_container(v),
            recipe: n,
            chunks: RunSet::from_unsorted(runs.clone()),
        };
        let block = ReferenceBlock { entries: vec![entry(0)] }.encode(v.context("x"));
        let block = format::decode_frame(Kind::ReferenceBlock, v.context("x"), &block).unwrap().into_owned();
        with_references(v, &Body::Of(&block), 50, 65_000);
    }),
    of("references-recipes", B, |v| with_references(v, &Body::Of(&[0]), 1 << 16, 65_500)),
    of("references-bomb", B, |v| {
        let times = 100 << 20;
        let head =
            [&varint(1)[..], &first_container(v).raw().to_le_bytes(), &[0], &varint(times as u64)].concat();
        with_references(v, &Body::Repeated { head: &head, item: &[1, 1], times }, 1, 10);
    }),
    of("references-hole", B, |v| {
        // A block of 4 GiB after a hole of 4 TiB.
        let name = names::references(&v.folder(), WriterNo(1), 7);
        let block = |n: u32| [&far(n).raw().to_le_bytes()[..], &varint(u64::from(u32::MAX))].concat();
        let blocks: Vec<u8> = (0..1025).flat_map(block).collect();
        let body = [&[0][..], &varint(1025), &blocks].concat();
        let len = 1025 * u64::from(u32::MAX);
        let footer = v.frame(Kind::ReferenceFooter, &format!("{name}#{len}"), &Body::Of(&body));
        v.put_hole(&name, len);
        append(v, &name, len, &footer);
        let footer_len = footer.len() as u32;
        v.put_manifest(|m| {
            m.references = vec![IndexRef { writer: WriterNo(1), number: 7, blocks_len: len, footer_len }];
            m.recent.iter_mut().for_each(|s| s.indexed = true);
        });
    }),
    of("dead-runs", B, |v| {
        let runs: Vec<(u32, u32)> = (0..1_000_000).map(|n| (n * 3 + 1, 1)).collect();
        with_dead(v, &|id| DeadLog { container: id, dead: RunSet::from_unsorted(runs.clone()) });
    }),
    of("dead-long-run", B, |v| {
        with_dead(v, &|id| DeadLog { container: id, dead: RunSet::from_unsorted(vec![(0, u32::MAX)]) });
    }),
    of("dead-bomb", B, |v| {
        for name in v.objects(".dead") {
            let times = 100 << 20;
            let head = [&first_container(v).raw().to_le_bytes()[..], &varint(times as u64)].concat();
            v.put(Kind::Dead, &name, &Body::Repeated { head: &head, item: &[1, 1], times });
        }
    }),
    of("filter-full", "vm-centric-bloom", |v| {
        for name in v.objects(".bloom") {
            v.put(Kind::Bloom, &name, &Body::Of(&filter(28)));
        }
    }),
    of("filters-of-all-sizes", "vm-centric-bloom", |v| {
        for (name, log2) in v.objects(".bloom").into_iter().zip(26..) {
            v.put(Kind::Bloom, &name, &Body::Of(&filter(log2.min(28))));
        }
    }),
    of("filter-longer", "vm-centric-bloom", |v| {
        for name in v.objects(".bloom") {
            v.put(Kind::Bloom, &name, &Body::Of(&filter(29)));
        }
    }),
    of("owners", B, |v| {
        // Containers of as many owners as a manifest may count, none of which exists.
        v.put_manifest(|m| {
            m.owners = (0..OwnerNo::MAX.0).map(nobody).collect();
            let room = (format::Manifest::MEMORY_MAX - m.memory_bytes()) / 32 - 1000;
            m.unswept = (0..room as u32).map(|n| of_owner(n % OwnerNo::MAX.0 + 1, n)).collect();
            m.unswept.sort_unstable();
        });
    }),
    of("owners-of-references", B, |v| {
        v.put_manifest(|m| m.owners = (0..OwnerNo::MAX.0).map(nobody).collect());
        let direct =
            |n: u32| Reference::Direct { container: of_owner(n + 1, n), first: ChunkNo(0), count: 1 };
        let segment = |n: u32| (n as u16, segment_of((n * 50..(n + 1) * 50).map(direct).collect()));
        let page = RecipePage { segments: (0..1024).map(segment).collect() };
        v.put_recipe(&newest(v), &[page]);
    }),
    of("owners-gone", B, |v| {
        // As many as a manifest may count, all referenced by all snapshots.
        v.put_manifest(|m| m.owners = (0..OwnerNo::MAX.0).map(nobody).collect());
        let direct = |n: u32| Reference::Direct {
            container: of_owner(n.min(OwnerNo::MAX.0 - 1) + 1, n),
            first: ChunkNo(0),
            count: 1,
        };
        reference_everywhere(v, direct);
    }),
    of("owners-of-pages", B, |v| {
        // Owners that are there, each with a long container table of which nothing else is.
        let owners: Vec<DiskId> = (0..OWNERS_WITH_PAGES).map(nobody).collect();
        for owner in &owners {
            let mut m = format::Manifest::new(*owner, &format!("vm/{owner}"));
            let page = |n: u32| PageRef { first: far(n), writer: WriterNo(1), number: n };
            m.pages = (0..16_384).map(page).collect();
            let name = names::manifest(&names::folder(*owner));
            v.write(&name, &m.encode(v.context(&name)));
        }
        v.put_manifest(|m| m.owners = owners);
        let direct = |n: u32| Reference::Direct {
            container: of_owner(n % OWNERS_WITH_PAGES + 1, n * 13 % 16_384),
            first: ChunkNo(0),
            count: 1,
        };
        let segment = |n: u32| (n as u16, segment_of((n * 50..(n + 1) * 50).map(direct).collect()));
        let page = RecipePage { segments: (0..1024).map(segment).collect() };
        v.put_recipe(&newest(v), &[page]);
    }),
    of("containers-lost", B, |v| {
        // A destroyed vault: container tables of owners that are there, and nothing of their 262,144 containers.
        let owners: Vec<DiskId> = (0..OWNERS_WITH_PAGES).map(nobody).collect();
        let each = (1 << 18) / OWNERS_WITH_PAGES;
        let entry = |n: u32| ContainerEntry {
            id: far(n),
            table: WriterNo(1),
            data: DataName { container: far(n), generation: WriterNo(1) },
            dead: None,
            chunks: 1,
            dead_chunks: 0,
            stored_bytes: 1,
        };
        for owner in &owners {
            let folder = names::folder(*owner);
            let mut m = format::Manifest::new(*owner, &format!("vm/{owner}"));
            for first in (0..each).step_by(256) {
                let name = names::page(&folder, WriterNo(1), first);
                let entries = (first..first + 256).map(entry).collect();
                v.write(&name, &ContainerPage { entries }.encode(v.context(&name)));
                m.pages.push(PageRef { first: far(first), writer: WriterNo(1), number: first });
            }
            let name = names::manifest(&folder);
            v.write(&name, &m.encode(v.context(&name)));
        }
        v.put_manifest(|m| m.owners = owners);
        let direct = |n: u32| Reference::Direct {
            container: of_owner(n / each + 1, n % each),
            first: ChunkNo(0),
            count: 1,
        };
        reference_everywhere(v, direct);
    }),
    of("owners-too-many", B, |v| {
        forge_manifest(v, |m| m.owners = (0..=OwnerNo::MAX.0).map(nobody).collect());
    }),
    of("owner-twice", B, |v| {
        forge_manifest(v, |m| m.owners = vec![nobody(1), nobody(2), nobody(1)]);
    }),
    of("owner-itself", B, |v| {
        // Half of what it references it calls another owner's, which is the same disk.
        forge_manifest(v, |m| {
            m.owners = vec![m.disk];
            m.unswept = vec![m.pages[0].first.of(OwnerNo(1))];
        });
    }),
    of("owner-not-counted", B, |v| {
        v.put_manifest(|m| {
            m.damaged.push(of_owner(9, 1));
            m.unswept.extend([of_owner(9, 2), of_owner(OwnerNo::MAX.0, 3)]);
            let what = Release::Foreign(of_owner(9, 4));
            m.released.push(Released { sequence: 0, what });
        });
        let direct = |no| Reference::Direct { container: of_owner(no, 1), first: ChunkNo(0), count: 5 };
        v.put_recipe(&newest(v), &[page_of(&[direct(9), direct(OwnerNo::MAX.0)])]);
    }),
    of("released-of-owners", B, |v| {
        v.put_manifest(|m| {
            m.owners = (0..OwnerNo::MAX.0).map(nobody).collect();
            let what = |n: u32| Release::Foreign(of_owner(n + 1, n));
            m.released = (0..131_072).map(|n| Released { sequence: 0, what: what(n) }).collect();
        });
    }),
    of("referrers", B, |v| {
        for n in 0..2000 {
            let name = names::referrer(&v.folder(), WriterNo(n % 5), nobody(n));
            v.put(Kind::Referrer, &name, &Body::Repeated { head: &[], item: &[0], times: 64 << 10 });
        }
        for what in ["itself", "0", "4294967296", "-1/x"] {
            v.write(&format!("{}{what}/{}", names::referrers_of(&v.folder()), v.disk()), b"");
        }
    }),
    of("claims", B, |v| {
        for n in 0..2000 {
            let name = names::claim(v.disk(), WriterNo(n % 5), Token(u64::from(n)));
            let record =
                ClaimRecord { disk: if n % 2 == 0 { v.disk() } else { nobody(n) }, writer: WriterNo(n) };
            match n % 3 {
                0 => v.put(Kind::Claim, &name, &Body::Repeated { head: &[], item: &[0], times: 64 << 10 }),
                1 => v.write(&name, b""),
                _ => v.write(&name, &record.encode(v.context(&name))),
            }
        }
        for what in ["itself", "4294967296/x", "1/x", "1/+1"] {
            v.write(&format!("{}{what}", names::claims_on(v.disk())), b"");
        }
    }),
    of("retiring", B, |v| {
        for n in 0..2000 {
            let item = Body::Repeated { head: &[], item: &[255, 0, 3], times: 20_000 };
            v.put(Kind::Retiring, &names::retiring(v.disk(), Token(n)), &item);
        }
        v.write(&format!("{}x", names::retiring_of(v.disk())), b"");
    }),
    of("hooks-nowhere", "conventional", |v| {
        // What chunks have hooks leads to disks that are not there, and to containers that disks do not have.
        let owners: Vec<DiskId> =
            [DiskId::POPULAR, v.disk()].into_iter().chain((0..1000).map(nobody)).collect();
        with_hooks(v, &owners, |prefix, n| {
            let container = ContainerId::new(OwnerNo::OWN, WriterNo(n % 7 + 1), n);
            Hook { prefix, owner: n % 1010, container }
        });
    }),
    of("hooks-nowhere-of-segments", "reverse", |v| {
        let owners: Vec<DiskId> = [v.disk()].into_iter().chain((0..1000).map(nobody)).collect();
        with_hooks(v, &owners, |prefix, n| Hook { prefix, owner: n % 1001, container: far(n).local() });
    }),
    of("hooks-out-of-order", "conventional", |v| {
        for name in hooks_of(v) {
            let count = 1000 * 1000;
            let hook =
                |n: u64| Hook { prefix: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), owner: 0, container: far(1) };
            let hooks: Vec<u8> = (0..count).flat_map(|n| hook(n).encode()).collect();
            v.put_hooks(&name, 0, &hooks, &footer(count, &[v.disk()]));
        }
    }),
    of("hooks-owners", B, |v| {
        let owners: Vec<DiskId> = (0..1 << 20).map(nobody).collect();
        for n in 0..16 {
            v.put_hooks(&names::hooks(Token(n)), 0, &[], &footer(0, &owners));
        }
    }),
    of("hooks-many", B, |v| {
        for n in 0..2000 {
            let hooks = Hook { prefix: n, owner: 0, container: far(1) }.encode().repeat(500);
            v.put_hooks(&names::hooks(Token(n)), 0, &hooks, &footer(500, &[v.disk()]));
        }
    }),
    of("hooks-hole", "conventional", |v| {
        // One bucket of 2^40 hooks, in an object that is a hole of that length.
        for name in hooks_of(v) {
            v.put_hooks(&name, (1 << 40) * HOOK_BYTES as u64, &[], &footer(1 << 40, &[v.disk()]));
        }
    }),
    of("hooks-counts", "conventional", |v| {
        for name in hooks_of(v) {
            let hook = Hook { prefix: 1 << 60, owner: 0, container: far(1) }.encode();
            v.put_hooks(&name, 0, &hook.repeat(3), &footer(u64::MAX, &[v.disk()]));
        }
    }),
    of("hooks-long-footer", B, |v| {
        // As long as a length of 32 bits may say.
        for name in hooks_of(v) {
            v.put_hole(&name, (1 << 32) - 8);
            let mut file = std::fs::OpenOptions::new().append(true).open(v.path(&name)).unwrap();
            std::io::Write::write_all(&mut file, b"\xf8\xff\xff\xffHOOK").unwrap();
        }
    }),
    of("popular", B, |v| {
        for name in v.objects("").into_iter().filter(|n| n.starts_with("index/popular/")) {
            let head =
                [&[1, 0, 0, 0][..], &ContainerId::new(OwnerNo::OWN, WriterNo(1), 0).raw().to_le_bytes()];
            let mut body = head.concat();
            body.resize(body.len() + (16 << 20) * 16, 0);
            v.put(Kind::Popular, &name, &Body::Of(&body));
        }
    }),
    of("name", B, |v| {
        for name in v.objects("").into_iter().filter(|n| n.starts_with("names/")) {
            v.put(Kind::Name, &name, &Body::Repeated { head: &[], item: b"a", times: 64 << 10 });
        }
    }),
    of("sessions-and-readers", B, |v| {
        for n in 0..2000u64 {
            let item = Body::Repeated { head: &[], item: &[0], times: 64 << 10 };
            v.put(Kind::Session, &names::session(Token(n)), &item);
            v.put(Kind::Reader, &names::reader(v.manifest().disk, Token(n)), &item);
        }
    }),
    of("features", B, |v| {
        let text = String::from_utf8(v.read(names::VAULT)).unwrap();
        let features = format!("\"incompatible_features\": [{}\"\"]", "\"\",".repeat(340_000));
        v.write(names::VAULT, text.replace("\"incompatible_features\": []", &features).as_bytes());
    }),
    of("nested-json", B, |v| v.write(names::VAULT, "[".repeat(1 << 20).as_bytes())),
    of("hole-vault", B, |v| holes(v, names::VAULT)),
    of("hole-manifest", B, |v| holes(v, "/manifest")),
    of("hole-pages", B, |v| {
        let folder = format!("{}pages/", v.folder());
        let all: Vec<String> = v.objects("").into_iter().filter(|n| n.starts_with(&folder)).collect();
        all.iter().for_each(|n| v.put_hole(n, 1 << 40));
    }),
    of("hole-roots", B, |v| holes(v, ".root")),
    of("hole-recipe-pages", B, |v| holes(v, ".pages")),
    of("hole-tables", B, |v| holes(v, ".table")),
    of("hole-data", B, |v| holes(v, ".data")),
    of("hole-dead", B, |v| holes(v, ".dead")),
    of("hole-filters", "vm-centric-bloom", |v| holes(v, ".bloom")),
    of("hole-names-and-indexes", "conventional", |v| {
        let all = v.objects("").into_iter().filter(|n| n.starts_with("index/") || n.starts_with("names/"));
        all.for_each(|n| v.put_hole(&n, 1 << 40));
    }),
    of("hole-indexes", "reverse", |v| {
        let all = v.objects("").into_iter().filter(|n| n.starts_with("index/"));
        all.for_each(|n| v.put_hole(&n, 1 << 40));
    }),
];

/// As many chunks as a table may have.
const CHUNKS: u32 = 1 << 19;

/// Owners that have long container tables.
const OWNERS_WITH_PAGES: u32 = 16;

fn newest(v: &Vault) -> SnapshotEntry {
    v.manifest().recent.into_iter().rfind(|s| s.state == SnapshotState::Live).unwrap()
}

/// A container that is not there.
fn far(n: u32) -> ContainerId {
    ContainerId::new(OwnerNo::OWN, WriterNo(1 << 20), n)
}

/// A disk that is not there.
fn nobody(n: u32) -> DiskId {
    let mut id = [0xab; 16];
    id[..4].copy_from_slice(&n.to_le_bytes());
    DiskId(id)
}

/// A container of an owner that the disk counts so, or does not count.
fn of_owner(no: u32, n: u32) -> ContainerId {
    ContainerId::new(OwnerNo(no), WriterNo(1 << 20), n)
}

/// A manifest that an encoder with checks would not write.
fn forge_manifest(v: &Vault, change: impl FnOnce(&mut format::Manifest)) {
    let name = names::manifest(&v.folder());
    let mut m = v.manifest();
    change(&mut m);
    v.write(&name, &m.encode(v.context(&name)));
}

fn hooks_of(v: &Vault) -> Vec<String> {
    v.objects("").into_iter().filter(|n| n.starts_with(names::HOOKS)).collect()
}

/// The body of a footer of one bucket.
fn footer(hooks: u64, owners: &[DiskId]) -> Vec<u8> {
    let mut body = [&[0][..], &varint(hooks), &varint(owners.len() as u64)].concat();
    owners.iter().for_each(|d| body.extend_from_slice(&d.0));
    body
}

/// In place of each hook four others of its prefix.
fn with_hooks(v: &Vault, owners: &[DiskId], other: impl Fn(u64, u32) -> Hook) {
    for name in hooks_of(v) {
        let old = v.read(&name);
        let tail = old.last_chunk().unwrap();
        let end = HooksFooter::begins_at(old.len() as u64, tail).unwrap() as usize;
        let mut hooks = Vec::new();
        for (n, hook) in (0..).zip(old[..end].chunks_exact(HOOK_BYTES)) {
            let prefix = Hook::decode(hook.first_chunk().unwrap()).unwrap().prefix;
            (0..4).for_each(|k| hooks.extend(other(prefix, n * 4 + k).encode()));
        }
        v.put_hooks(&name, 0, &hooks, &footer(end as u64 / HOOK_BYTES as u64 * 4, owners));
    }
}

/// One that is.
pub fn first_container(v: &Vault) -> ContainerId {
    v.manifest().pages[0].first
}

fn holes(v: &Vault, suffix: &str) {
    v.objects(suffix).iter().for_each(|name| v.put_hole(name, 1 << 40));
}

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
fn put_snapshot_pages(v: &Vault, entries: Vec<SnapshotEntry>) {
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

/// A root with as many pages as it may have.
fn with_pages(v: &Vault, snapshot: usize, page: impl Fn(u64) -> PageAt) {
    let s = &v.manifest().recent[snapshot];
    let mut root = v.root(s);
    root.pages = (0..format::RECIPE_PAGES_MAX).map(page).collect();
    root.size = format::RECIPE_PAGES_MAX * format::SEGMENTS_PER_PAGE * u64::from(root.segment_bytes);
    v.put_root(s, &root);
}

pub fn segment_of(references: Vec<Reference>) -> SegmentRecipe {
    SegmentRecipe { fingerprint: [3; 32], signature: 5, references }
}

fn page_of(references: &[Reference]) -> RecipePage {
    RecipePage { segments: vec![(0, segment_of(references.to_vec()))] }
}

/// As many references as a page may have, of zeros.
fn nulls() -> RecipePage {
    let references = vec![Reference::Null { bytes: 1 }; RecipePage::REFERENCES_MAX / 1024];
    RecipePage { segments: (0..1024).map(|n| (n, segment_of(references.clone()))).collect() }
}

/// The same, each to a chunk that stands alone.
pub fn directs(v: &Vault) -> RecipePage {
    let container = first_container(v);
    let chunk = |n: u32| Reference::Direct { container, first: ChunkNo(n % 2 * 7), count: 1 };
    let references: Vec<Reference> = (0..(RecipePage::REFERENCES_MAX / 1024) as u32).map(chunk).collect();
    RecipePage { segments: (0..1024).map(|n| (n, segment_of(references.clone()))).collect() }
}

fn page_body(v: &Vault, page: &RecipePage) -> Vec<u8> {
    let frame = page.encode(v.context("x"));
    format::decode_frame(Kind::RecipePage, v.context("x"), &frame).unwrap().into_owned()
}

/// The newest snapshot with another summary.
fn with_summary(v: &Vault, summary: Summary) {
    let frame = summary.encode(v.context("x"));
    let body = format::decode_frame(Kind::Summary, v.context("x"), &frame).unwrap();
    let page = page_body(v, &page_of(&[Reference::Null { bytes: 4 << 20 }]));
    for s in v.manifest().recent {
        v.put_recipe_of(&s, &[(Body::Of(&page), Body::Of(&body))]);
    }
}

/// Other tables of all containers.
fn with_table(v: &Vault, change: impl Fn(&mut Table)) {
    for name in v.objects(".table") {
        let mut table = Table::decode(v.context(&name), &v.read(&name)).unwrap();
        change(&mut table);
        v.write(&name, &table.encode(v.context(&name)));
    }
}

fn set_chunks(t: &mut Table, runs: Vec<(u32, u32)>, bytes: u32, codec: Codec) {
    t.numbers = RunSet::from_unsorted(runs);
    let chunks = t.numbers.len() as u32;
    t.lengths = vec![bytes; chunks as usize];
    t.fingerprints = vec![[9; 32]; chunks as usize];
    // As large as groups may be.
    let of_group = ((16 << 20) / bytes).clamp(1, chunks);
    let group = |first: u32| {
        let count = of_group.min(chunks - first);
        let (first, raw_len, stored_len) = (TableIndex(first), count * bytes, count * bytes);
        Group { first, count, offset: 64, stored_len, raw_len, codec, cipher: 0, key: 0, checksum: 0 }
    };
    t.groups = (0..chunks).step_by(of_group as usize).map(group).collect();
}

/// Containers with many groups of a few bytes that decompress to zeros.
fn with_groups(v: &Vault, codec: Codec) {
    const RAW: usize = 16 << 20;
    let zeros = vec![0; RAW];
    let mut packed = vec![0; 1 << 20];
    match codec {
        Codec::Zstd => {
            let n = zstd_safe::compress(&mut packed[..], &zeros, 3).unwrap();
            packed.truncate(n);
        }
        _ => packed = lz4_of_zeros(RAW),
    }
    drop(zeros);
    with_table(v, |t| {
        set_chunks(t, vec![(0, 64 * 16)], 1 << 20, codec);
        for g in &mut t.groups {
            g.stored_len = packed.len() as u32;
            g.checksum = format::group_checksum(t.container, ChunkNo(g.first.0), &packed);
        }
    });
    for name in v.objects(".data") {
        let mut data = v.read(&name);
        let end = data.len().max(64 + packed.len());
        data.resize(end, 0);
        data[64..64 + packed.len()].copy_from_slice(&packed);
        v.write(&name, &data);
    }
}

/// An lz4 block of so many zeros.
fn lz4_of_zeros(len: usize) -> Vec<u8> {
    // One literal, then a match at distance 1 of all but the last five, which are literals.
    let matched = len - 1 - 5;
    let mut out = vec![0x1f, 0, 1, 0];
    let mut left = matched - 4 - 15;
    while left >= 255 {
        out.push(255);
        left -= 255;
    }
    out.push(left as u8);
    out.extend_from_slice(&[0x50, 0, 0, 0, 0, 0]);
    out
}

/// As many objects of the reference index as a manifest may list, each with so many equal blocks and recipes, those of the
/// snapshots first.
fn with_references(v: &Vault, block: &Body<'_>, blocks: usize, recipes: u64) {
    let folder = v.folder();
    let names: Vec<RecipeName> = v.manifest().recent.iter().map(recipe_of).collect();
    let others = (1 << 32..).map(|n| RecipeName { snap: SnapId(n), generation: WriterNo(9) });
    let recipes: Vec<RecipeName> = names.into_iter().chain(others).take(recipes as usize).collect();
    let mut all = Vec::new();
    for number in 0..16 {
        let name = names::references(&folder, WriterNo(1), number);
        let (mut object, mut at) = (Vec::new(), Vec::new());
        for _ in 0..blocks {
            let offset = object.len() as u64;
            let frame = v.frame(Kind::ReferenceBlock, &format!("{name}#{offset}"), block);
            at.push(BlockAt { first: first_container(v), offset, len: frame.len() as u32 });
            object.extend_from_slice(&frame);
        }
        let blocks_len = object.len() as u64;
        let footer = ReferenceFooter { recipes: recipes.clone(), blocks: at };
        let footer = footer.encode(v.context(&format!("{name}#{blocks_len}")));
        let footer_len = footer.len() as u32;
        object.extend_from_slice(&footer);
        v.write(&name, &object);
        all.push(IndexRef { writer: WriterNo(1), number, blocks_len, footer_len });
    }
    v.put_manifest(|m| {
        m.references = all;
        m.recent.iter_mut().for_each(|s| s.indexed = true);
    });
}

fn append(v: &Vault, object: &str, at: u64, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(v.path(object)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, at).unwrap();
}

fn with_dead(v: &Vault, log: &dyn Fn(ContainerId) -> DeadLog) {
    for name in v.objects(".dead") {
        let old = DeadLog::decode(v.context(&name), &v.read(&name)).unwrap();
        v.write(&name, &log(old.container).encode(v.context(&name)));
    }
}

/// A filter that has everything.
fn filter(log2_bits: u8) -> Vec<u8> {
    let mut body = vec![log2_bits, 7];
    body.extend_from_slice(&u64::MAX.to_le_bytes());
    body.resize(10 + (1 << (log2_bits - 3)), 255);
    body
}

/// Gives all snapshots a recipe whose segments have these references, 256 each.
fn reference_everywhere(v: &Vault, direct: impl Fn(u32) -> Reference) {
    let segment = |n: u32| (n as u16, segment_of((n * 256..(n + 1) * 256).map(&direct).collect()));
    let page = RecipePage { segments: (0..1024).map(segment).collect() };
    for s in v.manifest().recent {
        v.put_recipe(&s, std::slice::from_ref(&page));
    }
}
