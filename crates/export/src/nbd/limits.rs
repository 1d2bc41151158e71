//! How many connections a server accepts, and which one it closes for a new one when it is full.
//!
//! A peer (an address, or a user of the Unix socket) that connects over and over must not keep others out, and a guest's
//! disk that is merely quiet must not lose its connection to the next client. So a peer has a limit of its own, and the one
//! that has the most connections loses idle ones first. Those of others give way after an hour: else as many silent
//! machines as there are places keep everybody out for ever.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How many connections there may be, and how long they may do nothing.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections in all.
    pub connections: usize,
    /// Connections of one address, or of one user of the Unix socket.
    pub per_peer: usize,
    /// From the connection to the end of the handshake. A client that is not done by then is left.
    pub handshake: Duration,
    /// After this time a connection that is still in its handshake may be closed for a new one, if the server is full.
    pub slow_handshake: Duration,
    /// After this time without a request a connection may be closed for a new one, if the server is full.
    pub idle: Duration,
    /// The same for a connection whose peer does not have the most.
    pub idle_alone: Duration,
    /// How long a stopping server waits for clients that do not read their replies, before and after it closes their
    /// connections.
    pub leave: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 64,
            per_peer: 48,
            handshake: Duration::from_secs(10),
            slow_handshake: Duration::from_secs(2),
            idle: Duration::from_secs(60),
            idle_alone: Duration::from_secs(60 * 60),
            leave: Duration::from_secs(5),
        }
    }
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    /// A user of this machine, through the Unix socket.
    User(u32),
    /// An address; of IPv6 the network of 64 bits, all of which one machine may have.
    Address(IpAddr),
    /// The system does not know.
    Unknown,
}

impl Peer {
    /// The peer at an address.
    pub fn of_address(address: IpAddr) -> Peer {
        Peer::Address(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
            v4 => v4,
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::User(uid) => write!(f, "user {uid}"),
            Peer::Address(IpAddr::V6(network)) => write!(f, "{network}/64"),
            Peer::Address(address) => write!(f, "{address}"),
            Peer::Unknown => write!(f, "a client"),
        }
    }
}

/// A connection that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionInfo {
    /// Its number.
    pub id: u64,
    /// Who is at its other end.
    pub peer: Peer,
    /// What it is doing.
    pub state: State,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In its handshake, which began then.
    Handshake(Instant),
    /// Since then it has sent no request, or has not read the reply.
    Idle(Instant),
    /// A request of it is being carried out.
    Busy,
}

/// Whether one more connection is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// There is room.
    Accept,
    /// This connection has to be closed for it.
    Replace(u64),
    /// There is no room.
    Refuse,
}

impl Limits {
    /// Whether to accept a connection of `peer`.
    ///
    /// If the server is full, a slow handshake is closed, the longest first; else the connection that was idle for
    /// the longest time, of the peer with the most connections (counting the new one); else, after `idle_alone`, one of any
    /// peer. If the peer's own limit is reached, it must be one of its own.
    pub(super) fn admit(&self, peer: Peer, held: &[ConnectionInfo], now: Instant) -> Admission {
        let count = |of: Peer| held.iter().filter(|h| h.peer == of).count() + usize::from(of == peer);
        let is_at_limit = count(peer) > self.per_peer;
        if !is_at_limit && held.len() < self.connections {
            return Admission::Accept;
        }
        let most = held.iter().map(|h| count(h.peer)).max().unwrap_or(0);
        let is_own = |h: &ConnectionInfo| h.peer == peer;
        let has_most = |h: &ConnectionInfo| most > 1 && count(h.peer) == most;
        let age = |since: Instant| now.saturating_duration_since(since);
        let slow = held.iter().filter(|h| !is_at_limit || is_own(h)).filter_map(|h| match h.state {
            State::Handshake(since) => Some((age(since), h.id)),
            State::Idle(_) | State::Busy => None,
        });
        let idle = |may_have_to: &dyn Fn(&ConnectionInfo) -> bool, least: Duration| {
            let ages = held.iter().filter(|h| may_have_to(h)).filter_map(|h| match h.state {
                State::Idle(since) => Some((age(since), h.id)),
                State::Handshake(_) | State::Busy => None,
            });
            ages.max().filter(|(age, _)| *age >= least)
        };
        let mut longest = slow.max().filter(|(age, _)| *age >= self.slow_handshake);
        longest = longest.or_else(|| {
            if is_at_limit {
                idle(&is_own, self.idle)
            } else {
                idle(&has_most, self.idle).or_else(|| idle(&|_| true, self.idle_alone))
            }
        });
        longest.map_or(Admission::Refuse, |(_, id)| Admission::Replace(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        connections: 8,
        per_peer: 6,
        handshake: Duration::from_secs(10),
        slow_handshake: Duration::from_secs(2),
        idle: Duration::from_secs(60),
        idle_alone: Duration::from_secs(3600),
        leave: Duration::from_secs(5),
    };
    const A: Peer = Peer::User(1);
    const B: Peer = Peer::User(2);
    const C: Peer = Peer::User(3);

    /// How a state begins at an instant.
    type Begin = fn(Instant) -> State;

    /// A point in time to count back from, and a connection whose state began some seconds before it.
    fn clock() -> (Instant, impl Fn(u64, Peer, Begin, u64) -> ConnectionInfo) {
        let now = Instant::now() + Duration::from_secs(100_000);
        (now, move |id, peer, state, ago| ConnectionInfo {
            id,
            peer,
            state: state(now - Duration::from_secs(ago)),
        })
    }

    fn busy(_: Instant) -> State {
        State::Busy
    }

    #[test]
    fn there_is_a_place_while_some_are_free() {
        let (now, held) = clock();
        let mut all = Vec::new();
        for id in 0..6 {
            assert_eq!(LIMITS.admit(A, &all, now), Admission::Accept);
            all.push(held(id, A, busy, 0));
        }
        // Its own limit is reached, and those of others are not.
        assert_eq!(LIMITS.admit(A, &all, now), Admission::Refuse);
        assert_eq!(LIMITS.admit(B, &all, now), Admission::Accept);
        all.extend([held(6, B, busy, 0), held(7, B, busy, 0)]);
        assert_eq!(LIMITS.admit(B, &all, now), Admission::Refuse);
        assert_eq!(LIMITS.admit(C, &all, now), Admission::Refuse);
    }

    #[test]
    fn slow_handshakes_give_way_first_the_longest_of_them() {
        let (now, held) = clock();
        let mut all: Vec<ConnectionInfo> = (0..5).map(|id| held(id, A, State::Idle, 1000)).collect();
        all.extend([held(5, B, State::Handshake, 1), held(6, B, State::Handshake, 1), held(7, C, busy, 0)]);
        assert_eq!(LIMITS.admit(C, &all, now), Admission::Replace(4), "they have just begun");
        all[5] = held(5, B, State::Handshake, 3);
        assert_eq!(LIMITS.admit(C, &all, now), Admission::Replace(5));
        all[6] = held(6, B, State::Handshake, 5);
        assert_eq!(LIMITS.admit(C, &all, now), Admission::Replace(6));
        assert_eq!(LIMITS.admit(A, &all, now), Admission::Replace(6));
    }

    /// An idle connection of a guest is closed only for clients that one address keeps out, not for any new client.
    #[test]
    fn idle_connections_give_way_only_where_one_peer_has_the_most() {
        let (now, held) = clock();
        // One disk of B, quiet for almost an hour, and six connections of A.
        let mut all: Vec<ConnectionInfo> = (0..6).map(|id| held(id, A, State::Idle, 60 + id)).collect();
        all.extend([held(6, B, State::Idle, 3_599), held(7, C, busy, 0)]);
        assert_eq!(LIMITS.admit(C, &all, now), Admission::Replace(5));
        assert_eq!(LIMITS.admit(B, &all, now), Admission::Replace(5));
        assert_eq!(LIMITS.admit(Peer::Unknown, &all, now), Admission::Replace(5));
        // Those of A that ask for something, or did so lately, stay.
        all[5] = held(5, A, busy, 0);
        all[4] = held(4, A, State::Idle, 59);
        assert_eq!(LIMITS.admit(C, &all, now), Admission::Replace(3));
        all[..6].fill(held(0, A, State::Idle, 59));
        assert_eq!(LIMITS.admit(C, &all, now), Admission::Refuse);
        // Two have four each, and a third comes: either of the two.
        let two: Vec<ConnectionInfo> =
            (0..8).map(|id| held(id, [A, B][id as usize % 2], State::Idle, 70 + id)).collect();
        assert_eq!(LIMITS.admit(C, &two, now), Admission::Replace(7));
        // One that has one already is not the one with the most.
        let mut some: Vec<ConnectionInfo> = (0..4).map(|id| held(id, A, State::Idle, 70)).collect();
        some.extend((4..8).map(|id| held(id, Peer::User(id as u32), State::Idle, 90_000)));
        assert_eq!(LIMITS.admit(Peer::User(4), &some, now), Admission::Replace(3));
    }

    /// As many silent machines as there are places kept everybody else out for ever.
    #[test]
    fn connections_of_many_peers_give_way_after_an_hour() {
        let (now, held) = clock();
        let single = |longest: u64| -> Vec<ConnectionInfo> {
            (0..8).map(|id| held(id, Peer::User(id as u32), State::Idle, longest - id)).collect()
        };
        assert_eq!(LIMITS.admit(Peer::User(9), &single(3599), now), Admission::Refuse);
        assert_eq!(LIMITS.admit(Peer::User(5), &single(3599), now), Admission::Replace(5), "its own");
        assert_eq!(LIMITS.admit(Peer::User(9), &single(3600), now), Admission::Replace(0));
        // Those that were idle for less than an hour, or are asking for something, keep theirs.
        let mut others = single(3600);
        others[0] = held(0, Peer::User(0), busy, 0);
        assert_eq!(LIMITS.admit(Peer::User(9), &others, now), Admission::Refuse);
        // Two busy ones of one machine keep nobody from that.
        others = single(3601);
        others[0] = held(0, Peer::User(20), busy, 0);
        others[2] = held(2, Peer::User(20), busy, 0);
        assert_eq!(LIMITS.admit(Peer::User(9), &others, now), Admission::Replace(1));
    }

    #[test]
    fn a_peer_at_its_limit_gives_way_to_itself_only() {
        let (now, held) = clock();
        let mut all: Vec<ConnectionInfo> = (0..6).map(|id| held(id, A, busy, 0)).collect();
        all.push(held(6, B, State::Handshake, 9));
        assert_eq!(LIMITS.admit(A, &all, now), Admission::Refuse);
        all[2] = held(2, A, State::Idle, 61);
        assert_eq!(LIMITS.admit(A, &all, now), Admission::Replace(2));
        all[3] = held(3, A, State::Handshake, 2);
        assert_eq!(LIMITS.admit(A, &all, now), Admission::Replace(3));
    }

    #[test]
    fn addresses_that_one_machine_may_have_are_one() {
        let peer = |text: &str| Peer::of_address(text.parse().unwrap());
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:1:2:3"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        assert_eq!(peer("2001:db8::1").to_string(), "2001:db8::/64");
    }
}
