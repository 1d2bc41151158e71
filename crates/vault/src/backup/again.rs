//! Makes the recipe of a snapshot again, from another copy of its content.
//!
//! The content passes the stages of a backup. What the disk has of it is referenced, the rest is stored; then one swap
//! puts the new recipe in the place of the old one. Older snapshots may refer to its segments and to the chunks in them:
//! the content must be cut as it was.

use super::{edits_of, pipeline, record_taken};
use crate::base::error::{Result, VaultError};
use crate::base::policy::{Policy, Rewrite, Summaries};
use crate::base::progress::Progress;
use crate::container::tables::{Tables, TABLE_CACHE_BYTES};
use crate::lookup::champions::adopted::Adopted;
use crate::lookup::other_disks::OtherDisks;
use crate::lookup::parent::Parent;
use crate::lookup::place::{Basis, Placer};
use crate::manifest::container_table::Edits;
use crate::manifest::folder::{list_unswept, release_object};
use crate::manifest::session::Session;
use crate::manifest::vault::Vault;
use crate::recipe::filters;
use crate::recipe::stored::{read_root, recipe_of};
use crate::recipe::writer::RecipeWriter;
use crate::reclaim::apply::change_snapshots;
use crate::reclaim::change::{Change, Rewritten};
use format::{names, ContainerId, RecipeName, Reverse, SnapshotEntry};
use pipeline::Input;

/// Makes the recipe of `entry` again. The session is one of maintenance, and no backup of the disk runs meanwhile.
///
/// `policy` cuts as the snapshot was cut. `like` is a recipe most of whose segments are the same.
pub(crate) fn make_again(
    vault: &Vault,
    session: &Session,
    entry: &SnapshotEntry,
    policy: Policy,
    like: Option<Parent>,
    input: Input,
    progress: &Progress,
) -> Result<()> {
    let folder = session.folder.clone();
    let m = folder.load()?;
    // Nothing is written again that is there.
    let policy = Policy { rewrite_at: Rewrite::Never, ..policy };
    let tables = Tables::new(&folder, &m, false, TABLE_CACHE_BYTES);
    let others = OtherDisks::load(vault, &policy, session)?;
    let placer = Placer::new(Basis {
        policy,
        tables: &tables,
        writer: session.writer,
        parent: like,
        parents_new_bytes: None,
        untouched: None,
        adopted: Adopted::default(),
        others,
        source: None,
    })?;
    let name = RecipeName { snap: entry.id, generation: session.writer };
    let recipe = RecipeWriter::new(&folder, name, None);
    let mut run = pipeline::run(session, input, placer, recipe, &policy, progress)?;
    if run.size != entry.size {
        let why = format!("{}@{}: a copy of it has another size", m.name, entry.id);
        return Err(VaultError::Refused(why));
    }
    let fresh: Edits = run.containers.iter().map(|e| (e.id, Some(*e))).collect();
    let taken = record_taken(session, &tables, &mut run.others)?;
    if policy.summaries == Summaries::Bloom {
        filters::put(session, name, &run.recipe.pages)?;
    }
    let made = SnapshotEntry { generation: session.writer, ..entry.clone() };
    let is_newest = m.snapshots.last().is_some_and(|s| s.id == entry.id);
    let rewritten = Rewritten {
        id: entry.id,
        generation: session.writer,
        root: read_root(&folder, &made)?,
        recipe: run.recipe.clone(),
        unreferenced: Vec::new(),
        // The next pass makes it refer to the newer one again.
        reverse: if policy.reverse && !is_newest { Reverse::Pending } else { Reverse::No },
    };
    let change = Change { rewritten: vec![rewritten], ..Change::default() };
    let owners = tables.owners();
    let own: Vec<ContainerId> =
        tables.own().select(None, |e| !e.is_foreign())?.iter().map(|e| e.id).collect();
    session.swap(|m| {
        m.owners.clone_from(&owners);
        let edits = edits_of(&folder, m, &fresh, &taken)?;
        m.edit_containers(&edits)?;
        m.change_snapshots(|m, all| {
            change_snapshots(&folder, m, all, &change);
            Ok(())
        })?;
        release_object(m, names::bloom(&folder.path, recipe_of(entry)));
        // What only the lost recipe referenced is found by a sweep.
        list_unswept(m, &own);
        Ok(())
    })?;
    run.others.tidy();
    Ok(())
}
