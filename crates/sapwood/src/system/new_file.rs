//! A file that gets its name when it is complete and durable.

use anyhow::{Context as _, Result};
use image::ReplacedFile;
use rustix::fs::{fchown, flock, linkat, AtFlags, FlockOperation, Mode, OFlags, CWD};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::fs::{File, FileTimes, Metadata, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::NamedTempFile;
use vault::VaultError;

/// How hidden names begin and end.
const PREFIX: &str = ".sapwood-";
const SUFFIX: &str = "-partial";
/// What to do about a file that another process has open.
const IN_USE: &str = "end that first, or choose another name";
/// Links that lead to one another, at most (path_resolution(7)).
const LINKS_MAX: u32 = 40;
/// Longest name of a file.
const NAME_BYTES_MAX: usize = 255;
/// Younger files are not taken for stale.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// What becomes of a file that has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and there is no new one.
    Stays,
    /// It goes, unless another process, such as a running machine, has it open.
    Goes,
    /// It goes, even if another process has it open.
    GoesInUse,
}

impl Existing {
    /// As `--force` says.
    pub fn of(force: bool) -> Self {
        if force {
            Existing::Goes
        } else {
            Existing::Stays
        }
    }
}

/// A file that has no name yet. Dropped, nothing of it is left; killed, neither, if the file system has files without names.
/// Where it has not, the file has a hidden name, and what a kill leaves of it goes when the next one begins.
pub struct NewFile {
    file: Unfinished,
    path: PathBuf,
    existing: Existing,
    /// The file that goes.
    replaced: Option<ReplacedFile>,
}

enum Unfinished {
    Unnamed(File),
    Hidden(NamedTempFile),
}

impl NewFile {
    /// Begins the file that is going to be `path`; `existing` says what becomes of one of that name.
    ///
    /// # Errors
    /// Refused, if there is one that stays, if another process has it open, or if it is a directory, a device or a pipe; or if
    /// the directory cannot be written.
    pub fn create(path: &Path, existing: Existing) -> Result<NewFile> {
        // What the user's umask leaves of it.
        Self::begin(path, existing, 0o666)
    }

    /// The same, for a file that gets another one's permissions at its end: until then it is its owner's alone.
    ///
    /// # Errors
    /// As those of [`NewFile::create`].
    pub fn create_private(path: &Path, existing: Existing) -> Result<NewFile> {
        Self::begin(path, existing, 0o600)
    }

    fn begin(path: &Path, existing: Existing, mode: u32) -> Result<NewFile> {
        if path.file_name().is_some_and(|name| name.len() > NAME_BYTES_MAX) {
            return Err(io::Error::from(Errno::NAMETOOLONG))
                .with_context(|| format!("{}: cannot create", path.display()));
        }
        // A device's node, or a pipe, is not to be replaced by a file.
        if path.metadata().is_ok_and(|there| !there.is_file()) {
            return Err(VaultError::Refused(format!("{}: is not a regular file", path.display())).into());
        }
        if leads_to_open_file(path) {
            let why =
                format!("{}: leads to a file that is open already; - is standard output", path.display());
            return Err(VaultError::Refused(why).into());
        }
        if existing == Existing::Stays && path.symlink_metadata().is_ok() {
            return Err(exists(path).into());
        }
        let replaced =
            (existing == Existing::Goes).then(|| ReplacedFile::claim_with(path, IN_USE)).transpose()?;
        let directory = directory_of(path);
        let cannot = || format!("{}: cannot create", path.display());
        // What is wrong with it, without the name of a file that nobody knows.
        File::open(directory).with_context(cannot)?;
        let file = match unnamed(directory, mode).with_context(cannot)? {
            Some(file) => Unfinished::Unnamed(file),
            None => {
                remove_stale(directory);
                let file = hidden().permissions(Permissions::from_mode(mode)).tempfile_in(directory);
                Unfinished::Hidden(file.map_err(|e| io::Error::from(e.kind())).with_context(cannot)?)
            }
        };
        let file = NewFile { file, path: path.into(), existing, replaced };
        // Says that somebody is at work; who cannot lock takes the risk.
        let _ = flock(file.file(), FlockOperation::NonBlockingLockExclusive);
        Ok(file)
    }

    /// Gives it the permissions of another file, and its owner and group, as far as this user may: without set-user-id and its
    /// like, and where the group is another one, no more for that than for all others.
    fn take_owner_of(&self, old: &Metadata) -> io::Result<()> {
        let (user, group) = (Uid::from_raw(old.uid()), Gid::from_raw(old.gid()));
        let mode = old.permissions().mode() & 0o777;
        self.file().set_permissions(Permissions::from_mode(mode))?;
        let both = fchown(self.file(), Some(user), Some(group));
        let is_groups = both.or_else(|_| fchown(self.file(), None, Some(group))).is_ok();
        if is_groups || self.file().metadata()?.gid() == old.gid() {
            return Ok(());
        }
        let common = (mode >> 3) & mode & 0o7;
        self.file().set_permissions(Permissions::from_mode(mode & 0o700 | common << 3 | common))
    }

    /// Gives it these permissions; without, those of a file that it replaces, or else 640 minus the umask.
    pub fn set_mode(&self, mode: Option<u32>, replaced: &Path) -> Result<()> {
        let cannot = || format!("{}: cannot set its permissions", self.path.display());
        let own = self.file().metadata().with_context(cannot)?.permissions().mode();
        let old = replaced.metadata().ok().map(|m| m.permissions().mode() & 0o777);
        let mode = mode.or(old).unwrap_or(own & 0o640);
        self.file().set_permissions(Permissions::from_mode(mode & 0o7777)).with_context(cannot)
    }

    /// The file as it is until then.
    pub fn file(&self) -> &File {
        match &self.file {
            Unfinished::Unnamed(file) => file,
            Unfinished::Hidden(file) => file.as_file(),
        }
    }

    /// What it is going to be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file durable and gives it its name; with owner, permissions and times of another one, if there is one.
    ///
    /// # Errors
    /// If that fails. There is no file of this name then, or the old one.
    pub fn finish(self, like: Option<&Metadata>) -> Result<()> {
        let cannot = || format!("{}: cannot write", self.path.display());
        if let Some(old) = like {
            if let (Ok(read), Ok(changed)) = (old.accessed(), old.modified()) {
                let times = FileTimes::new().set_accessed(read).set_modified(changed);
                self.file().set_times(times).with_context(cannot)?;
            }
            // Last: who has given it away may change nothing of it any more.
            self.take_owner_of(old).with_context(cannot)?;
        }
        self.file().sync_all().with_context(cannot)?;
        let NewFile { file, path, existing, mut replaced } = self;
        if let Some(replaced) = &mut replaced {
            replaced.claim_again()?;
        }
        let replace = existing != Existing::Stays;
        let cannot = || format!("{}: cannot write", path.display());
        let directory = directory_of(&path);
        let done = match file {
            Unfinished::Hidden(file) if replace => file.persist(&path).map(drop).map_err(|e| e.error),
            Unfinished::Hidden(file) => file.persist_noclobber(&path).map(drop).map_err(|e| e.error),
            Unfinished::Unnamed(file) => match named(&file, &path) {
                Err(e) if replace && e.kind() == ErrorKind::AlreadyExists => {
                    give_name_of_another(&file, &path, directory)
                }
                other => other,
            },
        };
        match done {
            Err(e) if !replace && e.kind() == ErrorKind::AlreadyExists => return Err(exists(&path).into()),
            other => other.with_context(cannot)?,
        }
        File::open(directory).and_then(|dir| dir.sync_all()).with_context(cannot)
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether a link, such as /dev/stdout, leads to what names an open file of a process: the link would be replaced.
fn leads_to_open_file(path: &Path) -> bool {
    let (mut at, mut links) = (path.to_owned(), 0..LINKS_MAX);
    while let (Ok(target), Some(_)) = (at.read_link(), links.next()) {
        at = directory_of(&at).join(target);
        if directory_of(&at).canonicalize().is_ok_and(|directory| directory.starts_with("/proc")) {
            return true;
        }
    }
    false
}

/// A file without a name in a directory; `None` where there are none, or where none could be given a name.
fn unnamed(directory: &Path, mode: u32) -> io::Result<Option<File>> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::from_raw_mode(mode)) {
        Ok(fd) => {
            let file = File::from(fd);
            Ok(link_of(&file).symlink_metadata().is_ok().then_some(file))
        }
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// What names an open file.
fn link_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Gives an unnamed file a name that nothing has.
fn named(file: &File, path: &Path) -> io::Result<()> {
    Ok(linkat(CWD, link_of(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

/// Gives an unnamed file the name that another one has: by way of a hidden name, which a kill in between leaves.
fn give_name_of_another(file: &File, path: &Path, directory: &Path) -> io::Result<()> {
    remove_stale(directory);
    let hidden = hidden().make_in(directory, |hidden| named(file, hidden))?.into_temp_path();
    hidden.persist(path).map_err(|e| e.error)
}

fn hidden() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    builder
}

/// Removes hidden files whose writers are gone. What cannot be looked at, or removed, stays.
fn remove_stale(directory: &Path) {
    let Ok(entries) = directory.read_dir() else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(PREFIX.as_bytes()) && name.ends_with(SUFFIX.as_bytes()) {
            let _ = remove_if_stale(&entry.path());
        }
    }
}

fn remove_if_stale(path: &Path) -> io::Result<()> {
    let there = path.symlink_metadata()?;
    // A file is locked a moment after it got its name.
    let is_old = there.modified()?.elapsed().is_ok_and(|age| age > STALE_AFTER);
    if !there.is_file() || !is_old {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let (is, was) = (file.metadata()?, path.symlink_metadata()?);
    if (is.dev(), is.ino()) == (was.dev(), was.ino()) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn exists(path: &Path) -> VaultError {
    VaultError::Refused(format!("{}: exists; --force replaces it", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn names(directory: &Path) -> Vec<String> {
        let entries = directory.read_dir().unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Both ways of being unfinished.
    fn create(is_hidden: bool, path: &Path, replace: bool) -> NewFile {
        if !is_hidden {
            return NewFile::create(path, Existing::of(replace)).unwrap();
        }
        let file = Unfinished::Hidden(hidden().tempfile_in(directory_of(path)).unwrap());
        NewFile { file, path: path.into(), existing: Existing::of(replace), replaced: None }
    }

    #[test]
    fn a_file_gets_its_name_at_its_end() {
        for is_hidden in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            let mut file = create(is_hidden, &path, false);
            file.write_all(b"content").unwrap();
            assert!(!path.exists());
            file.finish(None).unwrap();
            assert_eq!(
                (std::fs::read(&path).unwrap(), names(dir.path())),
                (b"content".to_vec(), vec!["file".into()])
            );
            std::fs::remove_file(&path).unwrap();
            // What came meanwhile stays, but where it may be replaced.
            for replace in [false, true] {
                let mut file = create(is_hidden, &path, replace);
                file.write_all(b"new").unwrap();
                std::fs::write(&path, b"old").unwrap();
                let done = file.finish(None);
                assert_eq!(done.is_ok(), replace, "{done:?}");
                let left: &[u8] = if replace { b"new" } else { b"old" };
                assert_eq!(
                    (std::fs::read(&path).unwrap().as_slice(), names(dir.path())),
                    (left, vec!["file".into()])
                );
                std::fs::remove_file(&path).unwrap();
            }
            drop(create(is_hidden, &path, true));
            assert_eq!(names(dir.path()), Vec::<String>::new());
        }
    }

    #[test]
    fn links_to_open_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let link = |name: &str, to: &str| {
            let path = dir.path().join(name);
            std::os::unix::fs::symlink(to, &path).unwrap();
            path
        };
        let out = link("out", "/proc/self/fd/1");
        let far = link("far", "out");
        link("round", "circle");
        let circle = link("circle", "round");
        let other = link("other", "file");
        for path in [&out, &far, Path::new("/dev/stdout"), Path::new("/dev/fd/1")] {
            assert!(NewFile::create(path, Existing::Goes).is_err(), "{}", path.display());
        }
        assert_eq!([&circle, &other].map(|path| leads_to_open_file(path)), [false, false]);
        assert!(out.symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn what_a_kill_left_goes_and_what_is_at_work_stays() {
        let dir = tempfile::tempdir().unwrap();
        let made = |name: &str, age: Duration| {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
            file
        };
        let hour = Duration::from_secs(3600);
        let working = made(".sapwood-a-partial", hour);
        flock(&working, FlockOperation::NonBlockingLockExclusive).unwrap();
        made(".sapwood-b-partial", hour);
        made(".sapwood-c-partial", Duration::ZERO);
        made(".other-partial", hour);
        std::os::unix::fs::symlink(".other-partial", dir.path().join(".sapwood-d-partial")).unwrap();
        remove_stale(dir.path());
        let left = [".other-partial", ".sapwood-a-partial", ".sapwood-c-partial", ".sapwood-d-partial"];
        assert_eq!(names(dir.path()), left);
    }
}
