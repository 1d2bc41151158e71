//! Mounting and unmounting a tree.

use super::file_requests::{FileRequests, FileService};
use super::mountpoint::{Access, Busy, Mountpoint};
use super::requests::{Requests, Service};
use super::served::Served;
use super::tuning::tune;
use crate::files::Files;
use crate::tree::Tree;
use fuser::{Config, Filesystem, Session, SessionACL};
use std::io;
use std::path::Path;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the kernel may take to end an unmounted tree. It does not end while another mount namespace has it.
const LEAVE_TIME: Duration = Duration::from_secs(2);

/// How a tree is mounted.
pub struct MountOptions {
    /// Requests that are carried out at once.
    pub threads: usize,
    /// Whether other users may read it.
    pub allow_other: bool,
    /// Called with a message for each request that failed, except for names that do not exist.
    pub on_error: Box<dyn Fn(&str) + Send + Sync>,
    /// Called when no more requests come: the tree was unmounted, by us or by another process.
    pub on_end: Box<dyn FnOnce() + Send>,
}

/// How the end of a mount went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmountOutcome {
    /// It is unmounted.
    Whole,
    /// It is detached, but files of it are open; reading them fails from now on.
    InUse,
    /// It is unmounted here, but another mount namespace has it, where reading fails from now on.
    Elsewhere,
}

impl UnmountOutcome {
    /// What is to be said of it, if anything.
    pub fn warning(self) -> Option<&'static str> {
        match self {
            UnmountOutcome::Whole => None,
            UnmountOutcome::InUse => Some("unmounted, but files were open; using them fails from now on"),
            UnmountOutcome::Elsewhere => Some(
                "unmounted, but something still has it, such as a container or a service with a mount namespace of \
                 its own; using it there fails from now on",
            ),
        }
    }
}

/// A mounted tree, or file system. Dropped, it is unmounted.
pub struct Mount {
    mountpoint: Mountpoint,
    served: Arc<dyn Served>,
    /// What came of answering the kernel's requests; sent when no more come.
    ended: Receiver<io::Result<()>>,
    answering: Option<JoinHandle<()>>,
}

type OnError = Box<dyn Fn(&str) + Send + Sync>;
type OnStart = Box<dyn Fn() + Send + Sync>;

impl Mount {
    /// Mounts a tree on a directory. When this returns, the tree can be read.
    pub fn start(mountpoint: &Path, tree: Arc<dyn Tree>, options: MountOptions) -> io::Result<Mount> {
        Self::serve(mountpoint, Access::Read, options, |on_error, on_start| {
            let service = Arc::new(Service::new(tree, on_error, on_start));
            (Requests(service.clone()), service)
        })
    }

    /// Mounts a file system on a directory. When this returns, it can be used. When it is unmounted, what was not synced
    /// may not be durable: [`Files::sync`].
    pub fn start_files(mountpoint: &Path, files: Arc<dyn Files>, options: MountOptions) -> io::Result<Mount> {
        let mount = Self::serve(mountpoint, Access::Write, options, |on_error, on_start| {
            let service = Arc::new(FileService::new(files, on_error, on_start));
            (FileRequests(service.clone()), service)
        })?;
        tune(mount.mountpoint());
        Ok(mount)
    }

    fn serve<R: Filesystem, S: Served + 'static>(
        mountpoint: &Path,
        access: Access,
        options: MountOptions,
        make: impl FnOnce(OnError, OnStart) -> (R, Arc<S>),
    ) -> io::Result<Mount> {
        let MountOptions { threads, allow_other, on_error, on_end } = options;
        let (send, ended) = channel();
        // A message comes with the first request of the kernel, or when the session has failed.
        let (begin, begun) = channel();
        let never = begin.clone();
        let on_start = Box::new(move || {
            let _ = begin.send(());
        });
        let (requests, served) = make(on_error, on_start);
        let (mountpoint, device) = Mountpoint::attach(mountpoint, access, allow_other)?;
        let mut config = Config::default();
        config.n_threads = Some(threads.max(1));
        config.clone_fd = threads > 1;
        // The kernel checks who may read.
        let session = Session::from_fd(requests, device, SessionACL::All, config);
        let spawned = session.and_then(|session| {
            served.begin(session.notifier());
            std::thread::Builder::new().name("fuse".into()).spawn(move || {
                drop(send.send(session.run()));
                let _ = never.send(());
                on_end();
            })
        });
        let answering = spawned.inspect_err(|_| drop(mountpoint.detach(Busy::Yes)))?;
        let mount = Mount { mountpoint, served, ended, answering: Some(answering) };
        let _ = begun.recv();
        match mount.ended.try_recv() {
            // The session with the kernel failed: there will be no requests.
            Ok(Err(e)) => {
                drop(mount.mountpoint.detach(Busy::Yes));
                Err(e)
            }
            _ => Ok(mount),
        }
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        self.mountpoint.path()
    }

    /// Unmounts, if that has not happened.
    pub fn stop(mut self) -> UnmountOutcome {
        self.end()
    }

    fn end(&mut self) -> UnmountOutcome {
        let Some(answering) = self.answering.take() else { return UnmountOutcome::Whole };
        let gone = !matches!(self.ended.try_recv(), Err(TryRecvError::Empty));
        let mut is_unused = false;
        // Something else may have been mounted there since.
        if self.mountpoint.is_ours(gone) {
            // Files may stay open when it is detached.
            self.served.write_out();
            is_unused = self.mountpoint.detach(Busy::No).is_ok();
            if !is_unused {
                if let Err(e) = self.mountpoint.detach(Busy::Yes) {
                    self.served.tell(&format!("unmounting {}: {e}", self.mountpoint().display()));
                }
            }
        }
        match self.ended.recv_timeout(LEAVE_TIME) {
            // The threads wait for requests that come when somebody reads; they end with the process.
            Err(RecvTimeoutError::Timeout) => {
                self.served.close_all();
                if is_unused {
                    UnmountOutcome::Elsewhere
                } else {
                    UnmountOutcome::InUse
                }
            }
            _ => {
                drop(answering.join());
                UnmountOutcome::Whole
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.end();
    }
}
