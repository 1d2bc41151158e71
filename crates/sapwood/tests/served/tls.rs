//! TLS: who may connect, and that real clients understand it.

use crate::common::nbd::libnbd;
use crate::common::{random, Bench, Child, FAILED, REFUSED, USAGE};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DISK_BYTES: usize = 24 << 20;

/// Runs openssl.
fn openssl(args: &[&str]) {
    let out = Command::new("openssl").args(args).output();
    let out = out.unwrap_or_else(|e| panic!("openssl is needed by this test: {e}"));
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Makes the files of one authority in a directory, under the names that servers and clients look for.
fn certificates(bench: &Bench, name: &str) -> String {
    let dir = bench.path(name);
    fs::create_dir(&dir).unwrap();
    let at = |file: &str| dir.join(file).to_str().unwrap().to_owned();
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let (ca, ca_key) = (at("ca-cert.pem"), at("ca-key.pem"));
    let authority = ["-subj", "/CN=authority", "-days", "2", "-keyout", &ca_key, "-out", &ca];
    openssl(&[&["req", "-x509"], &key[..], &authority].concat());
    fs::write(at("extensions"), "basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n")
        .unwrap();
    for who in ["server", "client"] {
        let [key_file, request, certificate] =
            ["key.pem", "request.pem", "cert.pem"].map(|kind| at(&format!("{who}-{kind}")));
        let subject = format!("/CN={who}");
        let wanted = ["-subj", &subject, "-keyout", &key_file, "-out", &request];
        openssl(&[&["req"], &key[..], &wanted].concat());
        let extensions = at("extensions");
        let signed =
            ["-req", "-in", &request, "-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial", "-days", "2"];
        openssl(&[&["x509"], &signed[..], &["-extfile", &extensions, "-out", &certificate]].concat());
    }
    dir.to_str().unwrap().to_owned()
}

/// Starts a server, and waits for what it tells of itself.
fn start(bench: &Bench, args: &[&str]) -> (Child, Value) {
    let out = bench.path("told");
    let mut command = bench.command(args);
    command.stdout(fs::File::create(&out).unwrap()).stderr(Stdio::piped());
    let child = Child::start_as_is(command, &args.join(" "));
    let since = Instant::now();
    loop {
        if let Some((line, _)) = fs::read_to_string(&out).unwrap().split_once('\n') {
            return (child, serde_json::from_str(line).unwrap());
        }
        assert!(since.elapsed() < Duration::from_secs(20) && !child.has_ended(), "{args:?} does not come up");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Serves a snapshot with TLS on a port that the system chose. Returns the server and `localhost:PORT`.
fn serve(bench: &Bench, disk: &str, tls: &str) -> (Child, String) {
    let (child, told) = start(bench, &["--json", "nbd", disk, "--listen", "127.0.0.1:0", "--tls", tls]);
    let place = told["uri"].as_str().and_then(|uri| uri.strip_prefix("nbds://127.0.0.1:"));
    let place = place.unwrap_or_else(|| panic!("{told}"));
    (child, format!("localhost:{place}"))
}

fn stop(child: Child) {
    child.signal(Signal::TERM);
    child.wait();
}

/// Whether nbdinfo gets through.
fn connects(uri: &str) -> bool {
    Command::new("nbdinfo").args(["--size", uri]).output().unwrap().status.success()
}

#[test]
fn only_those_with_a_certificate_read_a_disk() {
    let bench = Bench::new("balanced");
    let content = random(DISK_BYTES, 5);
    bench.backup("vm/vda", &bench.file("disk", &content));
    let (ours, others) = (certificates(&bench, "ours"), certificates(&bench, "others"));
    let (child, place) = serve(&bench, "vm/vda", &ours);
    let uri = format!("nbds://{place}/?tls-certificates={ours}");
    // Real clients: libnbd, with many requests and connections, and QEMU.
    libnbd("nbdcopy", &["--requests=64", "--connections=4", &uri, &bench.arg("copy")]);
    assert!(fs::read(bench.path("copy")).unwrap() == content);
    let (host, port) = place.split_once(':').unwrap();
    let credentials = format!("tls-creds-x509,id=tls0,dir={ours},endpoint=client");
    let disk = format!("driver=nbd,host={host},port={port},tls-creds=tls0");
    let qemu = Command::new("qemu-img")
        .args(["convert", "--object", &credentials, "--image-opts", &disk, "-O", "raw", &bench.arg("qemu")])
        .output()
        .unwrap();
    assert!(qemu.status.success(), "{qemu:?}");
    assert!(fs::read(bench.path("qemu")).unwrap() == content);
    // And sapwood itself.
    bench.done(&["backup", "copied/vda", &uri]);
    bench.done(&["restore", "copied/vda", &bench.arg("back")]);
    assert!(fs::read(bench.path("back")).unwrap() == content);

    // Without TLS, without a certificate, with another authority's, and for another name.
    assert!(!connects(&format!("nbd://{place}/")));
    bench.fails(&["backup", "x/vda", &format!("nbd://{place}/")], REFUSED, &["wants TLS", "nbds://"]);
    let bare: PathBuf = bench.path("bare");
    fs::create_dir(&bare).unwrap();
    fs::copy(format!("{ours}/ca-cert.pem"), bare.join("ca-cert.pem")).unwrap();
    for (directory, words) in
        [(bare.to_str().unwrap(), "CertificateRequired"), (&others, "invalid peer certificate")]
    {
        let uri = format!("nbds://{place}/?tls-certificates={directory}");
        assert!(!connects(&uri), "{directory}");
        bench.fails(&["backup", "x/vda", &uri], FAILED, &["the NBD server", words]);
    }
    let other_name = format!("nbds://{place}/?tls-certificates={ours}&tls-hostname=example.org");
    bench.fails(&["backup", "x/vda", &other_name], FAILED, &["example.org"]);
    bench.fails(&["backup", "x/vda", &format!("nbds://{place}/")], USAGE, &["tls-certificates="]);
    let nowhere = format!("nbds://{place}/?tls-certificates={}", bench.arg("none"));
    bench.fails(&["backup", "x/vda", &nowhere], REFUSED, &["ca-cert.pem", "none"]);
    // It goes on as if nothing had been.
    assert!(connects(&uri));
    stop(child);
}

/// Who has lost a key takes the certificate back.
#[test]
fn a_certificate_that_was_taken_back_lets_nobody_in() {
    let bench = Bench::new("balanced");
    bench.backup("vm/vda", &bench.file("disk", &random(DISK_BYTES, 8)));
    let ours = certificates(&bench, "ours");
    let at = |file: &str| format!("{ours}/{file}");
    fs::write(at("index"), "").unwrap();
    fs::write(at("number"), "01\n").unwrap();
    // With a number it is a list of the second version, as all are today.
    let config = format!(
        "[ca]\ndefault_ca=a\n[a]\ndatabase={}\ncrlnumber={}\ndefault_md=sha256\ndefault_crl_days=2\n",
        at("index"),
        at("number")
    );
    fs::write(at("config"), config).unwrap();
    let (ca, key, config) = (at("ca-cert.pem"), at("ca-key.pem"), at("config"));
    let by = ["ca", "-config", &config, "-cert", &ca, "-keyfile", &key];
    let list = |to: &str| openssl(&[&by[..], &["-gencrl", "-out", &at(to)]].concat());
    // An empty list takes nothing back.
    list("ca-crl.pem");
    let uri = |place: &str| format!("nbds://{place}/?tls-certificates={ours}");
    let (child, place) = serve(&bench, "vm/vda", &ours);
    assert!(connects(&uri(&place)));
    bench.done(&["backup", "copied/vda", &uri(&place)]);
    stop(child);
    openssl(&[&by[..], &["-revoke", &at("client-cert.pem")]].concat());
    list("ca-crl.pem");
    let (child, place) = serve(&bench, "vm/vda", &ours);
    assert!(!connects(&uri(&place)));
    bench.fails(&["backup", "x/vda", &uri(&place)], FAILED, &["CertificateRevoked"]);
    stop(child);
    // A file without a list would take nothing back.
    let kept = fs::read(at("ca-crl.pem")).unwrap();
    fs::write(at("ca-crl.pem"), "").unwrap();
    bench.fails(&["nbd", "vm/vda", "--tls", &ours], FAILED, &["ca-crl.pem", "no list"]);
    fs::write(at("ca-crl.pem"), kept).unwrap();
    // The same of a server's, which its clients know.
    fs::copy(at("ca-crl.pem"), at("client.crl")).unwrap();
    fs::remove_file(at("ca-crl.pem")).unwrap();
    let (child, place) = serve(&bench, "vm/vda", &ours);
    openssl(&[&by[..], &["-revoke", &at("server-cert.pem")]].concat());
    list("ca-crl.pem");
    bench.fails(&["backup", "x/vda", &uri(&place)], FAILED, &["Revoked"]);
    stop(child);
}

/// A client that sends a byte now and then has no more time than one that sends nothing.
#[test]
fn a_handshake_by_tls_has_the_same_time_limit() {
    let bench = Bench::new("balanced");
    bench.backup("vm/vda", &bench.file("disk", &random(1 << 20, 9)));
    let ours = certificates(&bench, "ours");
    let (child, place) = serve(&bench, "vm/vda", &ours);
    // One that has finished it may be silent for longer.
    let (host, port) = place.split_once(':').unwrap();
    let mut silent = Command::new("qemu-io")
        .args([
            "--object",
            &format!("tls-creds-x509,id=tls0,dir={ours},endpoint=client"),
            "-r",
            "--image-opts",
        ])
        .arg(format!("driver=nbd,host={host},port={port},tls-creds=tls0"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut asks = silent.stdin.take().unwrap();
    writeln!(asks, "read 0 4k").unwrap();
    let since = Instant::now();
    let mut socket = TcpStream::connect(&place).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut greeting = [0; 18];
    socket.read_exact(&mut greeting).unwrap();
    let starts_tls = [&3_u32.to_be_bytes()[..], b"IHAVEOPT", &5_u32.to_be_bytes(), &[0; 4]].concat();
    socket.write_all(&starts_tls).unwrap();
    socket.read_exact(&mut [0; 20]).unwrap();
    // A record of 512 bytes begins.
    socket.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    let mut has_ended = false;
    while !has_ended {
        assert!(since.elapsed() < Duration::from_secs(20), "it may go on for ever");
        has_ended = match socket.read(&mut [0; 64]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(e) => !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        } || socket.write_all(&[0]).is_err();
    }
    assert!(since.elapsed() > Duration::from_secs(8), "it had no time");
    std::thread::sleep(Duration::from_secs(4));
    writeln!(asks, "read 4k 4k\nquit").unwrap();
    drop(asks);
    let said = String::from_utf8(silent.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(said.matches("read 4096/4096 bytes").count(), 2, "{said}");
    stop(child);
}

#[test]
fn a_server_without_an_authority_lets_everybody_in_by_tls() {
    let bench = Bench::new("balanced");
    let content = random(DISK_BYTES, 6);
    bench.backup("vm/vda", &bench.file("disk", &content));
    let ours = certificates(&bench, "ours");
    let public = bench.arg("public");
    fs::create_dir(&public).unwrap();
    for file in ["server-cert.pem", "server-key.pem"] {
        fs::copy(format!("{ours}/{file}"), format!("{public}/{file}")).unwrap();
    }
    let (child, place) = serve(&bench, "vm/vda", &public);
    for file in ["client-cert.pem", "client-key.pem"] {
        fs::remove_file(format!("{ours}/{file}")).unwrap();
    }
    let uri = format!("nbds://{place}/?tls-certificates={ours}");
    libnbd("nbdcopy", &[&uri, &bench.arg("copy")]);
    assert!(fs::read(bench.path("copy")).unwrap() == content);
    bench.done(&["backup", "copied/vda", &uri]);
    stop(child);

    // What a server cannot use it says, before it listens.
    let nbd = |tls: &str| ["nbd", "vm/vda", "--tls", tls].map(str::to_owned);
    let refuses = |tls: &str, words: &[&str]| {
        let args = nbd(tls);
        bench.fails(&args.each_ref().map(|a| a.as_str()), FAILED, words);
    };
    refuses(&bench.arg("none"), &["none/server-cert.pem"]);
    fs::write(format!("{public}/server-key.pem"), "no key").unwrap();
    refuses(&public, &["public/server-key.pem"]);
    fs::write(format!("{public}/server-cert.pem"), "").unwrap();
    refuses(&public, &["public/server-cert.pem"]);
}

/// Pools are served the same way; what is written by TLS is there without it.
#[test]
fn volumes_are_written_by_tls() {
    let bench = Bench::bare();
    let ours = certificates(&bench, "ours");
    let pool = bench.arg("pool");
    bench.done(&["pool", "create", &pool, "--size", "256MiB"]);
    bench.done(&["volume", "--pool", &pool, "create", "web", "--size", "24MiB"]);
    let socket = bench.arg("pool.socket");
    let (child, told) = start(&bench, &["--json", "pool", "serve", &pool, "--nbd", &socket, "--tls", &ours]);
    assert!(told["uri"].as_str().unwrap().starts_with("nbds+unix:///NAME?socket="), "{told}");
    let content = bench.file("content", &random(DISK_BYTES, 7));
    let uri = format!("nbds+unix:///web?socket={socket}&tls-certificates={ours}&tls-hostname=localhost");
    libnbd("nbdcopy", &["--requests=64", "--flush", &content, &uri]);
    libnbd("nbdcopy", &["--requests=16", &uri, &bench.arg("copy")]);
    assert!(fs::read(bench.path("copy")).unwrap() == fs::read(&content).unwrap());
    // Commands of this user need no certificate.
    bench.done(&["volume", "--pool", &pool, "snapshot", "web@one"]);
    bench.done(&["init"]);
    bench.done(&["backup", "web/vda", "volume:web@one", "--pool", &pool]);
    bench.done(&["restore", "web/vda", &bench.arg("restored")]);
    assert!(fs::read(bench.path("restored")).unwrap() == fs::read(&content).unwrap());
    child.signal(Signal::TERM);
    child.wait().expect_done();
    bench.done(&["pool", "check", &pool, "--data"]);
}
