//! Small objects: records of processes and of disks.

use super::{of, Case, B};
use crate::forge::{varint, Body, Vault};
use crate::parts::{nobody, tags};
use format::{names, ClaimRecord, DiskId, Kind, SnapId, Token, Verification, Verifications, WriterNo};

pub const CASES: &[Case] = &[
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
    of("commits-of-newer", B, |v| {
        // Whether each proves that the manifest was rolled back.
        for n in 0..50 {
            put_commit(v, v.manifest().sequence.0 + 1 + n * 1000);
        }
        let name = names::commit(&v.folder(), format::Sequence::MAX);
        v.put(Kind::Commit, &name, &Body::Repeated { head: &[], item: &[0], times: 1 << 30 });
    }),
    of("commits-of-older", B, |v| {
        for sequence in 0..v.manifest().sequence.0.min(50) {
            put_commit(v, sequence);
        }
        for n in 0..2000 {
            v.write(&format!("{}0{n}", names::commits_of(&v.folder())), b"");
        }
    }),
    of("commits-of-no-manifest", B, |v| {
        // `repair` makes the manifest of the newest that is whole.
        let sequence = v.manifest().sequence.0;
        for n in 0..20 {
            put_commit(v, sequence + n);
        }
        for n in 20..40 {
            let name = names::commit(&v.folder(), format::Sequence(sequence + n));
            v.put(Kind::Commit, &name, &Body::Repeated { head: &[9; 8], item: &[0], times: 1 << 30 });
        }
        v.remove(&names::manifest(&v.folder()));
    }),
    of("verifications", B, |v| {
        // Of as many disks as fit, and of the one that there is the last.
        let of_nobody = (0..340_000).map(|n| verification(nobody(n), Vec::new()));
        put_verifications(v, of_nobody.chain([verification(v.disk(), Vec::new())]).collect());
    }),
    of("verifications-snapshots", B, |v| {
        let snapshots = (0..1_000_000).map(SnapId).collect();
        put_verifications(v, vec![verification(v.disk(), snapshots)]);
    }),
    of("verifications-bomb", B, |v| {
        let times = (1 << 30) / 24;
        let head = varint(times as u64);
        v.put(
            Kind::Verifications,
            names::VERIFICATIONS,
            &Body::Repeated { head: &head, item: &[0; 24], times },
        );
    }),
];

/// A commit record with a manifest that takes as much memory as one may.
fn put_commit(v: &Vault, sequence: u64) {
    let mut m = v.manifest();
    m.sequence = format::Sequence(sequence);
    m.recent[0].tags = tags(format::Manifest::MEMORY_MAX - m.memory_bytes());
    let name = names::commit(&v.folder(), m.sequence);
    v.write(&name, &m.encode_record(v.context(&name)));
}

fn verification(disk: DiskId, damaged_snapshots: Vec<SnapId>) -> Verification {
    let (read_chunks, next_writer) = (true, WriterNo(2));
    Verification {
        disk,
        began: 1,
        read_chunks,
        unlisted: false,
        next_writer,
        damaged_objects: 1,
        damaged_snapshots,
    }
}

fn put_verifications(v: &Vault, all: Vec<Verification>) {
    let frame = Verifications { all }.encode(v.context(names::VERIFICATIONS));
    v.write(names::VERIFICATIONS, &frame.unwrap());
}
