//! The description of the vault, and its copy.

use super::{of, Case, B};
use crate::forge::Vault;
use format::names;

pub const CASES: &[Case] = &[
    of("features", B, |v| v.write(names::VAULT, &with_features(v))),
    of("features-in-copy", B, |v| {
        v.write(names::VAULT_COPY, &with_features(v));
        v.remove(names::VAULT);
    }),
    of("nested-json", B, |v| v.write(names::VAULT, &nested())),
    of("nested-json-in-copy", B, |v| {
        v.write(names::VAULT_COPY, &nested());
        v.remove(names::VAULT);
    }),
    of("long-policy-in-both", B, |v| {
        // As long as one may be, with a checksum that is right.
        let mut file = format::VaultFile::decode(&v.read(names::VAULT)).unwrap();
        file.policy = "x".repeat(1_000_000);
        for name in [names::VAULT, names::VAULT_COPY] {
            v.write(name, &file.encode());
        }
    }),
];

fn with_features(v: &Vault) -> Vec<u8> {
    let text = String::from_utf8(v.read(names::VAULT)).unwrap();
    let features = format!("\"incompatible_features\": [{}\"\"]", "\"\",".repeat(340_000));
    text.replace("\"incompatible_features\": []", &features).into_bytes()
}

fn nested() -> Vec<u8> {
    "[".repeat(1 << 20).into_bytes()
}
