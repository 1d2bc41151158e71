//! Extended attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use export::files::SetAttribute;
use export::NodeId;
use redb::ReadableTable;
use rustix::io::Errno;

use super::error::Answer;
use super::table::{key, range, ATTRIBUTES};
use super::FileSystem;

/// Linux's own limits.
const NAME_BYTES_MAX: usize = 255;
const VALUE_BYTES_MAX: usize = 65_536;

impl FileSystem {
    pub(super) fn get_attribute(&self, id: NodeId, name: &OsStr) -> Answer<Vec<u8>> {
        let key = key(id.0, checked(name)?);
        let value = self
            .table
            .lock()
            .with(|open| Ok(open.open_table(ATTRIBUTES)?.get(&*key)?.map(|value| value.value().to_vec())))?;
        Ok(value.ok_or(Errno::NODATA)?)
    }

    pub(super) fn list_attributes(&self, id: NodeId) -> Answer<Vec<u8>> {
        let range = range(id.0);
        let names = self.table.lock().with(|open| {
            let mut names = Vec::new();
            for entry in open.open_table(ATTRIBUTES)?.range(&*range.start..&*range.end)? {
                names.extend_from_slice(&entry?.0.value()[8..]);
                names.push(0);
            }
            Ok(names)
        })?;
        if names.len() > VALUE_BYTES_MAX {
            return Err(Errno::TOOBIG.into());
        }
        Ok(names)
    }

    pub(super) fn put_attribute(
        &self,
        id: NodeId,
        name: &OsStr,
        value: &[u8],
        how: SetAttribute,
    ) -> Answer<()> {
        let key = key(id.0, checked(name)?);
        if value.len() > VALUE_BYTES_MAX {
            return Err(Errno::TOOBIG.into());
        }
        self.check_room_for_names()?;
        let mut table = self.table.lock();
        let node = self.node_of(&table, id.0)?;
        let is_there = table.with(|open| Ok(open.open_table(ATTRIBUTES)?.get(&*key)?.is_some()))?;
        match how {
            SetAttribute::Create if is_there => return Err(Errno::EXIST.into()),
            SetAttribute::Replace if !is_there => return Err(Errno::NODATA.into()),
            _ => {}
        }
        table.changing(|open| {
            open.open_table(ATTRIBUTES)?.insert(&*key, value)?;
            Ok(())
        })?;
        table.add(key.len() + value.len());
        self.touch(&node, |_| ());
        Ok(())
    }

    pub(super) fn drop_attribute(&self, id: NodeId, name: &OsStr) -> Answer<()> {
        let key = key(id.0, checked(name)?);
        let mut table = self.table.lock();
        let node = self.node_of(&table, id.0)?;
        let is_gone = table.changing(|open| Ok(open.open_table(ATTRIBUTES)?.remove(&*key)?.is_some()))?;
        if !is_gone {
            return Err(Errno::NODATA.into());
        }
        self.touch(&node, |_| ());
        Ok(())
    }
}

/// The bytes of a name that is kept. Lists of permissions (ACLs) are not: the kernel would not check them.
fn checked(name: &OsStr) -> std::result::Result<&[u8], Errno> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() > NAME_BYTES_MAX {
        return Err(Errno::RANGE);
    }
    if bytes.starts_with(b"system.") {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(bytes)
}
