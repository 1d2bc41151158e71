//! Who is served when there are more clients than places.

use super::client::Client;
use super::{start_with, wait_until, Bench, LEAVE, SIZE};
use crate::memory_device::Memory;
use crate::nbd::limits::{Limits, Peer};
use crate::nbd::plain_socket::PlainSocket;
use crate::nbd::{Address, Server};
use format::nbd::*;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

const NEVER: Duration = Duration::from_secs(1 << 20);

/// Limits without a time after which anybody gives way.
fn limits(connections: usize, per_peer: usize) -> Limits {
    Limits {
        connections,
        per_peer,
        handshake: NEVER,
        slow_handshake: NEVER,
        idle: NEVER,
        idle_alone: NEVER,
        leave: LEAVE,
    }
}

/// A client to whose agreement the server has come, too: it has answered a request.
fn known(mut client: Client) -> Client {
    assert_eq!(client.read(9, 9).error, 0);
    client
}

/// Clients that said nothing kept their places for half a minute, and with 64 of them everybody else out.
#[test]
fn silent_clients_keep_nobody_out() {
    let limits = Limits { slow_handshake: Duration::ZERO, ..limits(4, 4) };
    let bench = Bench::with(Memory::new(SIZE), limits);
    let mut witness = known(bench.client());
    let silent: Vec<Client> = (0..3).map(|_| bench.raw()).collect();
    bench.wait_for_clients(4);
    for _ in 0..10 {
        // A loaded server may still be closing those of the last round, and then turns the next one away.
        wait_until("one is let in", || bench.raw().is_greeted());
        let mut client = bench.client();
        assert_eq!(client.read(0, 9).data, bench.device.bytes()[..9]);
        // Until all of them have been answered: one that is let in later might take the next client's place.
        let mut others: Vec<Client> = (0..9).map(|_| bench.raw()).collect();
        for other in &mut others {
            let _ = other.is_greeted();
        }
    }
    assert_eq!(
        witness.read(0, 9).data,
        bench.device.bytes()[..9],
        "one that has agreed does not give way to them"
    );
    assert!(bench.errors().is_empty(), "{:?}", bench.errors());
    drop(silent);
}

/// Clients that ask for nothing kept their places for ever.
#[test]
fn the_one_that_was_idle_the_longest_gives_way_and_that_is_said() {
    let bench = Bench::with(Memory::new(SIZE), Limits { idle: Duration::ZERO, ..limits(3, 3) });
    let mut busy = bench.client();
    let mut idle = [known(bench.client()), known(bench.client())];
    bench.device.hold();
    let cookie = busy.ask(CMD_READ, 0, 0, 700, &[]);
    wait_until("the read", || bench.device.waiting() == 1);
    let mut client = bench.client();
    assert_eq!(client.read(9, 9).data, bench.device.bytes()[9..18]);
    assert_eq!(bench.server().clients(), 3);
    let said = bench.errors();
    assert!(said.len() == 1 && said[0].contains("idle the longest is closed for one of user"), "{said:?}");
    // A client that waits for an answer is not disconnected.
    bench.device.release();
    let (found, reply) = busy.next_done();
    assert_eq!((found, reply.error, reply.data.len()), (cookie, 0, 700));
    wait_until("the end of one", || idle.iter_mut().any(|c| c.try_read(9, 9).is_none()));
}

#[test]
fn with_nobody_idle_for_long_enough_the_newcomer_is_turned_away() {
    let bench = Bench::with(Memory::new(SIZE), limits(2, 2));
    let mut clients = [bench.client(), bench.client()];
    bench.raw().expect_end();
    for client in &mut clients {
        assert_eq!(client.read(0, 9).data, bench.device.bytes()[..9]);
    }
}

/// A client that asked for much and took nothing of it held its place as long as it liked.
#[test]
fn a_client_that_takes_no_answers_gives_way() {
    let bench = Bench::with(Memory::new(40 << 20), Limits { idle: Duration::ZERO, ..limits(1, 1) });
    let mut lazy = bench.client();
    for _ in 0..4 {
        lazy.ask(CMD_READ, 0, 512, 32 << 20, &[]);
    }
    wait_until("a place", || {
        let mut client = bench.raw();
        client.is_greeted()
    });
}

/// A server on every address of this machine, and clients that come from several of them.
struct Network {
    server: Server,
    device: Arc<Memory>,
    port: u16,
}

impl Network {
    fn new(limits: Limits) -> Network {
        let device = Arc::new(Memory::new(SIZE));
        let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let server = start_with(&any, device.clone(), Arc::default(), limits).unwrap();
        let Address::Tcp(at) = server.address() else { panic!("no port") };
        let port = at.port();
        Network { server, device, port }
    }

    /// A client from 127.0.0.`host` that has said nothing.
    fn raw(&self, host: u8) -> Client {
        let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)), 0);
        Client::connect_from(from, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port))
    }

    fn client(&self, host: u8) -> Client {
        let mut client = self.raw(host);
        client.greet(true);
        client.go("disk");
        known(client)
    }
}

/// One address could take all places.
#[test]
fn one_address_does_not_take_all_places() {
    let net = Network::new(limits(4, 3));
    let mut first: Vec<Client> = (0..3).map(|_| net.client(2)).collect();
    for _ in 0..5 {
        net.raw(2).expect_end();
    }
    let mut other = net.client(1);
    assert_eq!(other.read(0, 9).data, net.device.bytes()[..9]);
    net.raw(1).expect_end();
    assert_eq!(net.server.clients(), 4);
    assert_eq!(first[0].read(0, 9).data, net.device.bytes()[..9]);
}

#[test]
fn a_quiet_disk_is_not_cut_however_often_another_address_connects() {
    let net = Network::new(Limits { idle: Duration::ZERO, ..limits(4, 3) });
    let mut quiet = net.client(1);
    let mut others = Vec::new();
    for _ in 0..20 {
        others.push(net.client(2));
        others.push(net.client(3));
    }
    assert_eq!(net.server.clients(), 4);
    assert_eq!(quiet.read(0, 9).data, net.device.bytes()[..9]);
}

/// As many machines as there are places, each with one connection on which nothing comes, kept everybody out.
#[test]
fn silent_machines_keep_nobody_out_for_ever() {
    let net = Network::new(Limits { idle_alone: Duration::from_millis(300), ..limits(3, 3) });
    let _idle: Vec<Client> = (2..5).map(|host| net.client(host)).collect();
    net.raw(1).expect_end();
    wait_until("a place", || net.raw(1).is_greeted());
}

/// A client could go on for ever with options that lead nowhere, or with a byte now and then.
#[test]
fn a_handshake_that_does_not_end_is_ended() {
    let limits = Limits { handshake: Duration::from_millis(300), ..limits(4, 4) };
    let bench = Bench::with(Memory::new(SIZE), limits);
    let mut lists = bench.raw();
    lists.greet(true);
    let mut drips = bench.raw();
    let mut ends = [false; 2];
    wait_until("the end of both", || {
        std::thread::sleep(Duration::from_millis(10));
        ends[0] |= lists.try_send(&super::client::option_bytes(OPT_LIST, &[])).is_err();
        ends[1] |= drips.try_send(&[0]).is_err();
        ends == [true, true]
    });
    bench.wait_for_clients(0);
}

#[test]
fn a_peer_of_a_unix_socket_is_a_user() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    assert_eq!(PlainSocket::Unix(ours).peer(), Peer::User(rustix::process::getuid().as_raw()));
}
