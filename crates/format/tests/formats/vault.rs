//! Bytes that were written once are read for ever: every format beside a file that is in the repository.
//!
//! `SAPWOOD_BLESS=1 cargo test -p format --test formats vault` writes the files anew: only before a format version is released.

use crate::samples;
use format::{
    decode_frame, encode_mark, Bloom, ClaimRecord, ContainerPage, Context, DataFooter, DataHeader, DeadLog,
    HooksFooter, HooksSum, Kind, Malformed, Manifest, NameRecord, PopularSet, ReaderRecord, RecipePage,
    RecipeRoot, ReferenceBlock, ReferenceFooter, RetiringRecord, SessionRecord, SnapshotPage, Summary, Table,
    VaultFile, VaultId, Verifications, HOOK_BYTES,
};
use std::fmt::Debug;
use std::path::PathBuf;

const HERE: Context<'static> = Context { vault: VaultId([7; 16]), place: "golden" };

/// The golden file, after writing it where that is asked for.
fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("SAPWOOD_BLESS").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The golden frame gives the value, and the value gives the golden frame's body (how it is compressed is free).
fn frame<T: PartialEq + Debug>(
    name: &str,
    kind: Kind,
    value: &T,
    encoded: &[u8],
    decode: impl Fn(Context<'_>, &[u8]) -> Result<T, Malformed>,
) {
    let golden = golden(name, encoded);
    assert_eq!(decode(HERE, &golden).as_ref(), Ok(value), "{name} is read differently");
    let body = |f: &[u8]| decode_frame(kind, HERE, f).unwrap().into_owned();
    assert!(body(encoded) == body(&golden), "{name} is written differently");
}

#[test]
fn frames() {
    for (n, m) in samples::manifests().iter().enumerate() {
        frame(&format!("manifest-{n}"), Kind::Manifest, m, &m.encode(HERE), Manifest::decode);
    }
    let page = samples::container_page();
    frame("container-page", Kind::ContainerPage, &page, &page.encode(HERE), ContainerPage::decode);
    let page = samples::snapshot_page();
    frame("snapshot-page", Kind::SnapshotPage, &page, &page.encode(HERE), SnapshotPage::decode);
    let root = samples::recipe_root();
    frame("recipe-root", Kind::RecipeRoot, &root, &root.encode(HERE), RecipeRoot::decode);
    let page = samples::recipe_page();
    frame("recipe-page", Kind::RecipePage, &page, &page.encode(HERE), RecipePage::decode);
    let summary = Summary::of(&page);
    frame("summary", Kind::Summary, &summary, &summary.encode(HERE), Summary::decode);
    for (n, t) in samples::tables().iter().enumerate() {
        frame(&format!("table-{n}"), Kind::Table, t, &t.encode(HERE), Table::decode);
        let directory = Table { fingerprints: Vec::new(), ..t.clone() };
        let encoded = t.encode_directory(HERE);
        frame(&format!("directory-{n}"), Kind::Directory, &directory, &encoded, Table::decode_directory);
    }
    let dead = samples::dead_log();
    frame("dead", Kind::Dead, &dead, &dead.encode(HERE), DeadLog::decode);
    let session = samples::session();
    frame("session", Kind::Session, &session, &session.encode(HERE), SessionRecord::decode);
    let last = samples::verifications();
    let encoded = last.encode(HERE).unwrap();
    frame("verifications", Kind::Verifications, &last, &encoded, Verifications::decode);
    let name = samples::name_record();
    frame("name", Kind::Name, &name, &name.encode(HERE), NameRecord::decode);
    let reader = samples::reader_record();
    frame("reader", Kind::Reader, &reader, &reader.encode(HERE), ReaderRecord::decode);
    let check = |context: Context<'_>, bytes: &[u8]| decode_frame(Kind::Referrer, context, bytes).map(drop);
    frame("referrer", Kind::Referrer, &(), &encode_mark(Kind::Referrer, HERE), check);
    for (n, m) in samples::manifests().iter().enumerate() {
        frame(&format!("commit-{n}"), Kind::Commit, m, &m.encode_record(HERE), Manifest::decode_record);
    }
    let claim = samples::claim();
    frame("claim", Kind::Claim, &claim, &claim.encode(HERE), ClaimRecord::decode);
    let retiring = samples::retiring();
    frame("retiring", Kind::Retiring, &retiring, &retiring.encode(HERE), RetiringRecord::decode);
    let set = samples::popular_set();
    frame("popular", Kind::Popular, &set, &set.encode(HERE), PopularSet::decode);
    let filter = samples::bloom();
    let block = samples::reference_block();
    frame("reference-block", Kind::ReferenceBlock, &block, &block.encode(HERE), ReferenceBlock::decode);
    let footer = samples::reference_footer();
    let decode = |context: Context<'_>, bytes: &[u8]| ReferenceFooter::decode(context, bytes, 65_100);
    frame("reference-footer", Kind::ReferenceFooter, &footer, &footer.encode(HERE), decode);
    frame("bloom", Kind::Bloom, &filter, &filter.encode(HERE), Bloom::decode);
}

#[test]
fn headers_and_the_vault_file() {
    let header = samples::data_header();
    let bytes = golden("data-header", &header.encode());
    assert_eq!((DataHeader::decode(&bytes), bytes), (Ok(header), header.encode()));
    let footer = DataFooter { directory_offset: 4096, directory_len: 300 };
    let bytes = golden("data-footer", &footer.encode());
    assert_eq!((DataFooter::decode(&bytes, 4096 + 300 + 32), bytes), (Ok(footer), footer.encode()));
    let (bytes, hooks) = (golden("hooks", &samples::hooks(HERE)), samples::hooks(HERE));
    assert_eq!(bytes, hooks);
    // As the first programs wrote them, without the checksum of the hooks.
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/hooks-unsummed");
    for (bytes, is_known) in [(bytes, Some(true)), (std::fs::read(path).unwrap(), None)] {
        let begins = HooksFooter::begins_at(bytes.len() as u64, bytes.last_chunk().unwrap()).unwrap();
        assert_eq!(begins, 3 * HOOK_BYTES as u64);
        let (hooks, behind) = bytes.split_at(begins as usize);
        let footer = HooksFooter::decode(HERE, &behind[..behind.len() - 8], 3).unwrap();
        let mut sum = HooksSum::default();
        sum.feed(hooks);
        assert_eq!((footer.owners.len(), footer.is_of(&sum)), (2, is_known));
    }
    let file = samples::vault_file();
    let bytes = golden("vault.json", &file.encode());
    assert_eq!((VaultFile::decode(&bytes), bytes), (Ok(file.clone()), file.encode()));
}

#[test]
fn what_is_left_over_is_refused() {
    let body = |kind, body: &[u8]| format::encode_frame(kind, HERE, body);
    assert!(ClaimRecord::decode(HERE, &body(Kind::Claim, &[1; 21])).is_err());
    assert!(RetiringRecord::decode(HERE, &body(Kind::Retiring, &[1; 13])).is_err());
    assert!(RetiringRecord::decode(HERE, &body(Kind::Retiring, &[1; 7])).is_err());
    assert!(ReaderRecord::decode(HERE, &body(Kind::Reader, &[0; 9])).is_err());
    assert!(NameRecord::decode(HERE, &body(Kind::Name, &[0; 15])).is_err());
}
