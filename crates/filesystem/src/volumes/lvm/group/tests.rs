use super::*;
use crate::memory::Memory;
use proptest::prelude::*;

/// Extents of 1 KiB; `a` is linear in two segments, `b` has two stripes of 512 bytes.
const SAMPLE: &str = r#"vg {
id = "group"
seqno = 7
extent_size = 2
physical_volumes {
pv0 { id = "one" pe_start = 4 pe_count = 10 }
pv1 { id = "t-wo" pe_start = 2 pe_count = 20 }
}
logical_volumes {
a { status = ["READ", "VISIBLE"]
segment2 { start_extent = 2 extent_count = 1 type = "striped" stripe_count = 1 stripes = ["pv0", 5] }
segment1 { start_extent = 0 extent_count = 2 type = "striped" stripe_count = 1 stripes = ["pv1", 1] }
}
b { status = ["VISIBLE"]
segment1 { start_extent = 0 extent_count = 2 type = "striped" stripe_count = 2 stripe_size = 1
stripes = ["pv0", 0, "pv1", 0] }
}
hidden { status = ["READ"] }
thin { status = ["VISIBLE"]
segment1 { start_extent = 0 extent_count = 5 type = "thin" }
}
snap { status = ["VISIBLE"]
segment1 { start_extent = 0 extent_count = 1 type = "striped" stripe_count = 1 stripes = ["pv0", 9] }
}
snapshot0 { status = ["READ"]
segment1 { start_extent = 0 extent_count = 1 type = "snapshot" origin = "a" cow_store = "snap" }
}
}
}
"#;

/// The disk, and the physical volumes `one` at 10,000 and `two` at 50,000.
fn members() -> (Arc<dyn Disk>, [Physical; 2]) {
    let disk: Arc<dyn Disk> = Arc::new(Memory(vec![0; 100_000]));
    let member = |id: &str, offset| {
        let part = Part::new(disk.clone(), &[Piece { offset, len: 30_000 }]).expect("on the disk");
        Physical { id: id.into(), part, text: None }
    };
    let members = [member("one", 10_000), member("two", 50_000)];
    (disk, members)
}

/// Offsets and lengths of a volume's pieces, or why there are none.
type Pieces = std::result::Result<Vec<(u64, u64)>, String>;

/// Each visible volume's name and pieces.
fn places(text: &str) -> Vec<(String, Pieces)> {
    let (disk, members) = members();
    let group = Group::parse(text).expect("valid");
    let mut left = PIECES_MAX;
    let place = |volume: &LogicalVolume| {
        let part = group.part(volume, &disk, &members, &mut left);
        let pieces = part.map(|p| p.locate(0, u64::MAX).iter().map(|p| (p.offset, p.len)).collect());
        (volume.name.clone(), pieces.map_err(|why| why.to_string()))
    };
    group.volumes.iter().map(place).collect()
}

#[test]
fn volumes_lie_where_their_segments_say() {
    let found = places(SAMPLE);
    let names: Vec<_> = found.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, ["a", "b", "thin", "snap"]);
    assert_eq!(found[0].1, Ok(vec![(52_048, 2048), (17_168, 1024)]));
    assert_eq!(found[1].1, Ok(vec![(12_048, 512), (51_024, 512), (12_560, 512), (51_536, 512)]));
    assert_eq!(found[2].1, Err("LVM vg/thin: the segment type thin is not supported".into()));
    assert_eq!(found[3].1, Err("LVM vg/snap: the segment type snapshot is not supported".into()));
}

#[test]
fn what_cannot_be_is_told() {
    for (from, to, why) in [
        ("\"one\"", "\"else\"", "its physical volume pv0 (else) is not on this disk"),
        ("\"pv0\", 5", "\"pv7\", 5", "the group has no physical volume pv7"),
        ("\"pv0\", 5", "\"pv0\", 10", "1 extents from 10 on are outside of the physical volume pv0"),
        ("pe_start = 4", "pe_start = 90", "outside of the physical volume pv0"),
        ("start_extent = 2", "start_extent = 3", "a segment begins at extent 3 instead of 2"),
        ("start_extent = 2", "start_extent = -2", "a segment begins nowhere"),
    ] {
        let found = places(&SAMPLE.replacen(from, to, 1));
        assert!(found[0].1.as_ref().is_err_and(|e| e.contains(why)), "{:?}", found[0].1);
    }
    assert!(Group::parse(&SAMPLE.replace("seqno", "x")).is_err());
    assert!(Group::parse("a = 1").is_err());
}

proptest! {
    #[test]
    fn changed_metadata_is_refused_or_placed_on_the_disk(
        changes in prop::collection::vec((0..SAMPLE.len(), "[0-9]{0,20}|[\\[\\]{}\"= a-z]"), 1..4)
    ) {
        let mut text = SAMPLE.to_string();
        for (at, new) in changes {
            text.replace_range(at..at + 1, &new);
            if text.len() < SAMPLE.len() {
                text.push_str(&" ".repeat(SAMPLE.len() - text.len()));
            }
        }
        if let Ok(group) = Group::parse(&text) {
            let (disk, members) = members();
            let mut left = 1000;
            for volume in &group.volumes {
                let _ = group.part(volume, &disk, &members, &mut left);
            }
        }
    }
}
