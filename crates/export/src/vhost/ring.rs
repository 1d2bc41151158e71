//! One queue of requests: a ring in the guest's memory.

use super::config::QUEUE_SIZE_MAX;
use super::memory::{Memory, MemoryGuard};
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use virtio_queue::{DescriptorChain, Error, Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

/// A request: where its parts are in the guest's memory.
pub(super) type Chain = DescriptorChain<MemoryGuard>;

/// A queue.
pub(super) struct Ring {
    state: Mutex<State>,
    /// No request is in hand.
    idle: Condvar,
}

struct State {
    queue: Queue,
    /// The client has enabled it.
    is_enabled: bool,
    /// The guest has broken the rules: nothing is taken from it until it is started again.
    is_broken: bool,
    /// Readable when the guest has put a request into the queue.
    kick: Option<File>,
    /// Written when a request is done.
    call: Option<File>,
    /// Requests that were taken and are not done.
    in_hand: usize,
    /// The client is gone, or counts the requests in hand as not done: the guest is told of none.
    is_abandoned: bool,
}

/// Where the parts of a queue are in the guest's memory.
pub(super) struct Addresses {
    pub descriptors: GuestAddress,
    pub available: GuestAddress,
    pub used: GuestAddress,
}

/// What was found in a queue.
pub(super) enum Taken {
    /// A request, which is in hand until [`Ring::finish`].
    Request(Chain),
    /// Nothing: the guest kicks when that changes.
    Nothing,
    /// The guest has broken the rules.
    Broken(String),
}

impl Ring {
    /// A queue that the client has not described yet.
    pub fn new() -> Result<Ring, Error> {
        let state = State {
            queue: Queue::new(QUEUE_SIZE_MAX)?,
            is_enabled: false,
            is_broken: false,
            kick: None,
            call: None,
            in_hand: 0,
            is_abandoned: false,
        };
        Ok(Ring { state: Mutex::new(state), idle: Condvar::new() })
    }

    /// How many requests it has room for.
    pub fn set_size(&self, size: u16) -> Result<(), Error> {
        self.state.lock().queue.try_set_size(size)
    }

    /// Where it is. What the guest has been told to be done goes on from there.
    pub fn set_addresses(&self, memory: &Memory, addresses: &Addresses) -> Result<(), Error> {
        let queue = &mut self.state.lock().queue;
        queue.try_set_desc_table_address(addresses.descriptors)?;
        queue.try_set_avail_ring_address(addresses.available)?;
        queue.try_set_used_ring_address(addresses.used)?;
        let used = queue.used_idx(&*memory.guard(), Ordering::Acquire)?;
        queue.set_next_used(used.0);
        Ok(())
    }

    /// Which request is next.
    pub fn set_next(&self, next: u16) {
        self.state.lock().queue.set_next_avail(next);
    }

    /// Whether it was in use before: requests have been taken or done. Both are counted modulo 2^16, but the last element of the
    /// ring of what is done has a length once it was used, and guests begin with zeros.
    pub fn has_begun(&self, memory: &Memory) -> bool {
        let state = self.state.lock();
        let last = u64::from(state.queue.size().max(1)) - 1;
        let length_at = state.queue.used_ring().checked_add(4 + 8 * last + 4);
        let length = length_at.and_then(|at| memory.guard().read_obj::<u32>(GuestAddress(at)).ok());
        state.queue.next_avail() != 0
            || state.queue.next_used() != 0
            || length.is_some_and(|length| length != 0)
    }

    /// Whether the guest is told each time that it can tell which request to be told of.
    pub fn set_event_index(&self, is_used: bool) {
        self.state.lock().queue.set_event_idx(is_used);
    }

    /// Enables or disables it.
    pub fn enable(&self, is_enabled: bool) {
        self.state.lock().is_enabled = is_enabled;
    }

    /// What is written when a request is done; without it the guest looks by itself.
    pub fn set_call(&self, call: Option<File>) {
        let mut state = self.state.lock();
        state.call = call;
        // Requests may have been done before it came; nobody would be told of those.
        state.signal();
    }

    /// Starts it: requests may be taken.
    pub fn start(&self, memory: &Memory, kick: File) -> io::Result<()> {
        let state = &mut *self.state.lock();
        state.queue.set_ready(true);
        if !state.queue.is_valid(&*memory.guard()) {
            state.queue.set_ready(false);
            return Err(io::Error::other("a queue outside of the guest's memory"));
        }
        state.is_broken = false;
        state.kick = Some(kick);
        Ok(())
    }

    /// Stops it, and waits until no request is in hand. Returns what [`Ring::set_next`] must be told to go on.
    pub fn stop(&self) -> u16 {
        let mut state = self.state.lock();
        state.queue.set_ready(false);
        self.idle.wait_while(&mut state, |s| s.in_hand > 0);
        state.kick = None;
        state.call = None;
        state.queue.next_avail()
    }

    /// Waits until no request is in hand, or until then. Returns whether none is.
    pub fn wait_until_idle(&self, until: Instant) -> bool {
        !self.idle.wait_while_until(&mut self.state.lock(), |s| s.in_hand > 0, until).timed_out()
    }

    /// Whether no request is in hand.
    pub fn is_idle(&self) -> bool {
        self.state.lock().in_hand == 0
    }

    /// Tells the guest of no request any more.
    pub fn abandon(&self) {
        self.state.lock().is_abandoned = true;
    }

    /// Does something with what is readable when the guest kicks.
    pub fn with_kick<T>(&self, act: impl FnOnce(&File) -> T) -> Option<T> {
        self.state.lock().kick.as_ref().map(act)
    }

    /// Takes the next request, unless the queue is stopped or all have ended.
    pub fn take(&self, memory: &Memory, have_ended: &AtomicBool) -> Taken {
        let state = &mut *self.state.lock();
        let is_active = state.queue.ready() && state.is_enabled && !state.is_broken;
        if !is_active || have_ended.load(Ordering::Acquire) {
            return Taken::Nothing;
        }
        let memory = memory.guard();
        match next(&mut state.queue, &memory) {
            Ok(Some(chain)) => {
                state.in_hand += 1;
                Taken::Request(chain)
            }
            Ok(None) => Taken::Nothing,
            Err(why) => {
                state.is_broken = true;
                Taken::Broken(why.to_string())
            }
        }
    }

    /// Takes nothing more until it is started again: the guest has broken the rules in a request.
    pub fn break_off(&self) {
        self.state.lock().is_broken = true;
    }

    /// Tells the guest that a request is done, and that so many bytes were written into its memory; `None`: that cannot be told.
    pub fn finish(&self, memory: &Memory, head: u16, written: Option<u32>) -> Result<(), Error> {
        let state = &mut *self.state.lock();
        let memory = memory.guard();
        let told = written.filter(|_| !state.is_abandoned).map_or(Ok(false), |written| {
            state.queue.add_used(&*memory, head, written)?;
            state.queue.needs_notification(&*memory)
        });
        if let Ok(true) = told {
            state.signal();
        }
        state.in_hand -= 1;
        if state.in_hand == 0 {
            self.idle.notify_all();
        }
        told.map(drop)
    }
}

impl State {
    fn signal(&self) {
        if let Some(call) = &self.call {
            // It fails, and does not wait, where nobody has looked at 2^64 of them.
            let _ = rustix::io::write(call, &1_u64.to_ne_bytes());
        }
    }
}

/// The next request; `None` where there is none, and the guest will kick.
fn next(queue: &mut Queue, memory: &MemoryGuard) -> Result<Option<Chain>, Error> {
    if let Some(chain) = queue.iter(memory.clone())?.next() {
        return Ok(Some(chain));
    }
    // One may have come since.
    if !queue.enable_notification(&**memory)? {
        return Ok(None);
    }
    let chain = queue.iter(memory.clone())?.next();
    // The ring says that there is one, and it cannot be read.
    chain.map(Some).ok_or(Error::InvalidChain)
}
