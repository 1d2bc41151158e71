//! The small text files at the root of a store.

use std::io::{self, ErrorKind};

use crate::file_system::{read_full, write_full, Access, FileSystem};

/// One of the small files at the root, where it is there.
pub(super) fn read_text<F: FileSystem>(fs: &F, name: &str) -> io::Result<Option<String>> {
    let file = match fs.open(name, Access::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut text = vec![0; 256];
    let len = read_full(fs, &file, &mut text, 0)?;
    text.truncate(len);
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// Writes one of the small files at the root, durably.
pub(super) fn write_text<F: FileSystem>(fs: &F, aside: &str, name: &str, text: &str) -> io::Result<()> {
    // Two processes may do this at once: they write the same bytes, and the first rename wins.
    let file = fs.open(aside, Access::Create)?;
    write_full(fs, &file, text.as_bytes(), 0)?;
    fs.set_len(&file, text.len() as u64)?;
    fs.sync(&file)?;
    match fs.rename(aside, name) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    fs.sync_dir("").map(drop)
}
