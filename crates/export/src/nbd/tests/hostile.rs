//! Clients that hang up, send nonsense, or stop at any point. Others are served all the while.

use super::client::{contexts, export_infos, option_bytes, request, Client};
use super::{wait_until, Bench, CONNECTIONS_MAX, SIZE};
use crate::memory_device::Memory;
use format::nbd::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// All that a client says in its life.
fn session() -> Vec<u8> {
    let mut said = u32::from(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes().to_vec();
    said.extend(option_bytes(OPT_STRUCTURED_REPLY, &[]));
    said.extend(option_bytes(OPT_LIST, &[]));
    said.extend(option_bytes(OPT_SET_META_CONTEXT, &contexts("disk", &["base:allocation"])));
    said.extend(option_bytes(OPT_GO, &export_infos("disk", &[INFO_NAME, INFO_BLOCK_SIZE])));
    said.extend(request(0, CMD_READ, 1, 0, 5000));
    said.extend(request(0, CMD_BLOCK_STATUS, 2, 0, 1 << 20));
    said.extend(request(FLAG_FUA, CMD_WRITE, 3, 4096, 100));
    said.extend([7; 100]);
    said.extend(request(0, CMD_TRIM, 4, 0, 512));
    said.extend(request(0, CMD_FLUSH, 5, 0, 0));
    said.extend(request(0, CMD_DISC, 6, 0, 0));
    said
}

fn socket(bench: &Bench) -> UnixStream {
    let crate::nbd::Address::Unix(path) = bench.server().address() else { panic!("no socket") };
    UnixStream::connect(path).unwrap()
}

#[test]
fn clients_may_hang_up_after_any_byte() {
    let bench = Bench::of(Memory::new(SIZE), CONNECTIONS_MAX);
    let mut witness = bench.client();
    let said = session();
    for end in 0..=said.len() {
        let mut client = socket(&bench);
        client.write_all(&said[..end]).unwrap();
        // Gone at once, or only done with talking, or after an answer.
        match end % 3 {
            0 => {}
            1 => client.shutdown(Shutdown::Write).unwrap(),
            _ => drop(client.read(&mut [0; 18])),
        }
        if end % 3 == 1 {
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            assert!(all.len() >= 18);
        }
        drop(client);
        wait_until("room for a client", || bench.server().clients() < 60);
    }
    bench.wait_for_clients(1);
    assert_eq!(witness.read(4096, 100).data, [7; 100]);
    assert!(bench.errors().is_empty(), "{:?}", bench.errors());
}

#[test]
fn nonsense_ends_no_server() {
    let seed = std::env::var("SAPWOOD_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(13);
    println!("SAPWOOD_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let bench = Bench::of(Memory::new(SIZE), CONNECTIONS_MAX);
    let good = session();
    for round in 0..1500 {
        let mut said = good.clone();
        match round % 3 {
            0 => {
                let from = rng.random_range(0..said.len());
                rng.fill(&mut said[from..]);
            }
            1 => {
                for _ in 0..rng.random_range(1..6) {
                    let at = rng.random_range(0..said.len());
                    said[at] ^= 1 << rng.random_range(0..8);
                }
            }
            _ => {
                let (from, to) = (rng.random_range(0..said.len()), rng.random_range(0..said.len()));
                let piece = said[from.min(to)..from.max(to)].to_vec();
                let at = rng.random_range(0..said.len());
                said.splice(at..at, piece);
            }
        }
        let mut client = socket(&bench);
        // The server may have ended it before all is said.
        let _ = client.write_all(&said);
        client.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        let _ = client.read_to_end(&mut all);
        assert!(all.len() >= 18, "round {round}");
    }
    bench.wait_for_clients(0);
    let mut client = bench.client();
    assert_eq!(client.read(9000, 9).data, bench.device.bytes()[9000..9009]);
}

#[test]
fn whoever_breaks_the_protocol_is_shown_out_and_named() {
    let bench = Bench::new();
    for (said, why) in [
        (request(0, CMD_WRITE, 1, 0, PAYLOAD_BYTES_MAX + 1), "a write of more than 32 MiB"),
        (vec![0x25; 28], "no request where one was expected"),
    ] {
        let mut client = bench.client();
        client.send(&said);
        client.expect_end();
        bench.wait_for_clients(0);
        assert!(bench.errors().last().unwrap().contains(why), "{:?}", bench.errors());
    }
    let mut client = bench.raw();
    client.greet(true);
    client.send(&[1; 16]);
    client.expect_end();
}

/// Neither those that take no answers nor those that end in the midst of a request hold up anybody else.
#[test]
fn clients_that_do_not_go_on_hold_up_nobody_else() {
    let bench = Bench::of(Memory::new(40 << 20), 16);
    let mut lazy: Vec<Client> =
        (0..6).map(|n| if n % 2 == 0 { bench.client() } else { bench.simple() }).collect();
    for (n, client) in lazy.iter_mut().enumerate() {
        match n {
            // Much is asked for, and nothing taken.
            0 | 1 => drop((0..20).map(|_| client.ask(CMD_READ, 0, 512, 32 << 20, &[])).count()),
            2 => drop((0..100).map(|_| client.ask(CMD_READ, 0, 512, 32 << 10, &[])).count()),
            // A write without its data; a part of a request.
            3 => client.send(&request(0, CMD_WRITE, 1, 0, 32 << 20)),
            4 => client.send(&request(0, CMD_FLUSH, 1, 0, 0)[..27]),
            _ => client.send(&[request(0, CMD_WRITE, 1, 0, 9), vec![1; 8]].concat()),
        }
    }
    let silent: Vec<Client> = (0..4).map(|_| bench.raw()).collect();
    let mut client = bench.client();
    for n in 0..200u64 {
        assert_eq!(client.write(n * 1000, &[n as u8; 9]).error, 0);
        assert_eq!(client.read(n * 1000, 9).data, [n as u8; 9]);
    }
    bench.wait_for_clients(11);
    drop((lazy, silent));
    bench.wait_for_clients(1);
}
