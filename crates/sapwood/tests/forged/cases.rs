//! What is forged: of every kind of object what takes most memory within the limits, and what is far beyond them.

mod at_once;
mod containers;
mod filters;
mod holes;
mod indexes;
mod lost;
mod manifests;
mod owners;
mod pages;
mod recipes;
mod records;
mod references;
mod summaries;
mod vault_files;

use crate::forge::Vault;

/// One thing that is wrong with a vault.
pub struct Case {
    pub name: &'static str,
    pub policy: &'static str,
    pub forge: fn(&Vault),
}

const fn of(name: &'static str, policy: &'static str, forge: fn(&Vault)) -> Case {
    Case { name, policy, forge }
}

/// The policy of most cases.
const B: &str = "balanced";

/// All cases.
pub fn all() -> impl Iterator<Item = &'static Case> {
    let of_kinds = [
        manifests::CASES,
        pages::CASES,
        containers::CASES,
        recipes::CASES,
        summaries::CASES,
        filters::CASES,
        references::CASES,
        owners::CASES,
        records::CASES,
        indexes::CASES,
        vault_files::CASES,
        holes::CASES,
        lost::CASES,
        at_once::CASES,
    ];
    of_kinds.into_iter().flatten()
}
