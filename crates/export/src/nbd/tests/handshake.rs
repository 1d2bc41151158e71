//! What clients and server agree on.

use super::client::{contexts, export_infos};
use super::{Bench, SIZE};
use crate::memory_device::Memory;
use format::nbd::*;

const WRITABLE: u16 =
    HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | SEND_CACHE | CAN_MULTI_CONN;

#[test]
fn an_export_is_chosen_by_its_name_or_by_none() {
    let bench = Bench::new();
    for name in ["disk", ""] {
        let mut client = bench.raw();
        client.greet(true);
        assert_eq!(client.go(name), (SIZE, WRITABLE));
        assert_eq!(client.read(5, 3).data, bench.device.bytes()[5..8]);
        client.leave();
        let mut client = bench.raw();
        client.greet(true);
        client.structured();
        assert_eq!(client.go(name), (SIZE, WRITABLE | SEND_DF));
        client.leave();
    }
    bench.wait_for_clients(0);
    assert_eq!(bench.server().served(), 4);
    let bench = Bench::of(Memory::read_only(SIZE), 1);
    let mut client = bench.raw();
    client.greet(true);
    assert_eq!(client.go("disk").1, HAS_FLAGS | READ_ONLY | SEND_FLUSH | SEND_CACHE | CAN_MULTI_CONN);
}

#[test]
fn the_old_way_to_choose_has_no_answer_but_the_export() {
    let bench = Bench::new();
    for (no_zeroes, len) in [(true, 10), (false, 134)] {
        for name in ["disk", ""] {
            let mut client = bench.raw();
            client.greet(no_zeroes);
            client.option(OPT_EXPORT_NAME, name.as_bytes());
            let mut answer = vec![0; len];
            client.socket.read_exact(&mut answer).unwrap();
            assert_eq!(answer[..8], SIZE.to_be_bytes());
            assert_eq!(answer[8..10], WRITABLE.to_be_bytes());
            assert!(answer[10..].iter().all(|b| *b == 0));
            assert_eq!(client.read(0, 16).data, bench.device.bytes()[..16]);
            client.leave();
        }
    }
    let mut client = bench.raw();
    client.greet(true);
    client.option(OPT_EXPORT_NAME, b"another");
    client.expect_end();
}

#[test]
fn what_is_there_is_told() {
    let bench = Bench::new();
    let mut client = bench.raw();
    client.greet(true);
    let (end, list) = client.answers(OPT_LIST, &[]);
    assert_eq!((end, list.len(), list[0].0), (REP_ACK, 1, REP_SERVER));
    assert_eq!(list[0].1, [&4u32.to_be_bytes()[..], b"diska disk in memory"].concat());
    assert_eq!(client.answers(OPT_LIST, b"x"), (REP_ERR_INVALID, vec![]));

    let all = [INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE, 77];
    let (end, infos) = client.answers(OPT_INFO, &export_infos("disk", &all));
    assert_eq!(end, REP_ACK);
    assert!(infos.iter().all(|i| i.0 == REP_INFO));
    let infos: Vec<(u16, &[u8])> =
        infos.iter().map(|i| (u16::from_be_bytes([i.1[0], i.1[1]]), &i.1[2..])).collect();
    let sizes = [1u32, 4096, 32 << 20].map(u32::to_be_bytes).concat();
    assert_eq!(infos[0].1, [&SIZE.to_be_bytes()[..], &WRITABLE.to_be_bytes()].concat());
    let told: [(u16, &[u8]); 3] =
        [(INFO_NAME, b"disk"), (INFO_DESCRIPTION, b"a disk in memory"), (INFO_BLOCK_SIZE, &sizes)];
    assert_eq!(infos[1..], told);
    // Nothing was agreed on by that.
    let (end, _) = client.answers(OPT_INFO, &export_infos("another", &[]));
    assert_eq!(end, REP_ERR_UNKNOWN);
    assert_eq!(client.answers(OPT_GO, &export_infos("another", &[])).0, REP_ERR_UNKNOWN);
    assert_eq!(client.go("disk").0, SIZE);
}

#[test]
fn the_default_export_is_described_too() {
    // It was not: the description was looked for under the name that the client had said.
    let bench = Bench::new();
    let mut client = bench.raw();
    client.greet(true);
    let (_, infos) = client.answers(OPT_INFO, &export_infos("", &[INFO_NAME, INFO_DESCRIPTION]));
    let told: Vec<&[u8]> = infos[1..].iter().map(|i| &i.1[2..]).collect();
    assert_eq!(told, [&b"disk"[..], b"a disk in memory"]);
}

#[test]
fn options_that_make_no_sense_are_refused_and_the_client_goes_on() {
    let bench = Bench::new();
    let mut client = bench.raw();
    client.greet(true);
    assert_eq!(client.answers(OPT_STARTTLS, b"whatever").0, REP_ERR_INVALID);
    assert_eq!(client.answers(OPT_STARTTLS, &[]), (REP_ERR_POLICY, vec![]));
    for option in [0, 4, 11, 12, 99, u32::MAX] {
        assert_eq!(client.answers(option, b"whatever"), (REP_ERR_UNSUP, vec![]), "option {option}");
    }
    assert_eq!(client.answers(OPT_STRUCTURED_REPLY, b"x").0, REP_ERR_INVALID);
    let no_text = [0xff, 0xfe];
    let name_of = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes, &[0, 0]].concat();
    let infos_short = [&export_infos("disk", &[1, 2])[..], &[0]].concat();
    let too_long = vec![b'x'; NAME_BYTES_MAX + 1];
    for data in [&[][..], &[0, 0, 0], &[0, 0, 0, 9, 1], &infos_short, &name_of(&no_text), &name_of(&too_long)]
    {
        for option in [OPT_GO, OPT_INFO] {
            assert_eq!(client.answers(option, data), (REP_ERR_INVALID, vec![]), "{data:?}");
        }
    }
    // As long as an option may be.
    let long = vec![0; OPTION_BYTES_MAX as usize];
    assert_eq!(client.answers(99, &long).0, REP_ERR_UNSUP);
    client.go("disk");

    let mut client = bench.raw();
    client.greet(true);
    client.send(&OPTION_MAGIC.to_be_bytes());
    client.send(&OPT_LIST.to_be_bytes());
    client.send(&(OPTION_BYTES_MAX + 1).to_be_bytes());
    assert_eq!(client.answer(OPT_LIST).0, REP_ERR_TOO_BIG);
    client.expect_end();

    let mut client = bench.raw();
    client.greet(true);
    assert_eq!(client.answers(OPT_ABORT, &[]), (REP_ACK, vec![]));
    client.expect_end();

    let mut client = bench.raw();
    client.greet(true);
    // No client needs so many; the connection is closed while it still sends.
    let mut refused = 0;
    while refused < 2000 && client.socket.write_all(&super::client::option_bytes(99, &[])).is_ok() {
        let mut answer = [0; 20];
        if client.socket.read_exact(&mut answer).is_err() {
            break;
        }
        refused += 1;
    }
    assert_eq!(refused, 1000);
    bench.wait_for_clients(1);
}

#[test]
fn flags_that_are_not_known_end_it() {
    let bench = Bench::new();
    for flags in [4u32, 1 << 16, u32::MAX] {
        let mut client = bench.raw();
        let mut hello = [0; 18];
        client.socket.read_exact(&mut hello).unwrap();
        client.send(&flags.to_be_bytes());
        client.expect_end();
    }
    // Those of a client of the oldest kind.
    let mut client = bench.raw();
    let mut hello = [0; 18];
    client.socket.read_exact(&mut hello).unwrap();
    client.send(&0u32.to_be_bytes());
    client.option(OPT_EXPORT_NAME, b"disk");
    let mut answer = vec![0; 134];
    client.socket.read_exact(&mut answer).unwrap();
}

#[test]
fn contexts_are_listed_and_chosen() {
    let bench = Bench::new();
    let mut client = bench.raw();
    client.greet(true);
    let ask = [OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT];
    for option in ask {
        let (end, _) = client.answers(option, &contexts("disk", &["base:allocation"]));
        assert_eq!(end, REP_ERR_INVALID, "there are no structured replies yet");
    }
    client.structured();
    let mut found = |option, export: &str, queries: &[&str]| {
        let (end, all) = client.answers(option, &contexts(export, queries));
        let ids: Vec<u32> = all.iter().map(|a| u32::from_be_bytes(a.1[..4].try_into().unwrap())).collect();
        assert!(all.iter().all(|a| a.0 == REP_META_CONTEXT && a.1[4..] == *b"base:allocation"));
        (end, ids)
    };
    for (option, queries, ids) in [
        (OPT_LIST_META_CONTEXT, &[][..], &[0][..]),
        (OPT_LIST_META_CONTEXT, &["base:"], &[0]),
        (OPT_LIST_META_CONTEXT, &["base:allocation"], &[0]),
        (OPT_LIST_META_CONTEXT, &["qemu:", "qemu:dirty-bitmap:b0"], &[]),
        (OPT_SET_META_CONTEXT, &["qemu:dirty-bitmap:b0", "base:allocation"], &[1]),
        (OPT_SET_META_CONTEXT, &["base:"], &[]),
        (OPT_SET_META_CONTEXT, &[], &[]),
        (OPT_SET_META_CONTEXT, &["base:allocation", "base:allocation"], &[1]),
    ] {
        assert_eq!(found(option, "disk", queries), (REP_ACK, ids.to_vec()), "{option} {queries:?}");
    }
    for option in ask {
        assert_eq!(found(option, "another", &[]), (REP_ERR_UNKNOWN, vec![]));
    }
    let whole = contexts("disk", &["base:allocation"]);
    let mut endless = contexts("disk", &[]);
    endless[8..].fill(0xff);
    for option in ask {
        for data in [&[][..], &whole[..whole.len() - 1], &[&whole[..], &[0]].concat(), &endless] {
            assert_eq!(client.answers(option, data), (REP_ERR_INVALID, vec![]));
        }
    }
}

#[test]
fn what_was_chosen_last_counts_and_only_for_its_export() {
    let bench = Bench::new();
    let status = |choices: &[(&str, &[&str])], export: &str| {
        let mut client = bench.raw();
        client.greet(true);
        client.structured();
        for (export, queries) in choices {
            let data = contexts(export, queries);
            client.answers(OPT_SET_META_CONTEXT, &data);
        }
        client.go(export);
        client.done(CMD_BLOCK_STATUS, 0, 0, 4096, &[]).error
    };
    let allocation = &["base:allocation"][..];
    assert_eq!(status(&[("disk", allocation)], "disk"), 0);
    assert_eq!(status(&[("", allocation)], ""), 0);
    assert_eq!(status(&[("", allocation)], "disk"), EINVAL);
    assert_eq!(status(&[("disk", allocation), ("disk", &[])], "disk"), EINVAL);
    assert_eq!(status(&[("disk", &["x:y"]), ("disk", allocation)], "disk"), 0);
    assert_eq!(status(&[], "disk"), EINVAL);
}
