//! Names of objects. Every name below an owner's folder ends in the number of the writer that put it, except those of
//! the manifest, of commit records and of referrer records.

use crate::container::DataName;
use crate::ids::{ContainerId, DiskId, OwnerNo, Sequence, SnapId, Token, WriterNo};
use crate::recipe::RecipeName;
use xxhash_rust::xxh3::xxh3_128;

/// The vault's own file.
pub const VAULT: &str = "vault.json";
/// A second copy of it.
pub const VAULT_COPY: &str = "vault.copy";
/// What the last verifications found.
pub const VERIFICATIONS: &str = "verifications";
/// All disks' folders.
pub const DISKS: &str = "disks/";
/// All names of disks.
pub const NAMES: &str = "names/";
/// All sessions, of all owners.
pub const SESSIONS: &str = "sessions/";
/// All readers.
pub const READERS: &str = "readers/";
/// All claims on containers of other owners.
pub const CLAIMS: &str = "claims/";
/// All records of containers that somebody wants to remove.
pub const RETIRING: &str = "retiring/";
/// The folder of the popular set.
const POPULAR_FOLDER: &str = "popular/";
/// All indexes of popular sets.
pub const POPULAR: &str = "index/popular/";
/// All hooks.
pub const HOOKS: &str = "index/hooks/";

/// An owner's folder, with a slash behind.
pub fn folder(owner: DiskId) -> String {
    match owner {
        DiskId::POPULAR => POPULAR_FOLDER.into(),
        disk => format!("disks/{disk}/"),
    }
}

/// The owner's folder in which an object lies, with a slash behind; `None` for objects of the whole vault.
pub fn folder_of(name: &str) -> Option<&str> {
    let above = if name.starts_with(DISKS) { DISKS.len() } else { 0 };
    let folder = &name[..above + name[above..].find('/')? + 1];
    (above > 0 || folder == POPULAR_FOLDER).then_some(folder)
}

/// Where the id of the disk called `vm/disk` stands.
pub fn name(disk_name: &str) -> String {
    format!("names/{:032x}", xxh3_128(disk_name.as_bytes()))
}

/// The root of an owner's folder.
pub fn manifest(folder: &str) -> String {
    format!("{folder}manifest")
}

/// All commit records of an owner.
pub fn commits_of(folder: &str) -> String {
    format!("{folder}commits/")
}

/// The record that the manifest has had a sequence.
pub fn commit(folder: &str, sequence: Sequence) -> String {
    format!("{}{sequence}", commits_of(folder))
}

/// The sequence in the name of a commit record; `None` for other objects.
pub fn sequence_of_commit(name: &str) -> Option<Sequence> {
    let (folder, sequence) = name.rsplit_once("commits/")?;
    let number = Sequence(sequence.parse().ok()?);
    // `+5` and `05` parse, but are no names.
    (commit(folder, number) == name).then_some(number)
}

/// All pages of an owner's container table.
pub fn pages_of(folder: &str) -> String {
    format!("{folder}pages/")
}

/// A page of the container table.
pub fn page(folder: &str, writer: WriterNo, number: u32) -> String {
    format!("{}{number}.{}", pages_of(folder), writer.0)
}

/// All pages of snapshots of an owner.
pub fn snapshot_pages_of(folder: &str) -> String {
    format!("{folder}snapshots/")
}

/// A page of snapshots, and its copy.
pub fn snapshot_page(folder: &str, writer: WriterNo, number: u32) -> [String; 2] {
    let page = format!("{}{number}.{}", snapshot_pages_of(folder), writer.0);
    let copy = format!("{page}.copy");
    [page, copy]
}

/// A container's data.
pub fn data(folder: &str, data: DataName) -> String {
    format!("{folder}containers/{}.{}.data", data.container, data.generation.0)
}

/// A container's chunk table.
pub fn table(folder: &str, container: ContainerId, generation: WriterNo) -> String {
    format!("{folder}containers/{container}.{}.table", generation.0)
}

/// A container's dead chunks.
pub fn dead(folder: &str, container: ContainerId, number: WriterNo) -> String {
    format!("{folder}containers/{container}.{}.dead", number.0)
}

/// All objects of an owner's containers.
pub fn containers_of(folder: &str) -> String {
    format!("{folder}containers/")
}

/// The container and the generation in the name of an object of one; `None` for other objects.
pub fn container_of(name: &str) -> Option<(ContainerId, WriterNo)> {
    let file = name.rsplit_once("containers/")?.1;
    let (id, rest) = file.split_once('.')?;
    let (writer, number) = id.split_once('-')?;
    let (writer, number) = (writer.parse().ok()?, number.parse().ok()?);
    let generation: u32 = rest.split_once('.')?.0.parse().ok()?;
    let fits = writer <= WriterNo::MAX.0 && number <= ContainerId::MAX_NUMBER;
    let id = fits.then(|| ContainerId::new(OwnerNo::OWN, WriterNo(writer), number))?;
    Some((id, WriterNo(generation)))
}

/// All objects of an owner's recipes.
pub fn recipes_of(folder: &str) -> String {
    format!("{folder}recipes/")
}

/// The names of the recipes of this writer, and of all later ones, do not come before it.
pub fn recipes_from(folder: &str, writer: WriterNo) -> String {
    format!("{}{:08}", recipes_of(folder), writer.0)
}

fn recipe(folder: &str, recipe: RecipeName, kind: &str) -> String {
    format!("{}.{}.{kind}", recipes_from(folder, recipe.generation), recipe.snap)
}

/// The root of a recipe.
pub fn recipe_root(folder: &str, name: RecipeName) -> String {
    recipe(folder, name, "root")
}

/// The recipe whose root an object is; `None` for other objects.
pub fn recipe_of_root(name: &str) -> Option<RecipeName> {
    let file = name.rsplit_once("recipes/")?.1;
    let (generation, snap) = file.strip_suffix(".root")?.split_once('.')?;
    let snap = SnapId(u64::from_str_radix(snap, 16).ok()?);
    Some(RecipeName { snap, generation: WriterNo(generation.parse().ok()?) })
}

/// The pages that a recipe does not share with older ones.
pub fn recipe_pages(folder: &str, name: RecipeName) -> String {
    recipe(folder, name, "pages")
}

/// A part of the reference index.
pub fn references(folder: &str, writer: WriterNo, number: u32) -> String {
    format!("{folder}references/{number}.{}", writer.0)
}

/// The filter over what a recipe references, where its policy has one.
pub fn bloom(folder: &str, name: RecipeName) -> String {
    recipe(folder, name, "bloom")
}

/// The object that a session holds.
pub fn session(token: Token) -> String {
    format!("sessions/{token}")
}

/// The object that a reader of an owner's folder holds.
pub fn reader(disk: DiskId, token: Token) -> String {
    format!("readers/{disk}/{token}")
}

/// All records of the disks that reference containers of an owner.
pub fn referrers_of(folder: &str) -> String {
    format!("{folder}referrers/")
}

/// The records of the disks that reference containers that one writer of an owner made.
pub fn referrers_of_writer(folder: &str, writer: WriterNo) -> String {
    format!("{}{}/", referrers_of(folder), writer.0)
}

/// The record that a disk references containers that a writer of an owner made.
pub fn referrer(folder: &str, writer: WriterNo, disk: DiskId) -> String {
    format!("{}{disk}", referrers_of_writer(folder, writer))
}

/// All claims on containers of an owner.
pub fn claims_on(owner: DiskId) -> String {
    format!("{CLAIMS}{owner}/")
}

/// A session's claim on the containers that a writer of an owner made.
pub fn claim(owner: DiskId, writer: WriterNo, session: Token) -> String {
    format!("{}{}/{session}", claims_on(owner), writer.0)
}

/// All records of containers of an owner that somebody wants to remove.
pub fn retiring_of(owner: DiskId) -> String {
    format!("{RETIRING}{owner}/")
}

/// The record that a session looks at containers of an owner to remove them. Each look has a token of its own.
pub fn retiring(owner: DiskId, look: Token) -> String {
    format!("{}{look}", retiring_of(owner))
}

/// Hooks that a session has put.
pub fn hooks(token: Token) -> String {
    format!("{HOOKS}{token}")
}

/// The index of the popular set that a writer published.
pub fn popular(writer: WriterNo) -> String {
    format!("{POPULAR}{}", writer.0)
}

/// The writer in an object's name, if it has one: first in that of a recipe, second in others.
pub fn writer_of(name: &str) -> Option<WriterNo> {
    let (folder, file) = name.rsplit_once('/')?;
    let mut parts = file.split('.');
    let first = parts.next()?;
    let second = parts.next()?;
    let writer = if folder.ends_with("/recipes") { first } else { second };
    writer.parse().ok().map(WriterNo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_below_a_folder_tells_its_writer() {
        let f = folder(DiskId([1; 16]));
        let w = WriterNo(17);
        let c = ContainerId::new(crate::OwnerNo::OWN, WriterNo(3), 5);
        let d = DataName { container: c, generation: w };
        let r = RecipeName { snap: SnapId(9), generation: w };
        for n in [
            page(&f, w, 4),
            data(&f, d),
            table(&f, c, w),
            dead(&f, c, w),
            recipe_root(&f, r),
            recipe_pages(&f, r),
            bloom(&f, r),
            references(&f, w, 4),
        ] {
            assert_eq!(writer_of(&n), Some(w), "{n}");
        }
        assert_eq!(recipe_of_root(&recipe_root(&f, r)), Some(r));
        assert_eq!(recipe_of_root(&recipe_pages(&f, r)), None);
        assert_eq!(writer_of(&manifest(&f)), None);
        assert_eq!(writer_of(&commit(&f, Sequence(17))), None);
        assert_eq!(writer_of(&referrer(&f, w, DiskId([2; 16]))), None);
    }

    #[test]
    fn recipes_of_later_writers_come_later() {
        let writers = [0, 9, 10, 99_999, WriterNo::MAX.0];
        for w in writers.windows(2) {
            let of = |snap, w| recipe_root("f/", RecipeName { snap: SnapId(snap), generation: WriterNo(w) });
            assert!(of(u64::MAX, w[0]) < recipes_from("f/", WriterNo(w[1])));
            assert!(recipes_from("f/", WriterNo(w[1])) <= of(0, w[1]));
        }
    }

    #[test]
    fn objects_of_an_owner_tell_its_folder() {
        for owner in [DiskId([1; 16]), DiskId::POPULAR] {
            let f = folder(owner);
            assert_eq!(folder_of(&manifest(&f)), Some(&f[..]));
            assert_eq!(folder_of(&referrer(&f, WriterNo(1), owner)), Some(&f[..]));
        }
        let token = Token(7);
        let of_all = [
            VAULT.into(),
            VAULT_COPY.into(),
            name("a/b"),
            session(token),
            hooks(token),
            popular(WriterNo(1)),
        ];
        for n in of_all {
            assert_eq!(folder_of(&n), None, "{n}");
        }
    }

    #[test]
    fn commit_records_tell_their_sequence() {
        let f = folder(DiskId([1; 16]));
        assert_eq!(sequence_of_commit(&commit(&f, Sequence::FIRST)), Some(Sequence::FIRST));
        assert_eq!(sequence_of_commit(&commit("popular/", Sequence::MAX)), Some(Sequence::MAX));
        for other in
            [manifest(&f), page(&f, WriterNo(1), 4), "popular/commits/+5".into(), "popular/commits/05".into()]
        {
            assert_eq!(sequence_of_commit(&other), None, "{other}");
        }
    }
}
