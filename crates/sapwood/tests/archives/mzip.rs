//! `mzip` and `munzip` have the manners of a compressor: files come back, and nothing is left half done or lost.

use crate::common::{from_env, peak, Bench, Child, LoopDevice, DAMAGED, FAILED, INTERRUPTED, REFUSED, USAGE};
use crate::names;
use rustix::process::Signal;
use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const SAPWOOD: &str = env!("CARGO_BIN_EXE_sapwood");

/// Four versions of the same pages, with changes in every third.
fn versions(pages: usize) -> Vec<u8> {
    let mut text: Vec<u8> = testing::noise(1, pages * 8192).iter().map(|b| b & 0x1f | 0x40).collect();
    let mut all = text.clone();
    for version in 1..4 {
        text.chunks_mut(8192).skip(version).step_by(3).for_each(|page| page[4000..4040].fill(version as u8));
        all.extend_from_slice(&testing::noise(9, version * 777));
        all.extend_from_slice(&text);
    }
    all
}

fn shell(line: &str) -> Output {
    Command::new("bash").args(["-o", "pipefail", "-c", line]).output().unwrap()
}

fn succeeds(line: &str) -> Vec<u8> {
    let done = shell(line);
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

fn is_equal(path: &str, bytes: &[u8]) {
    assert!(std::fs::read(path).unwrap() == bytes, "{path}");
}

#[test]
fn a_file_comes_back_with_its_mode_and_time() {
    let bench = Bench::bare();
    let bytes = versions(200);
    let file = bench.file("disk.raw", &bytes);
    std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    let old = std::fs::metadata(&file).unwrap();
    let archive = format!("{file}.mz");
    let json = bench.json(&["mzip", &file]);
    assert_eq!(json["original_bytes"].as_u64(), Some(bytes.len() as u64));
    assert_eq!(json["mover"].as_str(), Some("memory"));
    assert!(json["archive_bytes"].as_u64().unwrap() < bytes.len() as u64 / 3, "{json}");
    let listed = bench.json(&["munzip", "-l", &archive]);
    assert_eq!(
        (listed["original_bytes"].as_u64(), listed["compressor"].as_str()),
        (Some(bytes.len() as u64), Some("zstd"))
    );
    bench.done(&["munzip", "-t", &archive]);
    bench.fails(&["munzip", &archive], REFUSED, &["disk.raw: exists"]);
    // With --rm it is the only one left, each way.
    bench.done(&["mzip", &file, "-f", "--rm", "--with", "gzip", "-9"]);
    assert_eq!(names(&bench, "disk"), ["disk.raw.mz"]);
    bench.done(&["munzip", &archive, "--rm"]);
    assert_eq!(names(&bench, "disk"), ["disk.raw"]);
    is_equal(&file, &bytes);
    let new = std::fs::metadata(&file).unwrap();
    assert_eq!((new.mode() & 0o777, new.mtime(), new.mtime_nsec()), (0o640, old.mtime(), old.mtime_nsec()));
}

#[test]
fn pipes_and_files_give_the_same() {
    let bench = Bench::bare();
    let bytes = versions(150);
    let file = bench.file("disk.raw", &bytes);
    for with in ["gzip -1", "bzip2 -1", "zstd -1", "none", "xz -1"] {
        let archive = bench.arg("a.mz");
        let options = format!("--with {with} --chunk 8k");
        succeeds(&format!("{SAPWOOD} mzip {file} {options} -f -o {archive}"));
        succeeds(&format!("{SAPWOOD} mzip {options} < {file} | cmp - {archive}"));
        // With less memory blocks may be shorter: alike for both.
        let options_less = format!("{options} --memory 32MiB");
        succeeds(&format!("{SAPWOOD} mzip {file} {options_less} -f -o {archive}.less"));
        succeeds(&format!("cat {file} | {SAPWOOD} mzip - {options_less} | cmp - {archive}.less"));
        succeeds(&format!("{SAPWOOD} mzip {file} -c {options} | cmp - {archive}"));
        succeeds(&format!("{SAPWOOD} munzip -c {archive} | cmp - {file}"));
        succeeds(&format!("{SAPWOOD} munzip < {archive} | cmp - {file}"));
        succeeds(&format!("cat {archive} | {SAPWOOD} munzip | cmp - {file}"));
        succeeds(&format!("cat {archive} | {SAPWOOD} munzip - -f -o {file}.new && cmp {file}.new {file}"));
        succeeds(&format!("{SAPWOOD} mzip -dc {archive} --memory 48MiB | cmp - {file}"));
        let part = succeeds(&format!("{SAPWOOD} munzip {archive} --range 100000+70000"));
        assert!(part == bytes[100_000..170_000]);
        succeeds(&format!(
            "{SAPWOOD} mzip -t {archive} && {SAPWOOD} mzip -l {archive} | grep {}",
            &with[..4]
        ));
    }
    succeeds(&format!("{SAPWOOD} munzip {} --range 1000+50 -o {}", bench.arg("a.mz"), bench.arg("part")));
    is_equal(&bench.arg("part"), &bytes[1000..1050]);
    // What is only moved is for another compressor.
    succeeds(&format!(
        "{SAPWOOD} mzip {file} --with none -c | gzip > {file}.gz && gunzip -c {file}.gz | {SAPWOOD} munzip | cmp - {file}"
    ));
    // A reader that has gone is no message.
    let ended = shell(&format!("{SAPWOOD} munzip -c {} | head -c 100 | wc -c", bench.arg("a.mz")));
    assert_eq!((ended.stdout.as_slice(), ended.stderr.as_slice()), (&b"100\n"[..], &b""[..]));
    // Nor is the end of a pipe that was cut off taken for the end of an archive.
    let cut = shell(&format!("head -c 5000 {} | {SAPWOOD} munzip > /dev/null", bench.arg("a.mz")));
    assert_eq!(cut.status.code(), Some(DAMAGED), "{}", String::from_utf8_lossy(&cut.stderr));
}

#[test]
fn tar_calls_it() {
    let bench = Bench::bare();
    let tree = bench.path("tree");
    std::fs::create_dir(&tree).unwrap();
    for n in 0..50u64 {
        std::fs::write(tree.join(format!("{n}")), testing::noise(n % 7, 30_000 + n as usize)).unwrap();
    }
    let (dir, back) = (bench.dir.path().display().to_string(), bench.arg("back"));
    std::fs::create_dir(&back).unwrap();
    succeeds(&format!("cd {dir} && tar -I '{SAPWOOD} mzip' -cf a.tar.mz tree"));
    succeeds(&format!("cd {dir} && tar -I '{SAPWOOD} mzip' -xf a.tar.mz -C back && diff -r tree back/tree"));
    let plain = std::fs::metadata(bench.path("a.tar.mz")).unwrap().len();
    assert!(plain < 400_000, "{plain}");
}

#[test]
fn zeros_become_holes() {
    let bench = Bench::bare();
    let (file, archive, back) = (bench.arg("sparse"), bench.arg("a.mz"), bench.arg("back"));
    let sparse = std::fs::File::create(&file).unwrap();
    sparse.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 10 << 20).unwrap();
    bench.done(&["mzip", &file, "-o", &archive]);
    bench.done(&["munzip", &archive, "-o", &back]);
    is_equal(&back, &std::fs::read(&file).unwrap());
    let blocks = std::fs::metadata(&back).unwrap().blocks();
    assert!(blocks < 1000, "{blocks} blocks");
}

#[test]
fn nothing_is_lost_by_mistake() {
    let bench = Bench::bare();
    let bytes = versions(40);
    let file = bench.file("disk.raw", &bytes);
    let archive = format!("{file}.mz");
    bench.done(&["mzip", &file, "-k"]);
    let made = std::fs::read(&archive).unwrap();
    bench.fails(&["mzip", &file], REFUSED, &["disk.raw.mz: exists", "--force"]);
    // The result would be the input.
    std::fs::hard_link(&file, bench.path("other")).unwrap();
    std::os::unix::fs::symlink(&file, bench.path("link")).unwrap();
    for output in [&file, &bench.arg("other"), &bench.arg("link")] {
        bench.fails(&["mzip", &file, "-o", output, "-f", "--rm"], REFUSED, &["is the input itself"]);
        bench.fails(&["mzip", &file, "-o", output, "-f"], REFUSED, &["is the input itself"]);
    }
    bench.fails(&["munzip", &archive, "-o", &archive, "-f"], REFUSED, &["is the input itself"]);
    is_equal(&file, &bytes);
    // A part is no reason to remove the whole.
    let out = bench.arg("out");
    is_wrong_usage(&bench, &["munzip", &archive, "--range", "0+10", "-o", &out, "--rm"], "--rm");
    is_wrong_usage(&bench, &["munzip", "-t", &archive, "--rm"], "--rm");
    is_wrong_usage(&bench, &["mzip", &file, "-c", "--rm"], "--rm");
    bench.fails(&["mzip", &file, "-o", "-", "--rm"], USAGE, &["--rm needs a result that is a file"]);
    is_wrong_usage(&bench, &["mzip", &file, "-k", "--rm"], "--rm");
    bench.fails(&["mzip", &archive], USAGE, &["ends in .mz already"]);
    bench.fails(&["munzip", &file], USAGE, &["does not end in .mz"]);
    bench.fails(&["mzip", bench.dir.path().to_str().unwrap()], REFUSED, &["is a directory"]);
    bench.fails(&["mzip", &bench.arg("none")], FAILED, &["none: cannot open"]);
    bench.fails(&["mzip", "/dev/null"], USAGE, &["/dev/null: is not a regular file"]);
    bench.fails(
        &["mzip", &file, "-o", &out, "--with", "gzip", "--level", "13"],
        USAGE,
        &["gzip has levels 1 to 12"],
    );
    is_wrong_usage(&bench, &["mzip", &file, "-o", &out, "--chunk", "64k"], "2 KiB to 32 KiB");
    bench.fails(&["munzip", &archive, "--range", "1+99999999999"], USAGE, &["not all of the range"]);
    is_wrong_usage(&bench, &["munzip", &archive, "--range", "5"], "OFFSET+LENGTH");
    bench.fails(&["mzip", &file, "-o", &pipe(&bench), "-f"], REFUSED, &["is not a regular file"]);
    // Damage anywhere leaves the result as it was.
    std::fs::write(&out, b"mine").unwrap();
    for at in [3, 40, made.len() / 2, made.len() - 100, made.len() - 1] {
        let mut wrong = made.clone();
        wrong[at] ^= 4;
        let harmed = bench.file("harmed.mz", &wrong);
        bench.fails(&["munzip", &harmed, "-o", &out, "-f", "--rm"], DAMAGED, &["harmed.mz: damaged at byte"]);
        bench.fails(&["munzip", "-t", &harmed], DAMAGED, &["damaged at byte"]);
        assert!(Path::new(&harmed).exists());
    }
    assert_eq!(std::fs::read(&out).unwrap(), b"mine");
    assert!(std::fs::read(&archive).unwrap() == made);
    assert_eq!(names(&bench, ".sapwood"), Vec::<String>::new());
}

/// What others may do with the files of whoever runs it.
#[test]
fn results_are_no_more_open_than_their_inputs() {
    let bench = Bench::bare();
    let bytes = versions(40);
    let file = bench.file("disk.raw", &bytes);
    let archive = format!("{file}.mz");
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    bench.done(&["mzip", &file]);
    assert_eq!(std::fs::metadata(&archive).unwrap().mode() & 0o7777, 0o600);
    // Set-user-id of an archive that another user made is not the result's.
    std::fs::set_permissions(&archive, Permissions::from_mode(0o6755)).unwrap();
    bench.done(&["munzip", &archive, "-f"]);
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o7777, 0o755);
    // Removing a link, or one of several names, would free nothing.
    std::os::unix::fs::symlink(&file, bench.path("link")).unwrap();
    let out = bench.arg("out.mz");
    bench.fails(&["mzip", &bench.arg("link"), "-o", &out, "--rm"], REFUSED, &["link: is a link"]);
    std::fs::hard_link(&file, bench.path("second")).unwrap();
    bench.fails(&["mzip", &file, "-o", &out, "--rm"], REFUSED, &["disk.raw: has other names"]);
    assert!(!Path::new(&out).exists());
    // Files that do not know their length are read to their end.
    let version = std::fs::read("/proc/version").unwrap();
    bench.done(&["mzip", "/proc/version", "-o", &out]);
    assert!(succeeds(&format!("{SAPWOOD} munzip {out} -c")) == version);
}

/// What the command line refuses, with its usage below the message.
fn is_wrong_usage(bench: &Bench, args: &[&str], word: &str) {
    let ended = bench.run(args);
    assert_eq!(ended.code(), Some(USAGE), "{ended}");
    assert!(ended.stderr.contains(word), "{ended}");
}

fn pipe(bench: &Bench) -> String {
    let pipe = bench.arg("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    pipe
}

/// What is sixteen times as long as the memory is compressed and restored within it, whatever the compressor takes.
/// `SAPWOOD_MZIP_MIB=1024` does it with a file of 1 GiB.
#[test]
fn memory_is_what_was_granted() {
    let bench = Bench::bare();
    let mib = from_env("SAPWOOD_MZIP_MIB", 0);
    let small = mib == 0;
    let (mib, memory) = if small { (48, 32) } else { (mib, (mib / 16).max(32)) };
    let file = bench.arg("file");
    {
        // Parts come again, changed, after all others: so tables must know all of them.
        let mut to = std::io::BufWriter::new(std::fs::File::create(&file).unwrap());
        for part in 0..mib {
            let mut bytes: Vec<u8> =
                testing::noise(part % (mib / 3 + 1), 1 << 20).iter().map(|b| b & 0x3f).collect();
            bytes.iter_mut().skip(part as usize).step_by(50_000).for_each(|b| *b ^= 0x80);
            to.write_all(&bytes).unwrap();
        }
        to.flush().unwrap();
    }
    let (archive, back) = (bench.arg("a.mz"), bench.arg("back"));
    let memory_arg = format!("{memory}MiB");
    let mut ways = vec![("gzip", "1", "cdc:8k"), ("zstd", "3", "cdc:8k")];
    ways.extend(if small {
        vec![("xz", "1", "cdc:8k"), ("zstd", "1", "cdc:2k")]
    } else {
        vec![("zstd", "19", "cdc:8k"), ("bzip2", "9", "cdc:8k"), ("xz", "9", "cdc:8k")]
    });
    for (with, level, chunk) in ways {
        let within = |args: &[&str], what: &str, stdout: Stdio| {
            let mut command = bench.command(args);
            command.args(["--memory", &memory_arg]);
            let (taken, ended) = peak(command, stdout);
            assert!(ended.status.success(), "{what}: {}", String::from_utf8_lossy(&ended.stderr));
            eprintln!("{what} with {with} at level {level}, {chunk}: {} of {memory} MiB", taken >> 20);
            assert!(taken <= memory << 20, "{what}, {with} {level}: {taken} bytes");
        };
        let pack =
            ["-q", "mzip", &file, "--with", with, "--level", level, "--chunk", chunk, "-f", "-o", &archive];
        within(&pack, "mzip", Stdio::piped());
        let found = bench.json(&["munzip", "-l", &archive])["stored_bytes"].as_u64().unwrap();
        assert!(found < (mib << 20) / 5 * 4, "{found} bytes are stored of {mib} MiB");
        if small {
            within(&["-q", "munzip", &archive, "-f", "-o", &back], "munzip", Stdio::piped());
            succeeds(&format!("cmp {file} {back}"));
        } else {
            // There need not be room for the file a second time.
            let mut cmp = Command::new("cmp").args(["-", &file]).stdin(Stdio::piped()).spawn().unwrap();
            let to_cmp = cmp.stdin.take().unwrap().into();
            within(&["-q", "munzip", &archive, "-c"], "munzip -c", to_cmp);
            assert!(cmp.wait().unwrap().success(), "{with} at level {level}");
        }
        within(&["-q", "munzip", "-t", &archive], "munzip -t", Stdio::piped());
        if small {
            // Short chunks are so many that the tables do not fit: without a place for temporary files they end it.
            let mut homeless = bench.command(&pack);
            homeless.args(["--memory", &memory_arg]).env("TMPDIR", "/none");
            assert_eq!(
                homeless.output().unwrap().status.code() == Some(FAILED),
                chunk == "cdc:2k",
                "{chunk}"
            );
        }
    }
    if small {
        // Through pipes, and as deltas.
        let line = format!("cat {file} | {SAPWOOD} -q mzip --delta --memory 32MiB | tee {archive} | {SAPWOOD} munzip --memory 48MiB | cmp - {file}");
        succeeds(&line);
    }
}

/// However chunks are moved, it is the same archive.
#[test]
fn movers_are_chosen_by_hand() {
    let bench = Bench::bare();
    let file = bench.file("disk.raw", &versions(1200));
    let archive = bench.arg("memory.mz");
    for mover in ["memory", "chunk", "multipass"] {
        let made = bench.arg(&format!("{mover}.mz"));
        let args =
            ["mzip", &file, "--with", "gzip", "-1", "--memory", "40MiB", "--mover", mover, "-o", &made];
        assert_eq!(bench.json(&args)["mover"], mover);
        succeeds(&format!("cmp {made} {archive}"));
    }
    succeeds(&format!("{SAPWOOD} munzip -c {archive} | cmp - {file}"));
    is_wrong_usage(&bench, &["mzip", &file, "--mover", "none"], "multipass");
}

/// A device is read once, as a stream is, and has no name for its archive.
#[test]
fn a_block_device_is_compressed() {
    if !testing::can_mount("") {
        return;
    }
    let bench = Bench::bare();
    let mut bytes = versions(150);
    bytes.resize(bytes.len().next_multiple_of(4096), 7);
    let file = bench.file("disk.raw", &bytes);
    let Some(loops) = LoopDevice::on(Path::new(&file)) else { return };
    let (device, archive) = (loops.device.as_str(), bench.arg("a.mz"));
    bench.fails(&["mzip", device], USAGE, &["is not a regular file", "-o"]);
    bench.fails(&["mzip", device, "-o", &archive, "--rm"], USAGE, &["--rm removes regular files only"]);
    let made = bench.json(&["mzip", device, "-o", &archive]);
    assert_eq!(made["original_bytes"].as_u64(), Some(bytes.len() as u64));
    assert!(made["archive_bytes"].as_u64().unwrap() < bytes.len() as u64 / 3, "{made}");
    succeeds(&format!("{SAPWOOD} munzip -c {archive} | cmp - {file}"));
    // Nor is one replaced.
    bench.fails(&["munzip", &archive, "-o", device, "-f"], REFUSED, &["is not a regular file"]);
}

/// Text of words: compressible, and no part of it is like another one.
fn words(bytes: usize) -> Vec<u8> {
    let words: Vec<String> = testing::noise(1, 40_000)
        .chunks(10)
        .map(|noise| {
            noise[..3 + usize::from(noise[9] % 7)].iter().map(|b| char::from(b'a' + b % 26)).collect()
        })
        .collect();
    let mut text = Vec::with_capacity(bytes + 16);
    for pair in testing::noise(2, bytes).chunks_exact(4) {
        // Short numbers are drawn more often, as words of a language are.
        let number = (u64::from(pair[0]) * u64::from(pair[1]) * u64::from(pair[2])) >> 12;
        text.extend_from_slice(words[number as usize % words.len()].as_bytes());
        text.push(if pair[3] < 20 { b'\n' } else { b' ' });
        if text.len() >= bytes {
            break;
        }
    }
    text.resize(bytes, b' ');
    text
}

/// What has no similar chunks becomes as small as by the compressor alone, although cores share it.
#[test]
fn what_does_not_cluster_costs_next_to_nothing() {
    let bench = Bench::bare();
    let file = bench.file("words", &words(24 << 20));
    let archive = bench.arg("a.mz");
    let mut ratios = Vec::new();
    for (with, level) in [("gzip", "-6"), ("bzip2", "-9"), ("zstd", "-3"), ("xz", "-1")] {
        let made = bench.json(&["mzip", &file, "--with", with, level, "-f", "-o", &archive]);
        let alone: u64 = String::from_utf8(succeeds(&format!("{with} -c {level} < {file} | wc -c")))
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let ratio = made["archive_bytes"].as_u64().unwrap() as f64 / alone as f64;
        assert!(alone < 12 << 20, "{with}: {alone}");
        ratios.push((with, ratio));
    }
    eprintln!("{ratios:.4?}");
    assert!(ratios.iter().all(|(_, ratio)| *ratio <= 1.01), "{ratios:.4?}");
    succeeds(&format!("{SAPWOOD} munzip -c {archive} | cmp - {file}"));
}

/// Two ends, of which the first one does not block.
fn pair() -> [UnixStream; 2] {
    let (theirs, ours) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    [theirs, ours]
}

/// Both ends may belong to programs that do not block.
#[test]
fn pipes_that_do_not_block_are_waited_for() {
    let bench = Bench::bare();
    let bytes = versions(60);
    let file = bench.file("file", &bytes);
    let through = |args: &[&str], input: Vec<u8>| {
        let ([child_in, mut to], [child_out, mut from]) = (pair(), pair());
        let mut command = bench.command(args);
        command.stdin(OwnedFd::from(child_in)).stdout(OwnedFd::from(child_out)).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        drop(command);
        let writer = std::thread::spawn(move || {
            for part in input.chunks(50_000) {
                std::thread::sleep(Duration::from_millis(1));
                to.write_all(part).unwrap();
            }
        });
        let (mut output, mut buffer) = (Vec::new(), vec![0; 30_000]);
        loop {
            std::thread::sleep(Duration::from_millis(1));
            match from.read(&mut buffer).unwrap() {
                0 => break,
                n => output.extend_from_slice(&buffer[..n]),
            }
        }
        writer.join().unwrap();
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ended.stderr));
        output
    };
    let archive = through(&["mzip"], bytes.clone());
    assert!(through(&["munzip"], archive) == bytes);
    let tar = succeeds(&format!("tar -C {} -cf - file", bench.dir.path().display()));
    let stream = through(&["mtar", "migrate", "-", "-"], tar.clone());
    assert!(through(&["mtar", "restore", "-", "-"], stream) == tar);
    is_equal(&file, &bytes);
}

/// It is the output that is full.
#[test]
fn a_full_output_is_named() {
    let bench = Bench::bare();
    let file = bench.file("file", &testing::noise(1, 3 << 20));
    let full = shell(&format!("{SAPWOOD} mzip {file} -c > /dev/full"));
    let said = String::from_utf8_lossy(&full.stderr).into_owned();
    assert!(said.contains("standard output: cannot write") && !said.contains(&file), "{said}");
    let archive = bench.arg("a.mz");
    succeeds(&format!("{SAPWOOD} -q mzip {file} -o {archive}"));
    for command in [format!("mzip {file} -o {file}.out"), format!("munzip {archive} -o {file}.out")] {
        let full = shell(&format!("trap '' XFSZ; ulimit -f 512; {SAPWOOD} {command}"));
        let said = String::from_utf8_lossy(&full.stderr).into_owned();
        assert_eq!(full.status.code(), Some(FAILED), "{said}");
        assert!(said.contains("file.out: cannot write"), "{said}");
        assert_eq!(names(&bench, "file"), ["file"]);
    }
}

#[test]
fn deltas_and_other_similarities_come_back() {
    let bench = Bench::bare();
    let bytes = versions(150);
    let (file, archive, back) = (bench.file("file", &bytes), bench.arg("a.mz"), bench.arg("back"));
    for options in [&["--delta"][..], &["--delta", "--with", "gzip"], &["--similarity", "finesse"]] {
        bench.done(&[&["mzip", &file, "-f", "-o", &archive][..], options].concat());
        let listed = bench.json(&["munzip", "-l", &archive]);
        assert_eq!(listed["deltas"].as_bool(), Some(options[0] == "--delta"));
        assert!(listed["archive_bytes"].as_u64().unwrap() < bytes.len() as u64 / 3, "{listed}");
        bench.done(&["munzip", "-t", &archive]);
        // As gzip has it.
        bench.done(&["munzip", "-d", &archive, "-f", "-o", &back]);
        is_equal(&back, &bytes);
        let part = succeeds(&format!("{SAPWOOD} munzip {archive} --range 1500000+300000"));
        assert!(part == bytes[1_500_000..1_800_000]);
    }
    is_wrong_usage(&bench, &["mzip", &file, "--delta", "--mover", "chunk"], "cannot be used with");
}

/// Killed at any time, there is no file of the name, and the input is there.
#[test]
fn a_killed_command_leaves_no_half_result() {
    let bench = Bench::bare();
    let large = bench.file("large", &versions(1500));
    let archive = bench.arg("large.mz");
    let whole = bench.arg("whole.mz");
    bench.done(&["mzip", &large, "-o", &whole]);
    let mut killed = 0;
    for n in 0..16 {
        let (args, out) = match n % 2 {
            0 => (["mzip", &large, "-o", &archive, "--rm"], &archive),
            _ => (["munzip", &whole, "-o", "back", "-f"], &large),
        };
        let args = args.map(|arg| if arg == "back" { bench.arg("back") } else { arg.into() });
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let child = Child::start(bench.command(&args), "mzip");
        std::thread::sleep(Duration::from_millis(10 + n * 12));
        child.signal(Signal::KILL);
        if child.wait().code().is_none() {
            killed += 1;
            // Either there is no result, or all of it.
            if n % 2 == 0 && Path::new(out).exists() {
                bench.done(&["munzip", "-t", out]);
            }
            if let Ok(back) = std::fs::read(bench.path("back")) {
                assert!(back == versions(1500));
            }
        }
        assert_eq!(names(&bench, ".sapwood"), Vec::<String>::new());
        let _ = std::fs::remove_file(&archive);
        let _ = std::fs::remove_file(bench.path("back"));
        if !Path::new(&large).exists() {
            bench.file("large", &versions(1500));
        }
    }
    assert!(killed >= 3, "{killed} of 16 were killed");
}

/// Slow compressors too, and a command that waits for somebody else.
#[test]
fn an_interrupted_command_ends_soon_and_cleans_up() {
    let bench = Bench::bare();
    let large = bench.file("large", &versions(2000));
    let none = Vec::<String>::new();
    for (signal, how) in
        [(Signal::INT, ["--with", "xz", "--level", "9"]), (Signal::TERM, ["--with", "zstd", "--level", "19"])]
    {
        let child = Child::start(bench.command(&[&["mzip", &large][..], &how].concat()), "mzip");
        std::thread::sleep(Duration::from_millis(900));
        child.signal(signal);
        let start = Instant::now();
        let ended = child.wait();
        assert_eq!(ended.code(), Some(INTERRUPTED), "{how:?}: {ended}");
        assert!(start.elapsed() < Duration::from_secs(3), "{how:?}: {:?}", start.elapsed());
        assert_eq!((names(&bench, "large"), names(&bench, ".sapwood")), (vec!["large".into()], none.clone()));
    }
    let mut command = bench.command(&["mzip", "-", "-o", &bench.arg("out")]);
    command.stdin(Stdio::piped());
    let mut child = Child::start(command, "mzip");
    let silent = child.stdin();
    std::thread::sleep(Duration::from_millis(500));
    child.signal(Signal::TERM);
    let start = Instant::now();
    let ended = child.wait();
    drop(silent);
    assert_eq!(ended.code(), Some(INTERRUPTED), "{ended}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(names(&bench, "out"), none);
}
