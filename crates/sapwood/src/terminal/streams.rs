//! Standard input, output and error: the only place that writes to the last two.
//!
//! A command's changes stay even if it cannot report them. After a failed write to standard output nothing more is
//! written there; [`finish`] then prints one line on standard error and sets exit code 1. If standard error cannot be
//! written, the text is dropped. Nothing here panics.

use super::escape::escaped;
use super::exit_code;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};

/// Which of descriptors 0 to 2 were closed when the program was started, as bits.
///
/// Rust's runtime opens `/dev/null` in their place before `main`, so that no file of ours ever gets such a number. Data
/// written there would be lost with exit code 0, so this is noted before the runtime starts.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: the loader calls each function pointer of this section once, on the main thread, before `main`. The function
// needs nothing of Rust's runtime: it makes three system calls and sets an atomic.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_CLOSED: extern "C" fn() = note_closed;

extern "C" fn note_closed() {
    for fd in 0..3 {
        // SAFETY: F_GETFD takes any number, open or not, and touches no memory.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
}

/// Why standard output cannot be written.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);
/// What the command has done, for the error line of a report that could not be written.
static DONE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints exactly one line to standard output. What would play tricks with a terminal is escaped.
macro_rules! outln {
    ($($text:tt)*) => { $crate::terminal::streams::out(&$crate::terminal::streams::line(format_args!($($text)*))) };
}

/// Prints what a command has done, unless `quiet`: one line to standard output, as [`outln`].
macro_rules! toldln {
    ($quiet:expr, $($text:tt)*) => { if !$quiet { $crate::terminal::streams::outln!($($text)*) } };
}

/// Prints exactly one line to standard error. What would play tricks with a terminal is escaped.
macro_rules! errln {
    ($($text:tt)*) => { $crate::terminal::streams::err(&$crate::terminal::streams::line(format_args!($($text)*))) };
}

pub(crate) use {errln, outln, toldln};

/// Standard output, to write data to. Unbuffered.
pub struct Out;

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut failed = lock(&FAILED);
        if failed.is_none() {
            *failed = if is_closed(1) {
                Some(Errno::BADF.into())
            } else {
                write_all(io::stdout().as_fd(), bytes).err()
            };
        }
        match &*failed {
            None => Ok(bytes.len()),
            Some(e) => Err(io::Error::new(e.kind(), Unwritable(e.to_string()))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The error of a write to [`Out`]. [`finish`] reports it, so callers need not.
#[derive(Debug)]
struct Unwritable(String);

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "standard output: cannot write: {}", self.0)
    }
}

impl std::error::Error for Unwritable {}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock()
}

fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(fd, PollFlags::OUT),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Waits until a pipe or terminal that another program has made non-blocking is ready.
fn wait(fd: BorrowedFd<'_>, until: PollFlags) {
    let _ = poll(&mut [PollFd::from_borrowed_fd(fd, until)], None);
}

/// A file, pipe or device, to be read or written in order. It waits also where another program has made it non-blocking.
pub struct Waiting<'a>(pub &'a std::fs::File);

impl io::Read for Waiting<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::io::read(self.0, &mut *bytes) {
                Ok(n) => return Ok(n),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait(self.0.as_fd(), PollFlags::IN),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Write for Waiting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_all(self.0.as_fd(), bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_closed(fd: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & 1 << fd != 0
}

/// A text as one line: names that guests and users chose cannot break it, nor command a terminal.
pub fn line(text: fmt::Arguments<'_>) -> String {
    escaped(text.to_string().replace('\n', " ").as_bytes()) + "\n"
}

/// Prints to standard output, as it is; [`finish`] tells if that fails.
pub fn out(text: &str) {
    drop(Out.write(text.as_bytes()));
}

/// Prints to standard error, as it is, if that can be written.
pub fn err(text: &str) {
    drop(write_all(io::stderr().as_fd(), text.as_bytes()));
}

/// An error if standard output was closed from the start, or a write to it has failed: for commands that would work on in
/// vain.
pub fn check_out() -> io::Result<()> {
    Out.write(&[]).map(drop)
}

/// An error if standard input was closed from the start: it would read as empty.
pub fn check_in() -> io::Result<()> {
    if is_closed(0) {
        Err(io::Error::other("standard input is closed"))
    } else {
        Ok(())
    }
}

/// Notes something that the command has done and that stays done, as a clause: `web01/vda@1f… is stored`.
pub fn note_done(what: String) {
    lock(&DONE).push(what);
}

/// Whether an error is that of a write to [`Out`].
pub fn is_unwritable(e: &anyhow::Error) -> bool {
    let of_io = |e: &io::Error| e.get_ref().is_some_and(|inner| inner.is::<Unwritable>());
    e.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(of_io))
}

/// The exit code of a command that ended with `code`.
///
/// If its output could not be written it is 1, unless it was a failure already. A line on standard error says why, and what
/// was done. Where nothing was done and the reader of a pipe has gone, there is no line: `sapwood snapshots | head -1`.
pub fn finish(code: ExitCode) -> ExitCode {
    let failed = lock(&FAILED);
    let Some(e) = &*failed else { return code };
    let done = lock(&DONE).join(", ");
    if !done.is_empty() {
        errln!("sapwood: {done}; the report could not be written to standard output: {e}");
    } else if e.kind() != ErrorKind::BrokenPipe {
        errln!("sapwood: standard output: cannot write: {e}");
    }
    if code == ExitCode::SUCCESS {
        ExitCode::from(exit_code::FAILED)
    } else {
        code
    }
}
