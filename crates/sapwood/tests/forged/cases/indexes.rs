//! Hooks and popular sets.

use super::{of, Case, B};
use crate::forge::{varint, Body, Vault};
use crate::parts::{far, nobody};
use format::{names, ContainerId, DiskId, Hook, HooksFooter, Kind, OwnerNo, Token, WriterNo, HOOK_BYTES};

pub const CASES: &[Case] = &[
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
];

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
