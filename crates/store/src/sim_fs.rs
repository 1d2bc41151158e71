//! A file system in memory for tests: it can be stopped at any call, lose power, lose a process, run
//! full, and lack what some real ones lack. The same seed gives the same behaviour.
//!
//! A [`SimFs`] is a process's view of a disk. After a [`SimFs::crash`] the disk holds what a power cut may
//! leave under the weakest promises that a file system makes:
//! - what was synced is there;
//! - of a file's other changes, each 512-byte sector is old or new, and so is the length;
//! - of a directory's other changes, a prefix is there, and different directories know nothing of each
//!   other: a rename from one to another may leave both names, or none;
//! - there are no locks and no processes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

use crate::file_system::{Access, FileSystem, FsType, Identity, Kind, Lock, Metadata};

mod directory;
mod disk;
mod fault;
mod inode;
mod random;

use disk::Disk;
use fault::stopped;
use inode::{identity, Body};

pub use fault::{Lack, SimOp};

/// A process on a simulated disk. A clone is another handle of the same process.
#[derive(Clone)]
pub struct SimFs {
    shared: Arc<Shared>,
    process: u64,
    host: u8,
}

struct Shared {
    disk: Mutex<Disk>,
    unlocked: Condvar,
}

/// An open file of a [`SimFs`].
pub struct SimFile {
    shared: Arc<Shared>,
    handle: u64,
}

impl SimFs {
    /// An empty disk with one process on it.
    pub fn new(seed: u64) -> Self {
        let mut disk = Disk::new(seed);
        let process = disk.new_process();
        Self {
            shared: Arc::new(Shared { disk: Mutex::new(disk), unlocked: Condvar::new() }),
            process,
            host: 0,
        }
    }

    /// A new process on the same disk.
    pub fn process(&self) -> SimFs {
        let process = self.disk().new_process();
        Self { shared: Arc::clone(&self.shared), process, host: self.host }
    }

    /// A new process of another host on the same disk.
    pub fn process_on(&self, host: u8) -> SimFs {
        Self { host, ..self.process() }
    }

    /// A disk of its own with all that is on this one now, durable or not: what happens on one of them later is not seen
    /// on the other. Processes, their locks and a stop stay behind. Returns a process on the copy.
    pub fn copy(&self) -> SimFs {
        let mut disk = self.disk().copy();
        let process = disk.new_process();
        Self {
            shared: Arc::new(Shared { disk: Mutex::new(disk), unlocked: Condvar::new() }),
            process,
            host: self.host,
        }
    }

    /// Lets the file system be of another type from now on; other hosts may see it.
    pub fn set_shared_type(&self, name: &str) {
        self.disk().shared_type = Some(name.to_owned());
    }

    /// Ends this process: its locks go, its later calls fail; what it wrote stays as it is.
    pub fn kill(&self) {
        self.disk().kill(self.process);
        self.shared.unlocked.notify_all();
    }

    /// Ends all processes and takes a stop back; what was written stays. Returns a new process.
    pub fn restart(&self) -> SimFs {
        self.disk().kill_all();
        self.shared.unlocked.notify_all();
        self.process()
    }

    /// Cuts the power: what was not synced is there, or not, or in part. Returns a new process.
    pub fn crash(&self) -> SimFs {
        self.disk().crash();
        self.shared.unlocked.notify_all();
        self.process()
    }

    /// Stops everything at the `n`-th changing call from now (1: the next), which may have taken effect
    /// in part; it and all later calls fail until [`Self::crash`] or [`Self::restart`].
    pub fn stop_after(&self, n: u64) {
        let mut disk = self.disk();
        disk.stop_at = Some(disk.ops + n);
    }

    /// Whether a stop set by [`Self::stop_after`] was reached.
    pub fn is_stopped(&self) -> bool {
        self.disk().stopped
    }

    /// Lets the next call of a kind fail with an error of the system; nothing of it takes effect.
    pub fn fail_next(&self, op: SimOp, raw_os_error: i32) {
        self.disk().failures.push((op, raw_os_error));
    }

    /// Lets the file system be without something from now on.
    pub fn lack(&self, what: Lack) {
        self.disk().lacks.push(what);
    }

    /// Bounds the bytes that all files take together; `ENOSPC` beyond. Directories take none.
    pub fn set_capacity(&self, bytes: u64) {
        self.disk().capacity = Some(bytes);
    }

    /// Bounds the files and directories there may be; `ENOSPC` beyond.
    pub fn set_inodes(&self, files: usize) {
        self.disk().inodes_max = Some(files);
    }

    /// Lets files that are removed from now on keep their space and inode until so much time was spent in pauses.
    pub fn free_late(&self, delay: Duration) {
        self.disk().late = Some(delay);
    }

    /// The time that was spent in pauses.
    pub fn paused(&self) -> Duration {
        self.disk().paused
    }

    /// Files and directories that have a name or are open.
    pub fn used_inodes(&self) -> usize {
        self.disk().used_inodes()
    }

    /// Bytes that all files take together.
    pub fn used_bytes(&self) -> u64 {
        self.disk().used()
    }

    /// Changing calls so far.
    pub fn op_count(&self) -> u64 {
        self.disk().ops
    }

    /// Names of the files in a directory, as they are now.
    pub fn file_names(&self, path: &str) -> Vec<String> {
        self.disk().entries(path).unwrap_or_default().into_iter().map(|(name, _)| name).collect()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.shared.disk.lock()
    }

    /// The disk, for a call that changes nothing.
    fn look(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.disk();
        disk.check_alive(self.process)?;
        Ok(disk)
    }

    /// Makes one changing call: `step` is what it does.
    fn change<T>(&self, op: SimOp, step: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        change(&mut *self.look()?, op, step)
    }
}

impl FileSystem for SimFs {
    type File = SimFile;
    type Entries = std::vec::IntoIter<io::Result<(String, Kind)>>;

    fn location(&self) -> String {
        "simulated disk".to_owned()
    }

    fn nonce(&self) -> u64 {
        self.disk().random.next()
    }

    fn fs_type(&self) -> io::Result<FsType> {
        let name = self.look()?.shared_type.clone();
        let is_local = name.is_none();
        Ok(FsType { name: name.unwrap_or_else(|| "simulated".to_owned()), is_local })
    }

    fn machine(&self) -> io::Result<Option<[u8; 16]>> {
        Ok(Some([self.host; 16]))
    }

    fn open(&self, path: &str, access: Access) -> io::Result<SimFile> {
        let mut disk = self.look()?;
        let inode = match disk.find(path) {
            Ok(_) if access == Access::CreateNew => return Err(Errno::EXIST.into()),
            Ok(inode) => inode,
            Err(e)
                if e.kind() == io::ErrorKind::NotFound
                    && matches!(access, Access::Create | Access::CreateNew) =>
            {
                change(&mut disk, SimOp::Create, |disk| disk.create_file(path))?
            }
            Err(e) => return Err(e),
        };
        if access != Access::Read {
            disk.check_writable()?;
            disk.body(inode)?;
        }
        let handle = disk.open(inode, self.process);
        Ok(SimFile { shared: Arc::clone(&self.shared), handle })
    }

    fn metadata(&self, file: &SimFile) -> io::Result<Metadata> {
        let disk = self.look()?;
        disk.metadata(disk.inode_of(file.handle)?)
    }

    fn stat(&self, path: &str) -> io::Result<Metadata> {
        let disk = self.look()?;
        disk.metadata(disk.find(path)?)
    }

    fn read_at(&self, file: &SimFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut disk = self.look()?;
        let wanted = disk.interrupt(buf.len())?;
        let inode = disk.inode_of(file.handle)?;
        Ok(disk.body(inode)?.read(&mut buf[..wanted], offset))
    }

    fn write_at(&self, file: &SimFile, data: &[u8], offset: u64) -> io::Result<usize> {
        let mut disk = self.look()?;
        disk.begin(SimOp::Write)?;
        let inode = disk.inode_of(file.handle)?;
        if disk.is_cut() {
            let part = disk.random.below(data.len() as u64 + 1) as usize;
            disk.write(inode, &data[..part], offset)?;
            return Err(stopped());
        }
        let wanted = disk.interrupt(data.len())?;
        disk.write(inode, &data[..wanted], offset)
    }

    fn set_len(&self, file: &SimFile, len: u64) -> io::Result<()> {
        self.change(SimOp::SetLen, |disk| disk.resize(disk.inode_of(file.handle)?, |body| body.set_len(len)))
    }

    fn allocate(&self, file: &SimFile, len: u64) -> io::Result<()> {
        self.change(SimOp::Write, |disk| disk.allocate(disk.inode_of(file.handle)?, len))
    }

    fn punch(&self, file: &SimFile, offset: u64, len: u64) -> io::Result<()> {
        if self.look()?.lacks.contains(&Lack::Punch) {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.change(SimOp::Punch, |disk| {
            disk.resize(disk.inode_of(file.handle)?, |body| body.punch(offset, len))
        })
    }

    fn sync(&self, file: &SimFile) -> io::Result<()> {
        self.change(SimOp::Sync, |disk| disk.resize(disk.inode_of(file.handle)?, Body::sync))
    }

    fn start_writeback(&self, _file: &SimFile, _offset: u64, _len: u64) {}

    fn will_read(&self, _file: &SimFile, _offset: u64, _len: u64) {}

    fn lock(&self, file: &SimFile, lock: Lock, wait: bool) -> io::Result<bool> {
        let mut disk = self.look()?;
        loop {
            if disk.try_lock(file.handle, lock)? {
                // A shared lock in place of an exclusive one lets others in.
                self.shared.unlocked.notify_all();
                return Ok(true);
            }
            if !wait {
                return Ok(false);
            }
            self.shared.unlocked.wait(&mut disk);
            disk.check_alive(self.process)?;
        }
    }

    fn lock_holder(&self, _file: &SimFile) -> String {
        "another simulated process".to_owned()
    }

    fn unlock(&self, file: &SimFile) -> io::Result<()> {
        self.look()?.unlock(file.handle)?;
        self.shared.unlocked.notify_all();
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(SimOp::Rename, |disk| disk.rename(from, to, true))
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        if self.look()?.lacks.contains(&Lack::RenameNew) {
            return Err(Errno::PERM.into());
        }
        self.change(SimOp::Rename, |disk| disk.rename(from, to, false))
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        self.change(SimOp::Unlink, |disk| disk.unlink(path))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.change(SimOp::MakeDir, |disk| disk.make_dir(path))
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.change(SimOp::RemoveDir, |disk| disk.remove_dir(path))
    }

    fn sync_dir(&self, path: &str) -> io::Result<Identity> {
        self.change(SimOp::SyncDir, |disk| disk.sync_dir(path).map(identity))
    }

    fn entries(&self, path: &str) -> io::Result<Self::Entries> {
        let entries: Vec<_> = self.look()?.entries(path)?.into_iter().map(Ok).collect();
        Ok(entries.into_iter())
    }

    fn free(&self) -> io::Result<Option<u64>> {
        let disk = self.look()?;
        Ok(disk.capacity.map(|capacity| capacity.saturating_sub(disk.used())))
    }

    fn pause(&self, time: Duration) {
        self.disk().pause(time);
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut disk = self.shared.disk.lock();
        disk.close(self.handle);
        drop(disk);
        self.shared.unlocked.notify_all();
    }
}

fn change<T>(disk: &mut Disk, op: SimOp, step: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
    disk.begin(op)?;
    let cut = disk.is_cut();
    if cut && disk.random.coin() {
        return Err(stopped());
    }
    let done = step(disk);
    if cut {
        Err(stopped())
    } else {
        done
    }
}
