//! All queues of a client, and the threads that carry their requests out.

use super::block::{answer_quickly, carry_out, Disk, Unanswerable};
use super::config::{has, QUEUES_MAX};
use super::memory::Memory;
use super::ring::{Chain, Ring, Taken};
use crate::device::BlockDevice;
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{eventfd, EventfdFlags, Timespec};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// Memory that a thread keeps between requests.
const KEPT_BYTES: usize = 2 << 20;
/// Kicks that are looked at together; the others come next.
const EVENTS: usize = 16;
/// Requests that are taken before it is asked which other queues were kicked.
const TAKEN_AT_ONCE: u32 = 64;
/// Failures that are told at once, and the time for one more: a guest must not fill the host's log.
const TOLD_AT_ONCE: u32 = 20;
const TELL_EVERY: Duration = Duration::from_secs(1);
/// What [`Rings::wake`] is called among what is waited for; the others are numbers of queues.
const WAKE: u64 = u64::MAX;

/// The queues of a client.
pub(super) struct Rings {
    rings: Vec<Ring>,
    memory: Arc<Memory>,
    device: Arc<dyn BlockDevice>,
    name: String,
    on_error: Box<dyn Fn(&str) + Send + Sync>,
    /// How many failures may be told now, and since when.
    may_tell: Mutex<(u32, Instant)>,
    /// The guest does not flush.
    writes_through: AtomicBool,
    /// Whose turn it is to take requests.
    turn: Mutex<Turn>,
    /// Tells which queues the guest has put something into.
    kicks: OwnedFd,
    /// Readable when there is something else to look at.
    wake: OwnedFd,
    /// No more requests are taken.
    have_ended: AtomicBool,
    /// It is not known whether requests were done that the client counts as not done.
    is_uncertain: AtomicBool,
}

/// What the thread knows that takes requests.
#[derive(Default)]
struct Turn {
    /// Queues in which there may be requests, each once.
    waiting: VecDeque<usize>,
    /// Requests that were taken since it was last asked which queues were kicked.
    taken: u32,
}

impl Rings {
    /// Queues that nobody has described yet. What fails is told to `on_error`.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        name: String,
        on_error: Box<dyn Fn(&str) + Send + Sync>,
    ) -> io::Result<Rings> {
        let rings: Result<Vec<Ring>, _> = (0..QUEUES_MAX).map(|_| Ring::new()).collect();
        let kicks = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&kicks, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Rings {
            rings: rings.map_err(io::Error::other)?,
            memory: Arc::new(Memory::new()),
            device,
            name,
            on_error,
            may_tell: Mutex::new((TOLD_AT_ONCE, Instant::now())),
            writes_through: AtomicBool::new(false),
            turn: Mutex::default(),
            kicks,
            wake,
            have_ended: AtomicBool::new(false),
            is_uncertain: AtomicBool::new(false),
        })
    }

    /// The disk whose requests they are.
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// The guest's memory.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// A queue.
    pub fn ring(&self, index: usize) -> Option<&Ring> {
        self.rings.get(index)
    }

    /// All queues.
    pub fn all(&self) -> &[Ring] {
        &self.rings
    }

    /// Follows the features that were agreed on.
    pub fn agree(&self, features: u64) {
        self.writes_through.store(!has(features, VIRTIO_BLK_F_FLUSH), Ordering::Relaxed);
        self.rings.iter().for_each(|ring| ring.set_event_index(has(features, VIRTIO_RING_F_EVENT_IDX)));
    }

    /// Starts a queue; `kick` is readable when the guest has put a request into it.
    pub fn start(&self, index: usize, kick: File) -> io::Result<()> {
        let ring = self.rings.get(index).ok_or(io::ErrorKind::InvalidInput)?;
        // The client may have filled it: a write must not wait.
        rustix::io::ioctl_fionbio(&kick, true)?;
        self.stop_watching(ring);
        ring.start(&self.memory, kick)?;
        let watched = ring.with_kick(|kick| {
            // Each kick is told once, so nobody has to read it.
            epoll::add(&self.kicks, kick, EventData::new_u64(index as u64), EventFlags::IN | EventFlags::ET)
        });
        watched.unwrap_or(Ok(()))?;
        self.look(index);
        Ok(())
    }

    /// Stops a queue, and waits until no request of it is in hand. Returns which request would be next.
    pub fn stop(&self, index: usize) -> Option<u16> {
        let ring = self.rings.get(index)?;
        self.stop_watching(ring);
        Some(ring.stop())
    }

    /// The client has the same open file: closing this one's descriptor would not end it.
    fn stop_watching(&self, ring: &Ring) {
        // It fails for a queue that never started.
        let _ = ring.with_kick(|kick| epoll::delete(&self.kicks, kick));
    }

    /// Looks into a queue, as if the guest had kicked.
    pub fn look(&self, index: usize) {
        if let Some(ring) = self.rings.get(index) {
            // It fails, and does not wait, where nobody has looked at 2^64 kicks.
            let _ = ring.with_kick(|kick| rustix::io::write(kick, &1_u64.to_ne_bytes()));
        }
    }

    /// Takes no more requests, and waits until those in hand are done, but not for ever. Returns whether they are. If not, the
    /// guest is not told of them any more, and must not go on: it cannot be known which of them will be done.
    pub fn end(&self, patience: Duration) -> bool {
        self.have_ended.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        let until = Instant::now() + patience;
        let are_done = self.rings.iter().all(|ring| ring.wait_until_idle(until));
        if !are_done {
            self.is_uncertain.store(true, Ordering::Release);
            self.rings.iter().for_each(Ring::abandon);
        }
        are_done
    }

    /// The client has left. If requests are in hand it must not go on: it counts them as not done, and they will be.
    pub fn client_left(&self) {
        if !self.rings.iter().all(Ring::is_idle) {
            self.is_uncertain.store(true, Ordering::Release);
        }
    }

    /// Whether the guest must not go on where it is.
    pub fn is_uncertain(&self) -> bool {
        self.is_uncertain.load(Ordering::Acquire)
    }

    /// Takes requests and carries them out until the end. Called by each thread of the client.
    pub fn work(&self) {
        let mut buf = Vec::new();
        while let Some((index, chain)) = self.next(&mut buf) {
            let done = carry_out(&self.disk(), &chain, &mut buf);
            if let Ok(Some(failure)) = done.as_ref().map(|outcome| &outcome.failure) {
                self.report(failure);
            }
            match done {
                Ok(outcome) => self.finish(index, &chain, Some(outcome.written)),
                Err(Unanswerable(why)) => {
                    self.break_off(index, &why);
                    self.finish(index, &chain, None);
                }
            }
            if buf.capacity() > KEPT_BYTES {
                buf = Vec::new();
            }
        }
    }

    /// The next request that was not answered at once.
    fn next(&self, buf: &mut Vec<u8>) -> Option<(usize, Chain)> {
        let turn = &mut *self.turn.lock();
        loop {
            while let Some(index) = turn.waiting.pop_front() {
                turn.taken += 1;
                if turn.taken > TAKEN_AT_ONCE {
                    // A queue that is never empty must not hide that others were kicked.
                    self.wait(turn, Some(&Timespec::default()));
                }
                match self.rings[index].take(&self.memory, &self.have_ended) {
                    Taken::Request(chain) => {
                        turn.waiting.push_back(index);
                        match answer_quickly(&self.disk(), &chain, buf) {
                            Some(written) => self.finish(index, &chain, Some(written)),
                            None => return Some((index, chain)),
                        }
                    }
                    Taken::Nothing => {}
                    Taken::Broken(why) => self.break_off(index, &why),
                }
            }
            if self.have_ended.load(Ordering::Acquire) {
                return None;
            }
            self.wait(turn, None);
        }
    }

    /// Waits until a guest kicks, or all shall end, at most for a time.
    fn wait(&self, turn: &mut Turn, time: Option<&Timespec>) {
        turn.taken = 0;
        let mut events = Vec::with_capacity(EVENTS);
        // Interrupted: the next round waits again.
        let _ = epoll::wait(&self.kicks, spare_capacity(&mut events), time);
        for event in events {
            let index = event.data.u64();
            if index == WAKE {
                // It stays readable: each thread must see it.
                continue;
            }
            let index = index as usize;
            if !turn.waiting.contains(&index) {
                turn.waiting.push_back(index);
            }
        }
    }

    fn disk(&self) -> Disk<'_> {
        let writes_through = self.writes_through.load(Ordering::Relaxed);
        Disk { device: &*self.device, name: &self.name, writes_through }
    }

    fn finish(&self, index: usize, chain: &Chain, written: Option<u32>) {
        if let Err(why) = self.rings[index].finish(&self.memory, chain.head_index(), written) {
            self.break_off(index, &why.to_string());
        }
    }

    fn break_off(&self, index: usize, why: &str) {
        self.rings[index].break_off();
        self.report(&format!("queue {index} is stopped, the guest broke the protocol: {why}"));
    }

    fn report(&self, what: &str) {
        {
            let (left, since) = &mut *self.may_tell.lock();
            let more = since.elapsed().div_duration_f64(TELL_EVERY) as u32;
            if more > 0 {
                (*left, *since) = (left.saturating_add(more).min(TOLD_AT_ONCE), Instant::now());
            }
            if *left == 0 {
                return;
            }
            *left -= 1;
        }
        (self.on_error)(&format!("volume {}: {what}", self.name));
    }
}
