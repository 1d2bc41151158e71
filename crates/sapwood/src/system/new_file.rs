//! A file that gets its name when it is complete and durable.

use anyhow::{Context as _, Result};
use std::fs::{File, FileTimes, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use vault::VaultError;

/// A file without a name. Dropped, nothing of it is left.
pub struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
    replace: bool,
}

impl NewFile {
    /// Begins the file that is going to be `path`; if there is one of that name, `replace` allows that it goes.
    ///
    /// # Errors
    /// Refused, if there is one, or if it is a directory, a device or a pipe; or if the directory cannot be written.
    pub fn create(path: &Path, replace: bool) -> Result<NewFile> {
        // What the user's umask leaves of it.
        Self::begin(path, replace, 0o666)
    }

    /// The same, for a file that gets another one's permissions at its end: until then it is its owner's alone.
    ///
    /// # Errors
    /// As those of [`NewFile::create`].
    pub fn create_private(path: &Path, replace: bool) -> Result<NewFile> {
        Self::begin(path, replace, 0o600)
    }

    fn begin(path: &Path, replace: bool, mode: u32) -> Result<NewFile> {
        // A device's node, or a pipe, is not to be replaced by a file.
        if path.metadata().is_ok_and(|there| !there.is_file()) {
            return Err(VaultError::Refused(format!("{}: is no regular file", path.display())).into());
        }
        if !replace && path.symlink_metadata().is_ok() {
            return Err(exists(path).into());
        }
        let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let cannot = || format!("{}: cannot create", path.display());
        // What is wrong with it, without the name of a file that nobody knows.
        File::open(directory).with_context(cannot)?;
        let file = tempfile::Builder::new()
            .prefix(".sapwood-")
            .suffix("-partial")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(directory)
            .map_err(|e| io::Error::from(e.kind()))
            .with_context(cannot)?;
        Ok(NewFile { file, path: path.into(), replace })
    }

    /// Gives it these permissions; without, those of a file that it replaces, or else 640 minus the umask.
    pub fn set_mode(&self, mode: Option<u32>, replaced: &Path) -> Result<()> {
        let cannot = || format!("{}: cannot set its permissions", self.path.display());
        let own = self.file.as_file().metadata().with_context(cannot)?.permissions().mode();
        let old = replaced.metadata().ok().map(|m| m.permissions().mode() & 0o777);
        let mode = mode.or(old).unwrap_or(own & 0o640);
        self.file.as_file().set_permissions(Permissions::from_mode(mode & 0o7777)).with_context(cannot)
    }

    /// The file as it is until then.
    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Makes the file durable and gives it its name; with permissions and times of another one, if one is named.
    ///
    /// # Errors
    /// If that fails. There is no file of this name then, or the old one.
    pub fn finish(self, like: Option<&Path>) -> Result<()> {
        let NewFile { file, path, replace } = self;
        let cannot = || format!("{}: cannot write", path.display());
        if let Some(old) = like.and_then(|like| like.metadata().ok()).filter(|old| old.is_file()) {
            // Without set-user-id and its like: the owner may be another one.
            let mode = old.permissions().mode() & 0o777;
            file.as_file().set_permissions(Permissions::from_mode(mode)).with_context(cannot)?;
            if let (Ok(read), Ok(changed)) = (old.accessed(), old.modified()) {
                let times = FileTimes::new().set_accessed(read).set_modified(changed);
                file.as_file().set_times(times).with_context(cannot)?;
            }
        }
        file.as_file().sync_all().with_context(cannot)?;
        if replace {
            file.persist(&path).map_err(|e| e.error).with_context(cannot)?;
        } else {
            match file.persist_noclobber(&path) {
                Err(e) if e.error.kind() == ErrorKind::AlreadyExists => return Err(exists(&path).into()),
                other => other.map_err(|e| e.error).with_context(cannot)?,
            };
        }
        let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).and_then(|dir| dir.sync_all()).with_context(cannot)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn exists(path: &Path) -> VaultError {
    VaultError::Refused(format!("{}: exists; --force replaces it", path.display()))
}
