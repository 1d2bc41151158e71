//! Progress on standard error, and a clean stop on Ctrl-C.

use crate::live::is_guest_frozen;
use crate::terminal::streams::errln;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Once;
use std::time::{Duration, Instant};
use vault::Progress;

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How long an operation runs before anything is shown.
const SHOWN_AFTER: Duration = Duration::from_millis(50);

/// Whether a signal has come.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Catches SIGINT, SIGTERM, and SIGHUP where that is not ignored: from now on the first one stops what
/// [`watch`] runs, now or later.
pub fn catch_signals() {
    static CAUGHT: Once = Once::new();
    CAUGHT.call_once(|| {
        let mut signals = vec![signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
        // `nohup` means that the end of the terminal is not ours.
        signals.extend((!ignores_hangup()).then_some(signal_hook::consts::SIGHUP));
        for signal in signals {
            // A second signal ends the program at once, unless it would leave a guest frozen.
            let action = || {
                if STOPPED.swap(true, Ordering::SeqCst) && !is_guest_frozen() {
                    signal_hook::low_level::exit(130);
                }
            };
            // SAFETY: in a signal handler only what is async-signal-safe may be done: these are atomics and
            // `_exit`.
            let _ = unsafe { signal_hook::low_level::register(signal, action) };
        }
    });
}

/// Whether a signal has come since [`catch_signals`].
pub fn is_stopped() -> bool {
    STOPPED.load(Ordering::SeqCst)
}

/// Runs an operation, shows how far it is unless `quiet`, and stops it if a signal comes or has come.
pub fn watch<T>(quiet: bool, what: &str, operation: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    catch_signals();
    stop_if(quiet, what, &progress, is_stopped, || operation(&progress))
}

/// Whether a signal had come.
pub struct Signals(bool);

impl Signals {
    /// Catches signals from now on, and tells later ones from those that have come.
    pub fn so_far() -> Signals {
        catch_signals();
        Signals(is_stopped())
    }
}

/// The same for what follows an operation: a signal that has stopped that one does not stop this. If there was none, the first one
/// does; a second one ends the program at once.
pub fn watch_since<T>(
    before: &Signals,
    quiet: bool,
    what: &str,
    progress: &Progress,
    operation: impl FnOnce() -> T,
) -> T {
    stop_if(quiet, what, progress, || !before.0 && is_stopped(), operation)
}

fn stop_if<T>(
    quiet: bool,
    what: &str,
    progress: &Progress,
    is_stopped: impl Fn() -> bool + Sync,
    operation: impl FnOnce() -> T,
) -> T {
    let far = || {
        if is_stopped() {
            progress.cancel();
        }
        (progress.done(), progress.total())
    };
    show_while(quiet, what, far, operation)
}

/// Runs an operation, asks now and then how `far` it is, in bytes and of how many, and shows it unless `quiet`.
pub fn show_while<T>(
    quiet: bool,
    what: &str,
    far: impl Fn() -> (u64, u64) + Sync,
    operation: impl FnOnce() -> T,
) -> T {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let show = || show(quiet, what, &far, &ended);
        // Where the system has no room for the thread, nothing is shown, and it takes a second signal to stop.
        let shown = std::thread::Builder::new().name("progress".into()).spawn_scoped(scope, show).ok();
        // Also when the operation panics: the scope waits for the thread.
        let _end = shown.map(|shown| EndOnDrop(&ended, shown.thread().clone()));
        operation()
    })
}

fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

struct EndOnDrop<'a>(&'a AtomicBool, std::thread::Thread);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

fn show(quiet: bool, what: &str, far: &dyn Fn() -> (u64, u64), ended: &AtomicBool) {
    let terminal = std::io::stderr().is_terminal();
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar.set_message(what.to_string());
    let (start, mut last) = (Instant::now(), Instant::now());
    while !ended.load(Ordering::Relaxed) {
        let (done, total) = far();
        // What is done at once shows nothing.
        if quiet || start.elapsed() < SHOWN_AFTER {
        } else if terminal {
            bar.set_length(total.max(done));
            bar.set_position(done);
        } else if total > 0 && last.elapsed() >= LINE_EVERY {
            last = Instant::now();
            let rate = crate::terminal::output::rate(done, start.elapsed().as_secs_f64());
            errln!(
                "{what}: {} of {}, {rate}",
                crate::terminal::output::size(done),
                crate::terminal::output::size(total)
            );
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    bar.finish_and_clear();
}
