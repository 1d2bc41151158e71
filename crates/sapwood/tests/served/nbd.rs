//! `sapwood nbd`: snapshots served to real clients, read-only, with a throw-away and with a kept overlay.

use crate::common::nbd::{libnbd, start, Nbd};
use crate::common::{
    change, fresh, from_env, qemu_img, random, Bench, DAMAGED, DONE, FAILED, REFUSED, USAGE,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// Bytes of most disks: no whole number of blocks.
const DISK_BYTES: usize = (9 << 20) + 5 * 512;

/// A vault with two snapshots, and what is in them.
fn backed_up(seed: u64) -> (Bench, [Vec<u8>; 2]) {
    let bench = Bench::new("balanced");
    let mut rng = StdRng::seed_from_u64(seed);
    let old = fresh(DISK_BYTES, &mut rng);
    bench.backup("vm/vda", &bench.file("disk", &old));
    let mut new = old.clone();
    change(&mut new, &mut rng);
    new.resize(DISK_BYTES, 0);
    bench.backup("vm/vda", &bench.file("disk", &new));
    (bench, [old, new])
}

fn uri(bench: &Bench) -> String {
    format!("nbd+unix:///?socket={}", bench.arg("socket"))
}

#[test]
fn real_clients_read_what_was_backed_up() {
    let (bench, contents) = backed_up(1);
    for (spec, content) in ["vm/vda@latest~1", "vm/vda"].into_iter().zip(&contents) {
        let mut child = start(&bench, &["--json", "nbd", spec]);
        let mut client = Nbd::connect_to(&mut child, &bench.path("socket")).unwrap();
        let uri = uri(&bench);
        let info: Value = serde_json::from_str(&libnbd("nbdinfo", &["--json", &uri])).unwrap();
        let export = &info["exports"][0];
        assert_eq!((&export["export-size"], &export["is_read_only"]), (&DISK_BYTES.into(), &true.into()));
        assert_eq!(
            (&export["can_multi_conn"], &export["contexts"][0]),
            (&true.into(), &"base:allocation".into())
        );
        assert!(export["description"].as_str().unwrap().starts_with("the snapshot of "), "{export}");
        let map: Value = serde_json::from_str(&libnbd("nbdinfo", &["--map", "--json", &uri])).unwrap();
        let mut at = 0;
        for extent in map.as_array().unwrap() {
            let [offset, len, kind] =
                ["offset", "length", "type"].map(|f| extent[f].as_u64().unwrap() as usize);
            assert_eq!(offset, at);
            at += len;
            assert!(kind == 0 || content[offset..at].iter().all(|b| *b == 0), "{extent}");
        }
        assert_eq!(at, DISK_BYTES);
        libnbd("nbdcopy", &["--requests=64", "--connections=4", &uri, &bench.arg("copy")]);
        assert!(fs::read(bench.path("copy")).unwrap() == *content);
        let file = bench.file("same", content);
        qemu_img(&["compare", "-f", "raw", "-F", "raw", &file, &uri]);
        assert_eq!(client.write(0, b"x").unwrap_err().raw_os_error(), Some(1));
        child.signal(Signal::TERM);
        let ended = child.wait();
        assert_eq!(ended.code(), Some(DONE), "{ended}");
        let told = ended.json();
        assert_eq!((&told["uri"], &told["writable"]), (&uri.as_str().into(), &false.into()));
        assert_eq!((&told["disk"], &told["size"]), (&"vm/vda".into(), &DISK_BYTES.into()));
        assert!(!bench.path("socket").exists());
    }
    bench.collect();
}

#[test]
fn what_is_written_to_scratch_is_gone_in_the_end() {
    let (mut bench, [_, content]) = backed_up(2);
    let scratch = bench.path("scratch");
    fs::create_dir(&scratch).unwrap();
    bench.env.push(("XDG_RUNTIME_DIR".into(), scratch.clone().into()));
    let other = random(DISK_BYTES, 3);
    let new = bench.file("new", &other);
    bench.collect();
    let before = bench.objects();
    let script = format!(
        "test -S \"$NBD_SOCKET\" && nbdcopy {new} \"$NBD_URI\" && nbdcopy \"$NBD_URI\" {} && exit 9",
        bench.arg("copy")
    );
    let kept_in = format!("--scratch={}", scratch.display());
    let ended = bench.run(&["-q", "nbd", "vm/vda", &kept_in, "--", "sh", "-c", &script]);
    assert_eq!(ended.code(), Some(9), "{ended}");
    assert!(fs::read(bench.path("copy")).unwrap() == other);
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
    bench.collect();
    assert_eq!(bench.objects(), before);
    assert!(bench.restored("vm/vda") == content);

    for (script, code) in [("exit 0", DONE), ("exit 1", 1), ("kill -9 $$", 1)] {
        assert_eq!(
            bench.run(&["-q", "nbd", "vm/vda", "--", "sh", "-c", script]).code(),
            Some(code),
            "{script}"
        );
    }
    bench.fails(&["-q", "nbd", "vm/vda", "--", "/nowhere/program"], FAILED, &["running /nowhere/program"]);
    bench.fails(&["-q", "nbd", "vm/vda", "--scratch=/nowhere"], FAILED, &["/nowhere"]);
    // A signal is passed on, and the command's end waited for.
    let child = start(
        &bench,
        &["-q", "nbd", "vm/vda", "--", "sh", "-c", "trap 'kill $!; exit 5' TERM; sleep 60 & wait"],
    );
    let begun = Instant::now();
    while Nbd::connect(&bench.path("socket")).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    child.signal(Signal::TERM);
    assert_eq!(child.wait().code(), Some(5));
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
}

/// QEMU finds nothing wrong with an overlay. What it lies over is nothing that QEMU could open.
fn check(overlay: &str) {
    let file = serde_json::json!({ "driver": "file", "filename": overlay });
    let image = serde_json::json!({ "driver": "qcow2", "backing": null, "file": file });
    qemu_img(&["check", &format!("json:{image}")]);
}

/// What a guest did since its last flush that was answered.
struct Since {
    flushed: Vec<u8>,
    done: Vec<(usize, Vec<u8>)>,
}

impl Since {
    /// Each byte found is as it was flushed, or as one of the later writes has made it. From now on it is so.
    fn expect(&mut self, found: Vec<u8>, round: u64) {
        let mut now = self.flushed.clone();
        let mut is_right: Vec<bool> = found.iter().zip(&now).map(|(f, n)| f == n).collect();
        for (at, data) in self.done.drain(..) {
            now[at..at + data.len()].copy_from_slice(&data);
            (at..at + data.len()).for_each(|k| is_right[k] |= found[k] == now[k]);
        }
        let wrong = is_right.iter().position(|r| !r);
        assert_eq!((wrong, found.len()), (None, now.len()), "round {round}");
        self.flushed = found;
    }

    fn flush(&mut self) {
        for (at, data) in self.done.drain(..) {
            self.flushed[at..at + data.len()].copy_from_slice(&data);
        }
    }

    /// Writes, zeros, flushes, until the server is gone, or so many times.
    fn run(&mut self, disk: &mut Nbd, rng: &mut StdRng, times: usize) -> io::Result<()> {
        for n in 0..times {
            let align = [1, 512, 4096, 128 << 10][rng.random_range(0..4)];
            let at = rng.random_range(0..self.flushed.len()) / align * align;
            let most = if rng.random_bool(0.1) { 1 << 20 } else { 20_000 };
            let len = rng.random_range(1..most).min(self.flushed.len() - at);
            match rng.random_range(0..10) {
                0..6 => {
                    let data: Vec<u8> = (0..len).map(|k| (k as u8).wrapping_mul(n as u8) | 1).collect();
                    self.done.push((at, data.clone()));
                    disk.write(at as u64, &data)?;
                }
                6..8 => {
                    self.done.push((at, vec![0; len]));
                    if n % 2 == 0 {
                        disk.zero(at as u64, len)?
                    } else {
                        disk.trim(at as u64, len)?
                    }
                }
                _ => {
                    disk.flush()?;
                    self.flush();
                }
            }
        }
        Ok(())
    }
}

#[test]
fn a_kept_overlay_has_what_was_flushed_whoever_is_killed() {
    let seed = from_env("SAPWOOD_SEED", 13);
    println!("SAPWOOD_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (bench, [_, content]) = backed_up(seed);
    let (socket, overlay) = (bench.path("socket"), bench.arg("o.qcow2"));
    let args = ["-q", "nbd", "vm/vda", "--overlay", &overlay];
    let mut guest = Since { flushed: content.clone(), done: Vec::new() };
    let (mut killed, mut closed) = (0, 0);
    let begun = Instant::now();
    for round in 0..from_env("SAPWOOD_ROUNDS", 40) {
        if begun.elapsed() > Duration::from_secs(30) {
            println!("no time for more than {round} rounds");
            break;
        }
        if round % 10 == 9 {
            fs::remove_file(&overlay).unwrap();
            guest = Since { flushed: content.clone(), done: Vec::new() };
        }
        let mut child = start(&bench, &args);
        let signal = if rng.random_bool(0.8) { Signal::KILL } else { Signal::TERM };
        let (pid, after) = (child.pid(), Duration::from_micros(rng.random_range(0..200_000)));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(after);
            let _ = rustix::process::kill_process(pid, signal);
        });
        if let Some(mut client) = Nbd::connect_to(&mut child, &socket) {
            if let Ok(found) = read_whole(&mut client) {
                guest.expect(found, round);
                let _ = guest.run(&mut client, &mut rng, 100_000);
            }
        }
        killer.join().unwrap();
        let ended = child.wait();
        if signal == Signal::TERM && ended.code() == Some(DONE) {
            assert!(!socket.exists());
            closed += 1;
        } else {
            // Before it catches signals they end it.
            assert_eq!(ended.code(), None, "round {round}: {ended}");
            killed += 1;
        }
        if ended.code() == Some(DONE) {
            check(&overlay);
        }
    }
    println!("{killed} killed, {closed} closed");
    assert!(killed > 10);
    let mut child = start(&bench, &args);
    let mut client = Nbd::connect_to(&mut child, &socket).unwrap();
    guest.expect(client.whole(), 1000);
    guest.run(&mut client, &mut rng, 60).unwrap();
    guest.flush();
    assert!(client.whole() == guest.flushed);
    let copied = libnbd("nbdcopy", &[&uri(&bench), &bench.arg("copy")]);
    assert!(fs::read(bench.path("copy")).unwrap() == guest.flushed, "{copied}");
    bench.fails(
        &[&args[..], &["--listen", "127.0.0.1:0"]].concat(),
        REFUSED,
        &["is in use by process ", "(sapwood, since 2"],
    );
    child.signal(Signal::TERM);
    assert_eq!(child.wait().code(), Some(DONE));
    check(&overlay);
    assert!(bench.restored("vm/vda") == content, "the snapshot is as it was");

    bench.fails(
        &["-q", "nbd", "vm/vda@latest~1", "--overlay", &overlay, "--listen", "127.0.0.1:0"],
        REFUSED,
        &["vm/vda@", "name that snapshot"],
    );
    let foreign = bench.arg("foreign.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &foreign, &DISK_BYTES.to_string()]);
    let none = bench.file("none", b"precious");
    for (path, code) in [(&foreign, REFUSED), (&none, FAILED)] {
        let before = fs::read(path).unwrap();
        let ended = bench.run(&["-q", "nbd", "vm/vda", "--overlay", path, "--listen", "127.0.0.1:0"]);
        assert_eq!(ended.code(), Some(code), "{ended}");
        ended.expect_one_line(&[path]);
        assert!(fs::read(path).unwrap() == before);
    }
}

fn read_whole(client: &mut Nbd) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    while (all.len() as u64) < client.size {
        let len = (client.size as usize - all.len()).min(1 << 20);
        all.extend(client.read(all.len() as u64, len)?);
    }
    Ok(all)
}

#[test]
fn what_cannot_be_served_is_refused_with_a_word_why() {
    let (bench, _) = backed_up(4);
    let socket = bench.arg("socket");
    let ask = |args: &[&str]| bench.run(&[&["-q", "nbd"][..], args].concat());
    for (args, code, said) in [
        (&["vm/vdb"][..], FAILED, "vm/vdb"),
        (&["nonsense"], USAGE, "nonsense"),
        (&["vm/vda@12345"], FAILED, "12345"),
        (
            &["vm/vda", "--socket", "/nowhere/socket"],
            FAILED,
            "listening on nbd+unix:///?socket=/nowhere/socket",
        ),
        (&["vm/vda", "--listen", "192.0.2.1:1"], FAILED, "listening on nbd://192.0.2.1:1"),
        (&["vm/vda", "--overlay", "/nowhere/o"], FAILED, "/nowhere/o"),
        (&["vm/vda", "--listen", "here"], USAGE, "here"),
        (&["vm/vda", "--cache=-1"], USAGE, "is not a size"),
        (&["vm/vda", "--cache", "1T"], USAGE, "is not a size"),
        (&["vm/vda", "--socket", &socket, "--listen", "127.0.0.1:0"], USAGE, "--listen"),
        (&["vm/vda", "--overlay", "o", "--scratch"], USAGE, "--scratch"),
    ] {
        let ended = ask(args);
        assert!(ended.code() == Some(code) && ended.stderr.contains(said), "{said}: {ended}");
    }
    let long = bench.arg(&"s".repeat(120));
    bench.fails(&["-q", "nbd", "vm/vda", "--socket", &long], FAILED, &["listening", "too long"]);
    // An image in the place of the socket.
    let image = bench.file("image", b"precious");
    bench.fails(&["-q", "nbd", "vm/vda", "--socket", &image], FAILED, &["listening", "in use"]);
    assert_eq!(fs::read(&image).unwrap(), b"precious");
    let mut first = start(&bench, &["-q", "nbd", "vm/vda"]);
    Nbd::connect_to(&mut first, &bench.path("socket")).unwrap();
    bench.fails(&["-q", "nbd", "vm/vda", "--socket", &socket], FAILED, &["in use"]);
    Nbd::connect_to(&mut first, &bench.path("socket")).unwrap();
    first.signal(Signal::INT);
    first.wait().expect_done();
    // A name that a URI cannot have as it is.
    let odd = bench.arg("a b%20&c#d");
    let script = "nbdinfo --size \"$NBD_URI\"";
    let ended = bench.run(&["-q", "nbd", "vm/vda", "--socket", &odd, "--", "sh", "-c", script]);
    assert_eq!((ended.code(), &*ended.stdout), (Some(DONE), format!("{DISK_BYTES}\n").as_bytes()), "{ended}");
    let ended = bench.run(&["-q", "nbd", "vm/vda", "--listen", "127.0.0.1:0", "--", "sh", "-c", script]);
    assert_eq!((ended.code(), &*ended.stdout), (Some(DONE), format!("{DISK_BYTES}\n").as_bytes()), "{ended}");
    bench.collect();
}

#[test]
fn a_signal_ends_it_soon_whatever_its_clients_do() {
    let (mut bench, _) = backed_up(5);
    let runtime = bench.path("runtime");
    fs::create_dir(&runtime).unwrap();
    bench.env.push(("XDG_RUNTIME_DIR".into(), runtime.clone().into()));
    let overlay = bench.arg("o.qcow2");
    let mut child = start(&bench, &["-q", "nbd", "vm/vda", "--overlay", &overlay]);
    let socket = bench.path("socket");
    let mut clients: Vec<Nbd> = (0..4).map(|_| Nbd::connect_to(&mut child, &socket).unwrap()).collect();
    // One that takes no answers.
    clients.pop().unwrap().ask_much_and_take_nothing();
    let busy: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(n, mut client)| {
            std::thread::spawn(move || {
                let mut done = 0;
                loop {
                    let at = done * 7919 % (DISK_BYTES as u64 - 5000);
                    let outcome = match n {
                        0 => client.read(at, 5000).map(drop),
                        _ => client.write(at, &[n as u8; 5000]),
                    };
                    if outcome.is_err() {
                        return done;
                    }
                    done += 1;
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    child.signal(Signal::TERM);
    let ended = child.wait();
    assert_eq!(ended.code(), Some(DONE), "{ended}");
    assert!(!socket.exists());
    assert!(busy.into_iter().all(|b| b.join().unwrap() > 0));
    check(&overlay);

    // Without --socket it is in a directory that goes, too.
    let ended =
        bench.run(&["-q", "nbd", "vm/vda", "--", "sh", "-c", "echo \"$NBD_SOCKET\"; kill -TERM $PPID"]);
    assert!(ended.stdout.starts_with(runtime.to_str().unwrap().as_bytes()), "{ended}");
    assert_eq!(fs::read_dir(&runtime).unwrap().count(), 0);
}

#[test]
fn damage_is_an_error_of_the_reader_and_told_in_the_end() {
    let bench = Bench::new("balanced");
    let disk = random(12 << 20, 6);
    bench.backup("vm/vda", &bench.file("disk", &disk));
    let objects = bench.data_objects();
    let mut bytes = fs::read(&objects[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&objects[0], bytes).unwrap();
    let mut child = start(&bench, &["-q", "nbd", "vm/vda"]);
    let mut client = Nbd::connect_to(&mut child, &bench.path("socket")).unwrap();
    let mut bad = 0;
    for at in (0..disk.len()).step_by(4096) {
        match client.read(at as u64, 4096) {
            Ok(found) => assert!(found == disk[at..at + 4096], "wrong bytes at {at}"),
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(5));
                bad += 1;
            }
        }
    }
    assert!(bad > 0 && bad * 4096 <= 1 << 19, "{bad}");
    child.signal(Signal::TERM);
    let ended = child.wait();
    assert_eq!(ended.code(), Some(DAMAGED), "{ended}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines.len(), bad + 1, "{ended}");
    assert!(lines[0].contains(".data") && lines[0].contains("read, 4096 bytes at offset"), "{ended}");
    assert!(lines[bad].contains("damage was met") && lines[bad].contains("sapwood verify"), "{ended}");
}
