//! TLS: who may connect, and that real clients understand it.

use crate::common::nbd::libnbd;
use crate::common::{random, Bench, Child, FAILED, REFUSED};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
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
    let place = told["uri"].as_str().unwrap().strip_prefix("nbds://127.0.0.1:").unwrap();
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
    bench.fails(&["backup", "x/vda", &format!("nbds://{place}/")], REFUSED, &["tls-certificates="]);
    let nowhere = format!("nbds://{place}/?tls-certificates={}", bench.arg("none"));
    bench.fails(&["backup", "x/vda", &nowhere], REFUSED, &["ca-cert.pem", "none"]);
    // It goes on as if nothing had been.
    assert!(connects(&uri));
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
    child.signal(Signal::TERM);
    child.wait().expect_done();
    bench.done(&["pool", "check", &pool, "--data"]);
}
