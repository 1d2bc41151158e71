//! Every message about something that a user did wrong, or that is wrong with what he gave, is in docs/messages.md: the
//! commands below are run, and what they say is compared with the page. So one who changes words sees them beside all others.
//!
//! `SAPWOOD_BLESS=1` writes the page's tables anew.

mod literals;
mod running;
mod serving;

use crate::common;
use crate::common::{qemu_img, random, Bench, Child};
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The beginning of the page.
const HEAD: &str = "\
# Messages

What Sapwood says where something is wrong with what it is given, with the exit code. A test runs these commands and
compares what they say with this page; the last table has messages that it cannot cause. `…` stands for a directory or
another value, `ID` for the id of a snapshot or of a disk, `TIME` for a time, `PID` for the number of a process, `HOST` for
the name of this host.

Exit codes: 1 failed, 2 wrong usage, 3 damage found, 4 refused.
";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/messages.md")
}

/// A vault with disks, files beside it, and the page that is being written.
struct Scene {
    bench: Bench,
    text: String,
    /// Commands that did not fail, or without a word.
    wrong: Vec<String>,
    /// What is another each time, and the word for it.
    hidden: Vec<(String, &'static str)>,
}

impl Scene {
    fn new() -> Scene {
        let bench = Bench::new("balanced");
        let raw = bench.file("web01.raw", &random(20 << 20, 1));
        bench.done(&["-q", "backup", "web01/vda", &raw, "--time", "2026-11-20T22:00"]);
        bench.done(&["-q", "backup", "web01/vda", &raw, "--time", "2026-11-21T22:00"]);
        let other = bench.file("db01.raw", &random(20 << 20, 2));
        bench.done(&["-q", "backup", "db01/vda", &other]);
        bench.done(&["-q", "hold", "db01/vda@latest"]);
        qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &raw, &bench.arg("web01.qcow2")]);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let hidden = vec![(format!("of host {}", host.trim()), "of host HOST")];
        Scene { bench, text: HEAD.to_owned(), wrong: Vec::new(), hidden }
    }

    fn section(&mut self, title: &str) {
        write!(self.text, "\n## {title}\n\n| command | says | code |\n| --- | --- | --- |\n").unwrap();
    }

    /// From now on the page has a word for what is another each time.
    fn hide(&mut self, what: &str, word: &'static str) {
        self.hidden.push((what.to_owned(), word));
    }

    /// Runs a command, whose words are apart from each other by spaces, and adds what it says. `…/` is the directory.
    fn says(&mut self, command: &str) {
        self.says_without(command, None);
    }

    /// The same without a variable of the environment.
    fn says_without(&mut self, command: &str, variable: Option<&str>) {
        let dir = self.bench.dir.path().to_str().unwrap().to_owned();
        let words = command.split(' ').map(|word| {
            let hidden = |word: String, (what, name): &(String, &str)| word.replace(name, what);
            // A number is no name of a place.
            let places = self.hidden.iter().filter(|(_, name)| name.starts_with('/'));
            places.fold(word.replace('…', &dir).replace('_', " "), hidden)
        });
        let words: Vec<String> = words.collect();
        let mut run = self.bench.command(&words);
        if let Some(name) = variable {
            run.env_remove(name);
        }
        let ended = Child::start(run, command).wait();
        let code = ended.code().unwrap_or_else(|| panic!("{ended}"));
        let printed = String::from_utf8_lossy(&ended.stdout);
        // Damage that was found is a result.
        let all =
            if ended.stderr.is_empty() { printed.lines().next().unwrap_or_default() } else { &ended.stderr };
        if matches!(code, 0 | 101) || all.is_empty() {
            self.wrong.push(ended.to_string());
        }
        // What clap says has the usage below it.
        let lines = all.lines().take_while(|line| !line.is_empty()).map(str::trim);
        let said = lines.collect::<Vec<_>>().join(" ");
        let said = said.trim_start_matches("sapwood: ").trim_start_matches("error: ");
        let said = plain(&said.replace(self.bench.dir.path().to_str().unwrap(), "…"))
            .replace('|', "\\|")
            .replace('<', "\\<");
        let said = self.hidden.iter().fold(said, |said, (what, word)| said.replace(what, word));
        let command = plain(&command.replace('_', " ")).replace('|', "\\|");
        let without = variable.map(|name| format!(", without {name}")).unwrap_or_default();
        writeln!(self.text, "| `{command}`{without} | {said} | {code} |").unwrap();
    }

    fn finish(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        if std::env::var_os("SAPWOOD_BLESS").is_some() {
            std::fs::write(page(), self.text).unwrap();
        } else {
            let there = std::fs::read_to_string(page()).unwrap_or_default();
            assert!(
                there == self.text,
                "docs/messages.md is outdated: SAPWOOD_BLESS=1 writes it anew; it would be:\n{}",
                self.text
            );
        }
    }
}

/// Without what is another each time: ids and times are replaced by words.
fn plain(text: &str) -> String {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let digits = rest.chars().take_while(|c| is_hex(*c)).count();
        let (word, taken) = match rest.get(..20) {
            Some(time) if is_time(time) => ("TIME", 20),
            _ if matches!(digits, 16 | 32) => ("ID", digits),
            _ => {
                let taken = digits.max(c.len_utf8());
                (&rest[..taken], taken)
            }
        };
        out.push_str(word);
        rest = &rest[taken..];
    }
    out
}

fn is_time(text: &str) -> bool {
    text.ends_with('Z') && vault::parse_time(text).is_some()
}

#[test]
fn what_is_said_is_what_the_page_says() {
    let mut s = Scene::new();
    which_vault(&mut s);
    names(&mut s);
    sources(&mut s);
    doubts(&mut s);
    targets(&mut s);
    what_stays(&mut s);
    jobs(&mut s);
    reading(&mut s);
    files(&mut s);
    tar_archives(&mut s);
    archives(&mut s);
    commands(&mut s);
    if !running::mounts(&mut s) {
        return;
    }
    running::qemu(&mut s);
    running::agents(&mut s);
    running::libvirt(&mut s);
    serving::exports(&mut s);
    serving::pools(&mut s);
    if !serving::devices(&mut s) {
        return;
    }
    if !running::no_room(&mut s) {
        return;
    }
    damage(&mut s);
    literals::others(&mut s);
    s.finish();
}

fn which_vault(s: &mut Scene) {
    s.section("Vaults");
    std::fs::create_dir(s.bench.path("empty")).unwrap();
    for store in
        ["…/none", "…/empty", "…/web01.raw", "s3://bucket/vault", "rbd:pool/vault", "ftp://host/vault"]
    {
        s.says(&format!("--store {store} snapshots"));
    }
    s.says("init");
    s.says("--store …/new init --policy fast");
    s.says("--store …/web01.raw init");
    let newer = s.bench.arg("newer");
    std::fs::create_dir_all(&newer).unwrap();
    assert!(common::sapwood(Path::new(&newer), &["-q", "init"]).status().unwrap().success());
    for name in ["vault.json", "vault.copy"] {
        let file = Path::new(&newer).join("objects").join(name);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("\"format_version\": 5", "\"format_version\": 9")).unwrap();
    }
    s.says("--store …/newer snapshots");
    s.says_without("snapshots", Some("SAPWOOD_STORE"));
}

fn names(s: &mut Scene) {
    s.section("Names");
    for name in ["web01", "web01/", "web01/v*", "-web01/vda", ".web01/vda"] {
        s.says(&format!("backup -- {name} …/web01.raw"));
    }
    for name in ["none/vda", "none", "none*"] {
        s.says(&format!("snapshots {name}"));
    }
    for spec in ["zz", "latest~9", "latest~x", "later", "2020-01-01", "yesterday", ""] {
        s.says(&format!("restore web01/vda@{spec} …/out"));
    }
    s.says("restore none/vda …/out");
    s.says("restore web01 …/out");
    s.says("rename web01/vda db01/vda");
    s.says("rename none/vda none/vdb");
    s.says("rename web01/vda web01");
    s.says("tag web01/vda@latest for");
    s.says("tag web01/vda@latest =x");
    s.says("tag web01/vda@latest consistency=application");
    s.says("tag web01/vda@latest");
    s.says("snapshots --from yesterday");
    s.says("snapshots --last 0");
}

fn sources(s: &mut Scene) {
    s.section("Sources");
    std::fs::create_dir(s.bench.path("directory")).unwrap();
    s.bench.file("short.qcow2", b"QFI\xfb\0\0\0\x03");
    s.bench.file("disk.vdi", &{
        let mut vdi = b"<<< Oracle VM VirtualBox Disk Image >>>\n".to_vec();
        vdi.resize(64, 0);
        vdi.extend([0x7f, 0x10, 0xda, 0xbe]);
        vdi.resize(1 << 16, 0);
        vdi
    });
    std::fs::create_dir(s.bench.path("elsewhere")).unwrap();
    qemu_img(&["create", "-q", "-f", "raw", &s.bench.arg("elsewhere/base.raw"), "1M"]);
    std::fs::create_dir(s.bench.path("images")).unwrap();
    let (base, top) = (s.bench.arg("elsewhere/base.raw"), s.bench.arg("images/top.qcow2"));
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", &base, "-F", "raw", &top]);
    for source in [
        "…/none",
        "…/directory",
        "…/short.qcow2",
        "…/disk.vdi",
        "…/images/top.qcow2",
        "rbd:pool/image",
        "https://host/image",
        "ceph:image",
        "nbd://",
        "nbd+unix:///?socket=…/none",
        "qmp:",
        "qmp:…/none#disk0",
        "libvirt:web01",
        "libvirt:",
    ] {
        s.says(&format!("backup new/vda {source}"));
    }
    s.says("backup new/vda …/images/top.qcow2 --source-format qcow2");
    s.says("backup new qmp:…/none#disk0");
    s.says("backup new libvirt:web*");
    s.says("backup new/vda -");
    s.says("backup new/vda --from-command false");
    s.says("backup new/vda --from-command echo_x --stdin-size 3");
    s.says("backup new/vda …/web01.raw --stdin-size 3");
    s.says("backup new/vda …/web01.raw --agent …/none");
    s.says("backup new/vda …/web01.raw --source-format vhd");
    s.says("backup new/vda …/web01.raw --policy fast");
    s.says("backup new/vda …/web01.raw --codec gzip");
    s.says("backup new/vda …/web01.raw --limit fast");
    s.says("backup new/vda …/web01.raw --limit 1k");
    s.says("backup new/vda …/web01.raw --time yesterday");
    s.says("backup new/vda …/web01.raw --time 2999-01-01");
    s.says("backup new/vda …/web01.raw --tag for");
    s.says("backup new/vda …/web01.raw --since zz");
    s.says("backup new/vda …/web01.raw --changed …/none");
    s.bench.file("changes", b"0 4096 x\n");
    s.says("backup web01/vda …/web01.raw --since latest --changed …/none");
    s.says("backup web01/vda …/web01.raw --since latest --changed …/changes");
    s.says("backup web01/vda …/web01.raw --since zz --bitmap dirty");
    s.says("backup web01/vda …/web01.raw --since zz --bitmap dirty --source-format raw");
    s.bench.file("long", b"0 99999999\n");
    let newest = s.bench.snapshots("web01/vda").pop().unwrap();
    s.says(&format!("backup web01/vda …/web01.raw --since {newest} --changed …/long"));
    s.says("backup new/vda - --source-format qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &s.bench.arg("piped.qcow2"), "1M"]);
    s.says("backup new/vda --from-command cat_…/piped.qcow2");
    std::fs::remove_file(s.bench.path("piped.qcow2")).unwrap();
}

fn doubts(s: &mut Scene) {
    s.section("Disks that are probably others");
    s.bench.file("empty.raw", b"");
    s.bench.file("small.raw", &random(1 << 20, 3));
    s.bench.file("other.raw", &random(20 << 20, 4));
    s.says("backup new/vda …/empty.raw");
    s.says("backup web01/vda …/small.raw");
    s.says("backup web01/vda …/other.raw");
    s.says("backup web01/vda …/db01.raw");
    s.says("backup web01/vda …/web01.qcow2");
    std::fs::copy(s.bench.path("db01.raw"), s.bench.path("sdb")).unwrap();
    s.says("backup web01/vda …/sdb");
}

fn targets(s: &mut Scene) {
    s.section("Targets");
    s.says("restore web01/vda …/web01.raw");
    s.says("restore web01/vda …/directory --force");
    s.says("restore web01/vda …/none/out");
    s.says("restore web01/vda …/out --format vhd");
    s.says("restore web01/vda …/out --mode 999");
    s.says("restore web01/vda …/none --in-place");
    s.says("restore web01/vda …/web01.qcow2 --in-place");
    s.says("restore web01/vda - --live");
    s.says("restore web01/vda …/web01.raw --live");
    s.says("restore web01/vda …/out --live --format qcow2");
    s.says("restore web01/vda …/out --socket …/socket");
    s.says("restore none --to …/machine");
    s.says("restore web01 --to …/machine --define");
    s.says("restore web01/vda --to …/machine");
    s.says("restore web01/vda");
}

fn what_stays(s: &mut Scene) {
    s.section("What stays");
    s.says("delete db01/vda@latest");
    s.says("delete web01/vda");
    s.says("delete web01/vda@zz");
    s.says("remove web01/vda");
    s.says("remove db01/vda --yes");
    s.says("retain --all");
    s.says("retain web01/vda --daily 0");
    s.says("retain none* --last 1");
    s.says("retain web01/vda --within 3");
    s.says("hold none/vda@latest");
    s.says("copy --all --to …/vault");
    s.says("copy --all --to …/none");
    s.says("copy none/vda --to …/newer");
    s.says("compact --threshold 0");
}

fn jobs(s: &mut Scene) {
    s.section("Jobs");
    s.says("run");
    s.says("--config …/none run");
    for (name, text) in [
        ("syntax", "store = "),
        ("setting", "[jobs.a]\ndisk = 'x'\n"),
        ("nothing", "store = '/srv/vault'\n[jobs.a]\nschedule = 'daily 02:30'\n"),
        ("schedule", "[jobs.a]\nschedule = 'daily 2:30'\ndisks = { 'a/b' = '/x' }\n"),
        ("zone", "[jobs.a]\nzone = 'Berlin'\ndisks = { 'a/b' = '/x' }\n"),
        ("source", "[jobs.a]\ndisks = { 'a/b' = 'x' }\n"),
        ("all-disks", "[jobs.a]\ndisks = { 'a/b' = 'qmp:/x' }\n"),
        ("state-dir", "state_dir = 'x'\n[jobs.a]\ndisks = { 'a/b' = '/x' }\n"),
        ("recompress-for", "[jobs.a]\nrecompress_for = '2h'\ndisks = { 'a/b' = '/x' }\n"),
        ("volume", "[jobs.a]\ndisks = { 'a/b' = 'volume:x' }\n"),
        ("relative-pool", "[jobs.a]\npool = 'x'\ndisks = { 'a/b' = 'volume:x' }\n"),
        (
            "volume-agent",
            "[jobs.a]\npool = '/x'\ndisks = { 'a/b' = { source = 'volume:x@y', agent = '/z' } }\n",
        ),
        (
            "volume-format",
            "[jobs.a]\npool = '/x'\ndisks = { 'a/b' = { source = 'volume:x', source_format = 'raw' } }\n",
        ),
        ("no-volume", "[jobs.a]\npool = '/x'\ndisks = { 'a/b' = 'volume:' }\n"),
        ("disk", "[jobs.a]\ndisks = { 'ab' = '/x' }\n"),
        ("rules", "[jobs.a]\nretain = { daily = 'x' }\ndisks = { 'a/b' = '/x' }\n"),
        ("no-rule", "[jobs.a]\nretain = {}\ndisks = { 'a/b' = '/x' }\n"),
        ("good", "[jobs.a]\ndisks = { 'a/b' = '/x' }\n"),
    ] {
        s.bench.file(name, text.as_bytes());
        s.says(&if name == "good" {
            "--config …/good run b".to_owned()
        } else {
            format!("config check …/{name}")
        });
    }
    s.bench.file(
        "state",
        format!("state_dir = '{}'\n[jobs.a]\ndisks = {{ 'a/b' = '/x' }}\n", s.bench.arg("good/state"))
            .as_bytes(),
    );
    s.says("--config …/state run");
    let commands = s.bench.file("commands", b"[jobs.a]\nbefore = 'true'\ndisks = { 'a/b' = '/x' }\n");
    std::fs::set_permissions(commands, std::fs::Permissions::from_mode(0o666)).unwrap();
    s.says("--config …/commands run");
    s.says("status --warn-age 3");
}

fn reading(s: &mut Scene) {
    s.section("Reading snapshots");
    s.says("files none/vda");
    s.says("files web01/vda list 7:/etc");
    s.says("diff web01/vda@latest~7 web01/vda");
    s.says("diff web01/vda db01/vda@latest~7");
    s.says("mount …/none");
    s.says("mount …/web01.raw");
    s.says("mount …/elsewhere");
    s.says("nbd web01/vda --listen here");
    s.says("nbd web01/vda --overlay …/web01.qcow2");
    std::os::unix::fs::symlink("web01.qcow2", s.bench.path("link")).unwrap();
    s.says("nbd web01/vda --overlay …/link");
    let made = ["nbd", "web01/vda@latest~1", "--overlay", &s.bench.arg("overlay"), "--", "true"];
    assert_eq!(s.bench.run(&made).code(), Some(0));
    s.says("nbd db01/vda --overlay …/overlay");
    s.says("nbd web01/vda --cache much");
    s.says("verify none/vda");
    s.says("verify web01/vda@zz");
    s.says("verify web01/vda@latest db01/vda");
    s.says("verify none*");
    s.says("map none/vda");
    s.says("stats none/vda");
    s.says("study …/none");
    s.says("study …/web01.raw --chunk 5");
    s.says("popular build --fraction 200");
    s.says("repair none/vda");
    s.says("repair --from-vault …/none --data");
}

/// A disk with files on it.
fn files(s: &mut Scene) {
    s.section("Files of a snapshot");
    std::fs::create_dir_all(s.bench.path("of-disk/etc")).unwrap();
    s.bench.file("of-disk/etc/fstab", b"/dev/vda / ext4 defaults 0 1\n");
    let disk = s.bench.file("files.raw", &vec![0; 16 << 20]);
    let mkfs = Command::new("mkfs.ext4").args(["-q", "-F", "-d", &s.bench.arg("of-disk"), &disk]).status();
    assert!(mkfs.unwrap().success());
    s.bench.done(&["-q", "backup", "files/vda", &disk]);
    s.says("files files/vda get /etc /etc/fstab --to -");
    s.says("files files/vda get /etc --to -");
    s.says("files files/vda get /none --to -");
    s.says("files files/vda list 7:/");
}

/// A series of tar archives.
fn tar_archives(s: &mut Scene) {
    s.section("Tar archives in a vault");
    let etc = s.bench.arg("etc.tar");
    let tar = Command::new("tar").args(["-C", &s.bench.arg("of-disk"), "-cf", &etc, "etc"]).status();
    assert!(tar.unwrap().success());
    s.bench.done(&["-q", "backup", "host/etc", &etc, "--format", "tar"]);
    s.says("restore host/etc …/out --format qcow2");
    s.says("restore host/etc …/web01.raw --in-place");
    s.says("restore host/etc …/directory --force");
    s.says("restore web01/vda …/out --format tar");
    s.says("files host/etc");
    s.says("nbd host/etc");
    s.says("backup host/etc …/etc.tar --since latest --changed …/changes");
    s.says("backup host/etc …/directory");
}

fn archives(s: &mut Scene) {
    s.section("Archives");
    s.bench.file("a.tar", &random(2000, 5));
    s.says("mtar migrate …/none …/out");
    s.says("mtar migrate …/a.tar …/web01.raw");
    s.says("mtar migrate …/a.tar …/a.tar --force");
    s.says("mtar migrate …/a.tar …/directory");
    s.says("mtar migrate …/a.tar …/none/out");
    s.says("mtar migrate …/a.tar …/out --align 5000");
    s.says("mtar restore …/a.tar …/out");
    s.bench.file("short.mtar", b"SAPMTAR");
    s.says("mtar restore …/short.mtar …/out");
    s.says("mtar restore …/directory …/out");
    s.says("mzip …/none");
    s.says("mzip …/directory");
    s.says("mzip /dev/null");
    s.says("mzip …/a.tar -o …/web01.raw");
    s.says("mzip …/a.tar -o …/a.tar -f --rm");
    s.says("mzip …/a.tar -o - --rm");
    s.says("mzip …/a.tar --with lz4");
    s.says("mzip …/a.tar --with gzip --level 13");
    s.says("mzip …/a.tar --with none --level 1");
    s.says("mzip …/a.tar --chunk 64k");
    s.says("mzip …/a.tar --memory 1MiB");
    s.says("mzip …/a.tar …/web01.raw -o …/out");
    s.says("mzip …/a.tar …/web01.raw -c");
    s.says("mzip …/a.tar - -f");
    s.says("munzip …/a.tar …/short.mtar --range 0+5");
    s.bench.file("short.mz", b"SAPMZIP");
    s.says("mzip …/short.mz");
    s.says("munzip …/a.tar");
    s.says("munzip …/a.tar -o …/out");
    s.says("munzip …/short.mz");
    s.says("munzip …/short.mz --range 5");
    s.says("munzip …/short.mz --range 0+5 --rm");
}

fn commands(s: &mut Scene) {
    s.section("Commands and options");
    for word in [
        "prune",
        "check",
        "ls",
        "list",
        "forget",
        "create",
        "info",
        "extract",
        "rm",
        "cat",
        "export",
        "unlock",
        "sync",
        "bakcup",
        "completions",
        "mount",
        "backup",
    ] {
        s.says(word);
    }
    s.says("snapshots --fast");
    s.says("backup web01/vda …/web01.raw more");
    s.says("--lock-wait soon snapshots");
}

#[test]
fn every_message_of_the_program_is_on_the_page() {
    literals::check(&std::fs::read_to_string(page()).unwrap());
}

/// Last: the vault is damaged.
fn damage(s: &mut Scene) {
    s.section("A damaged container");
    let objects = s.bench.store.join("objects");
    let spoil = |file: &Path| {
        let mut bytes = std::fs::read(file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 8].fill(0);
        std::fs::write(file, bytes).unwrap();
    };
    let disk =
        s.bench.json(&["snapshots", "db01/vda"])["snapshots"][0]["snapshot"].as_str().unwrap().to_owned();
    let of_disk = |suffix: &str| {
        let all = common::files_below(&objects).into_iter();
        let root = all.clone().find(|f| f.to_str().unwrap().ends_with(&format!("{disk}.root"))).unwrap();
        let folder = root.parent().unwrap().parent().unwrap().to_owned();
        all.into_iter().find(|f| f.starts_with(&folder) && f.to_str().unwrap().ends_with(suffix)).unwrap()
    };
    spoil(&of_disk(".data"));
    s.says("restore db01/vda …/damaged");
    s.says("verify db01/vda --data");
    s.section("A damaged manifest");
    let manifest = of_disk("manifest");
    spoil(&manifest);
    s.says("restore db01/vda …/damaged");
    s.says("snapshots");
    s.says("backup db01/vda …/db01.raw");
    s.section("vault.json and its copy are damaged");
    for name in ["vault.json", "vault.copy"] {
        spoil(&objects.join(name));
    }
    s.says("snapshots");
}
