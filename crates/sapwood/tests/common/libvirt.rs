//! A libvirt daemon of a test's own, and a domain in it that has no guest.
//!
//! As root the daemon sees directories of its own where the system's daemon keeps its state; otherwise it is one of the
//! user's, told to keep everything in the test's directory.

use super::Bench;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// As root: nothing of the system's daemon is touched.
const ROOT: &str = r#"
# What other tests have mounted just now: it could not end while it is mounted here as well.
umount --all --lazy --types fuse.sapwood || true
mkdir -p /run/libvirt /var/lib/libvirt /etc/libvirt
mount -t tmpfs -o mode=755 tmpfs /run/libvirt
mount -t tmpfs -o mode=755 tmpfs /var/lib/libvirt
mount -t tmpfs -o mode=755 tmpfs /etc/libvirt
cp "$1/qemu.conf" /etc/libvirt/qemu.conf
# Where KVM is there and does not work, libvirt asks QEMU anew, for seconds, each time it wants to know what QEMU can do.
if [ -e /dev/kvm ]; then
    touch /etc/libvirt/no-kvm
    mount --bind /etc/libvirt/no-kvm /dev/kvm
    mount -o remount,ro,bind /dev/kvm
fi
exec libvirtd --config "$1/libvirtd.conf" --pid-file "$1/pid" --timeout 60
"#;

/// A daemon. Dropped, the domain and it are ended.
pub struct Libvirt {
    daemon: std::process::Child,
    uri: String,
    /// Whether the domain was ever started.
    has_domain: bool,
}

impl Libvirt {
    /// Starts one; the program under test, run from `bench`, talks to it.
    pub fn start(bench: &mut Bench) -> Self {
        let dir = bench.path("libvirt");
        std::fs::create_dir_all(dir.join("run")).unwrap();
        // QEMU is another user's, and must get at the images.
        std::fs::set_permissions(bench.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let own = |name: &str| dir.join(name).display().to_string();
        let conf = format!(
            "unix_sock_dir = \"{}\"\nauth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\nlog_outputs = \"3:file:{}\"\n",
            own("run"),
            own("log")
        );
        std::fs::write(dir.join("libvirtd.conf"), conf).unwrap();
        // Otherwise another daemon, virtlogd, would have to be there.
        let qemu = "stdio_handler = \"file\"\nsecurity_driver = \"none\"\nnamespaces = []\n";
        let is_root = rustix::process::geteuid().is_root();
        let mut command = if is_root {
            std::fs::write(dir.join("qemu.conf"), qemu).unwrap();
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "bash", "-euc", ROOT, "libvirt"]).arg(&dir);
            command
        } else {
            std::fs::create_dir_all(dir.join("config/libvirt")).unwrap();
            std::fs::write(dir.join("config/libvirt/qemu.conf"), qemu).unwrap();
            let mut command = Command::new("libvirtd");
            command.env("XDG_RUNTIME_DIR", own("runtime")).env("XDG_CONFIG_HOME", own("config"));
            command.env("XDG_CACHE_HOME", own("cache"));
            command.args(["--config", &own("libvirtd.conf"), "--pid-file", &own("pid"), "--timeout", "60"]);
            command
        };
        let log = std::fs::File::create(dir.join("out")).unwrap();
        let daemon =
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let kind = if is_root { "system" } else { "session" };
        let uri = format!("qemu+unix:///{kind}?socket={}", own("run/libvirt-sock"));
        bench.env.push(("LIBVIRT_DEFAULT_URI".into(), uri.clone().into()));
        let libvirt = Libvirt { daemon, uri, has_domain: false };
        let start = Instant::now();
        while !dir.join("run/libvirt-sock").exists() || libvirt.try_virsh(&["version"]).is_err() {
            let said = || std::fs::read_to_string(dir.join("out")).unwrap_or_default();
            assert!(start.elapsed() < Duration::from_secs(60), "libvirtd does not come up: {}", said());
            std::thread::sleep(Duration::from_millis(50));
        }
        libvirt
    }

    fn try_virsh(&self, args: &[&str]) -> Result<String, String> {
        let done =
            Command::new("virsh").args(["--connect", &self.uri, "--quiet"]).args(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() {
            Ok(text(&done.stdout))
        } else {
            Err(text(&done.stderr))
        }
    }

    /// A command of virsh that must succeed.
    pub fn virsh(&self, args: &[&str]) -> String {
        self.try_virsh(args).unwrap_or_else(|e| panic!("virsh {args:?}: {e}"))
    }

    /// Defines and starts the domain `vm` with disks (target, format, file).
    pub fn start_domain(&mut self, bench: &Bench, disks: &[(&str, &str, &str)]) {
        // With an order each: the firmware shows a guest only disks that it may boot from.
        let disk = |(n, (target, format, file)): (usize, &(&str, &str, &str))| {
            format!(
                "<disk type='file' device='disk'><driver name='qemu' type='{format}'/><source file='{file}'/>\
                 <target dev='{target}' bus='virtio'/><boot order='{}'/><alias name='ua-{target}'/></disk>",
                n + 1
            )
        };
        let disks: String = disks.iter().enumerate().map(disk).collect();
        // What a guest says, if there is one. QEMU is another user's.
        let serial = bench.file("serial", b"");
        std::fs::set_permissions(&serial, std::fs::Permissions::from_mode(0o666)).unwrap();
        let xml = format!(
            "<domain type='qemu'><name>vm</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>\
             <os><type arch='x86_64' machine='q35'>hvm</type></os><devices>{disks}\
             <disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>\
             <serial type='file'><source path='{serial}'/><target port='0'/></serial>\
             <controller type='usb' model='none'/><memballoon model='none'/></devices></domain>"
        );
        let file = bench.file("domain.xml", xml.as_bytes());
        self.virsh(&["define", &file]);
        self.has_domain = true;
        self.virsh(&["start", "vm"]);
    }

    /// Defines a domain that is off, with one raw disk; `more` is what its source has more.
    pub fn define_off(&self, bench: &Bench, name: &str, image: &str, more: &str) {
        let xml = format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory>\
             <os><type arch='x86_64' machine='q35'>hvm</type></os><devices>\
             <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{image}'>{more}</source>\
             <target dev='vda' bus='virtio'/></disk></devices></domain>"
        );
        let file = bench.file("domain-off.xml", xml.as_bytes());
        self.virsh(&["define", &file]);
    }

    /// Writes to a disk as the guest would.
    pub fn write(&self, target: &str, at: usize, len: usize, byte: u8) {
        let io = format!(
            "qemu-io -d /machine/peripheral/ua-{target}/virtio-backend \"write -P {byte} {at} {len}\""
        );
        let said = self.virsh(&["qemu-monitor-command", "vm", "--hmp", &io]);
        assert_eq!(said.trim(), "", "{io}");
    }

    /// Names of the domain's checkpoints.
    pub fn checkpoints(&self) -> Vec<String> {
        let all = self.virsh(&["checkpoint-list", "vm", "--name"]);
        all.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect()
    }

    /// Ends the domain's QEMU without a word.
    pub fn kill_qemu(&self, bench: &Bench) {
        let of_root = format!("/proc/{}/root/run/libvirt/qemu/vm.pid", self.daemon.id());
        let of_user = bench.arg("libvirt/runtime/libvirt/qemu/run/vm.pid");
        let text = std::fs::read_to_string(of_root).or_else(|_| std::fs::read_to_string(of_user)).unwrap();
        let pid = rustix::process::Pid::from_raw(text.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let start = Instant::now();
        while self.virsh(&["domstate", "vm"]).trim() != "shut off" {
            assert!(start.elapsed() < Duration::from_secs(60), "libvirt does not see that QEMU is gone");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether a backup job runs.
    pub fn has_job(&self) -> bool {
        self.job_socket().is_some()
    }

    /// The socket of the backup job, which tells one job from another.
    pub fn job_socket(&self) -> Option<String> {
        let job = self.try_virsh(&["backup-dumpxml", "vm"]).ok()?;
        let socket = job.split("socket='").nth(1).and_then(|rest| rest.split('\'').next());
        Some(socket.unwrap_or_default().to_owned())
    }
}

impl Drop for Libvirt {
    fn drop(&mut self) {
        if self.has_domain {
            let _ = self.try_virsh(&["destroy", "vm"]);
        }
        let daemon = rustix::process::Pid::from_child(&self.daemon);
        let _ = rustix::process::kill_process(daemon, rustix::process::Signal::TERM);
        let _ = self.daemon.wait();
    }
}

/// A qcow2 image that any user may write to.
pub fn new_image(path: &Path, format: &str, bytes: usize) -> String {
    let path = path.to_str().unwrap().to_owned();
    super::qemu_img(&["create", "-q", "-f", format, &path, &bytes.to_string()]);
    path
}
