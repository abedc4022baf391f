//! libvirt on a host: libvirtd, and a virtual machine that counts like a [`Migrant`].
//!
//! libvirtd keeps its files below /run, /etc and /var, and so has a mount namespace with its own.
//! It has process IDs of its own too: the emulators that it starts end with it.
//!
//! [`Migrant`]: super::Migrant

use super::image::Image;
use super::migrant::{CPU, counts, kernel_arguments, read};
use super::store::Store;
use crate::command::Cmd;
use crate::process::Process;
use crate::{Error, Namespace, Result, wait_until};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// Memory of the virtual machine, in MiB.
const MEMORY: u32 = 256;
/// Milliseconds that the virtual machine may pause for: so long that its memory crosses once. What
/// an emulated processor writes between two rounds, QEMU before 9.0 may lose.
const PAUSE: &str = "100000";
/// Starts libvirtd with its files in a directory, as a host of that name. The shell stays: emulators
/// are orphans, and libvirtd waits for none of them.
const START: &str = r#"
mount --bind "$0/run" /run
for place in /etc/libvirt /var/lib /var/cache /var/log; do mount -t tmpfs none $place; done
for file in passwd group; do mount --bind "$0/$file" /etc/$file; done
cp "$0/qemu.conf" "$0/libvirtd.conf" /etc/libvirt
hostname "$1"
libvirtd || exit
"#;
/// libvirt looks for this user and group before it reads which others it is to take.
const NOBODY: [(&str, &str); 2] = [
    ("passwd", "libvirt-qemu:x:64055:64055::/:/bin/false\n"),
    ("group", "libvirt-qemu:x:64055:\nkvm:x:64056:\n"),
];
/// Without what a lab does not have: other users, AppArmor, virtlogd, cgroups.
const QEMU: &str = "user = \"root\"\ngroup = \"root\"\nsecurity_driver = \"none\"\nstdio_handler = \"file\"\n\
                    namespaces = []\ncgroup_controllers = []\n";

/// libvirtd of a host.
#[derive(Debug)]
pub struct Libvirt {
    process: Process,
    namespace: Namespace,
    image: Image,
    dir: PathBuf,
}

impl Libvirt {
    /// Starts it, and waits until it answers.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        let image = Image::get(&Store::lock()?, namespace.lab())?;
        let dir = namespace.lab().subdir(&format!("{}-libvirt", namespace.role()))?;
        write_files(&dir)?;
        let own = [
            "--mount",
            "--propagation",
            "private",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ];
        let cmd =
            namespace.cmd("unshare").args(own).args(["sh", "-ec", START]).arg(&dir).arg(namespace.role());
        let process = namespace.start("libvirtd", cmd)?;
        let mut this = Self { process, namespace: namespace.clone(), image, dir };
        let version = this.virsh(&["version"]);
        this.process.wait_ready(LIMIT, || {
            let done = version.clone().run_any()?;
            Ok(if done.status.success() { Ok(()) } else { Err(done.stderr) })
        })?;
        Ok(this)
    }

    /// Boots a virtual machine with a secret of letters and digits in its memory, and waits until it
    /// counts.
    pub fn boot(&self, name: &str, secret: &str) -> Result<()> {
        let domain = self.dir.join("domain.xml");
        fs::write(&domain, self.domain(name, secret))
            .map_err(Error::io(format!("write {}", domain.display())))?;
        self.virsh(&["create"]).arg(&domain).run()?;
        self.await_counts().map(drop)
    }

    /// Moves it to another host, whose emulator gets it at that address.
    pub fn migrate(&self, name: &str, to: &Self, address: SocketAddr) -> Result<()> {
        let (host, address) = (to.uri(), format!("tcp://{address}"));
        self.virsh(&["migrate-setmaxdowntime", name, PAUSE]).run()?;
        self.virsh(&["migrate", "--live", name, &host, "--migrateuri", &address]).limit(LIMIT).run().map(drop)
    }

    /// The virtual machines that run at this host.
    pub fn running(&self) -> Result<Vec<String>> {
        let shown = self.virsh(&["list", "--name", "--state-running"]).run()?.stdout;
        Ok(shown.split_whitespace().map(str::to_owned).collect())
    }

    /// The numbers that the virtual machine has printed at this host.
    pub fn counts(&self) -> Result<Vec<u64>> {
        Ok(counts(&read(&self.dir.join("run/serial"))?))
    }

    /// Waits until it prints more numbers at this host.
    pub fn await_counts(&self) -> Result<()> {
        let before = self.counts()?.len();
        wait_until("a counter that goes on", LIMIT, || {
            let counts = self.counts()?;
            Ok(if counts.len() > before { Ok(()) } else { Err(format!("{:?}", counts.last())) })
        })
    }

    /// libvirt's client, at this host.
    fn virsh(&self, args: &[&str]) -> Cmd {
        self.namespace.cmd("virsh").args(["--connect", &self.uri()]).args(args)
    }

    fn uri(&self) -> String {
        format!("qemu:///system?socket={}", self.dir.join("run/libvirt/libvirt-sock").display())
    }

    fn domain(&self, name: &str, secret: &str) -> String {
        let (kernel, initrd) = (self.image.kernel(), self.image.initrd());
        format!(
            "<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>{MEMORY}</memory>
  <vcpu>1</vcpu>
  <os>
    <type machine='q35'>hvm</type>
    <kernel>{}</kernel>
    <initrd>{}</initrd>
    <cmdline>{}</cmdline>
  </os>
  <cpu mode='custom'><model>{CPU}</model></cpu>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
    <serial type='file'><source path='/run/serial'/></serial>
  </devices>
</domain>
",
            kernel.display(),
            initrd.display(),
            kernel_arguments(secret, MEMORY)
        )
    }
}

/// What libvirtd reads.
fn write_files(dir: &Path) -> Result<()> {
    let run = dir.join("run");
    fs::create_dir(&run).map_err(Error::io(format!("make {}", run.display())))?;
    let write = |name: &str, text: &str| {
        fs::write(dir.join(name), text).map_err(Error::io(format!("write {name} for libvirtd")))
    };
    for (name, line) in NOBODY {
        write(name, &format!("{}{line}", read(&Path::new("/etc").join(name))?))?;
    }
    write("qemu.conf", QEMU)?;
    // libvirt refuses to migrate to the same host, and knows hosts by this.
    let uuid = read(Path::new("/proc/sys/kernel/random/uuid"))?;
    let host = format!("host_uuid = \"{}\"\nauth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\n", uuid.trim());
    write("libvirtd.conf", &host)
}
