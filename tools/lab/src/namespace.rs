//! Network namespaces as hosts: links, addresses, routes, settings, commands inside.

use crate::command::{Cmd, Finished};
use crate::netns::{self, inside};
use crate::process::Process;
use crate::{Error, Lab, Result, ip, sweep, wait_until};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// For a kernel to notice that a link is up.
const LINK_LIMIT: Duration = Duration::from_secs(60);

/// A namespace of the lab. It is deleted, with every process in it, when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Namespace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    role: String,
    // Keeps the lock and the directory until the namespace is gone.
    lab: Lab,
}

/// The work that the kernel may leave to a (virtual) NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloads {
    /// The kernel's default for a veth: super-segments and missing checksums cross it.
    Default,
    /// Every frame is complete and no longer than the MTU, as on a real wire. Otherwise an AF_XDP
    /// port sees checksums that are not filled in.
    None,
}

impl Namespace {
    pub(crate) fn create(lab: &Lab, role: &str) -> Result<Self> {
        let name = format!("{}{}-{role}", sweep::namespace_prefix(lab.slot()), std::process::id());
        netns::add(&name)?;
        let ns = Self { inner: Arc::new(Inner { name, role: role.into(), lab: lab.clone() }) };
        // Hosts are silent unless the test makes them send: no duplicate address detection, no
        // router solicitations.
        ns.sysctl(&[
            ("net.ipv6.conf.default.accept_dad", "0"),
            ("net.ipv6.conf.default.accept_ra", "0"),
            ("net.ipv6.conf.default.router_solicitations", "0"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
        ])?;
        Ok(ns)
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its role.
    pub fn role(&self) -> &str {
        &self.inner.role
    }

    /// The lab that it belongs to.
    pub fn lab(&self) -> &Lab {
        &self.inner.lab
    }

    /// Path of the namespace, for setns(2).
    pub fn path(&self) -> PathBuf {
        netns::path(self.name())
    }

    /// A command inside.
    pub fn cmd(&self, program: impl AsRef<OsStr>) -> Cmd {
        Cmd::new(program).within(self.name())
    }

    /// Runs a command inside. Fails unless it succeeds.
    pub fn run<S: AsRef<OsStr>>(&self, program: &str, args: impl IntoIterator<Item = S>) -> Result<Finished> {
        self.cmd(program).args(args).run()
    }

    /// Starts a command inside. Its log is `<lab>/<role>-<name>.log`, with a number after a
    /// restart.
    pub fn start(&self, name: &str, cmd: Cmd) -> Result<Process> {
        let log = self.lab().unused(&format!("{}-{name}", self.role()), ".log");
        cmd.within(self.name()).start(&format!("{name} of {}", self.role()), &log)
    }

    /// Runs a function in a separate thread inside the namespace: sockets that it opens stay there.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        inside(self.name(), work)
    }

    /// A counter of its IP stack in `/proc/net/snmp`: `RcvbufErrors` of `Udp`.
    pub fn snmp(&self, protocol: &str, name: &str) -> Result<u64> {
        // What /proc/net leads to is the network of the process, not of the thread.
        const FILE: &str = "/proc/thread-self/net/snmp";
        let shown = self.enter(|| fs::read_to_string(FILE))?.map_err(Error::io(format!("read {FILE}")))?;
        let heading = format!("{protocol}: ");
        let mut rows = shown.lines().filter_map(|line| line.strip_prefix(&heading));
        let (names, values) = (rows.next().unwrap_or_default(), rows.next().unwrap_or_default());
        let mut named = names.split(' ').zip(values.split(' '));
        let found = named.find(|(other, _)| *other == name).and_then(|(_, value)| value.parse().ok());
        found.ok_or_else(|| Error::unexpected(FILE, "that counter", format!("no {protocol} {name}: {shown}")))
    }

    /// Packets that found no room in the queue of a TUN device, because its program read none.
    pub fn tun_overflows(&self) -> Result<u64> {
        let shown = self.ip("-j -s link show type tun")?.stdout;
        let devices: Vec<serde_json::Value> = serde_json::from_str(&shown)
            .map_err(|e| Error::unexpected("ip -j -s link", "JSON", e.to_string()))?;
        Ok(devices.iter().filter_map(|device| device["stats64"]["tx"]["dropped"].as_u64()).sum())
    }

    /// The MAC address of an interface.
    pub fn mac(&self, interface: &str) -> Result<[u8; 6]> {
        let shown = self.ip(&format!("-j link show {interface}"))?.stdout;
        let json: serde_json::Value = serde_json::from_str(&shown)
            .map_err(|e| Error::unexpected("ip -j link", "JSON", e.to_string()))?;
        let text = json[0]["address"].as_str().unwrap_or_default();
        let octets: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
        octets
            .and_then(|octets| octets.try_into().ok())
            .ok_or_else(|| Error::unexpected(format!("ip link show {interface}"), "a MAC address", text))
    }

    /// An end of a pair of veth interfaces, for [`veth`].
    pub fn end<'a>(&'a self, interface: &'a str) -> VethEnd<'a> {
        VethEnd { namespace: self, interface }
    }

    /// Runs `ip` with these words inside.
    pub fn ip(&self, words: &str) -> Result<Finished> {
        // A lab runs dozens of these. `ip -n` would mount a /sys of the namespace each time.
        self.enter(|| Cmd::new("ip").args(words.split_ascii_whitespace()).run())?
    }

    /// Runs `ip` with each of these lines inside, one after another, in one process.
    pub fn ip_each<S: AsRef<str>>(&self, lines: impl IntoIterator<Item = S>) -> Result<()> {
        let text: String = lines.into_iter().map(|line| format!("{}\n", line.as_ref())).collect();
        self.cmd("ip").args(["-batch", "-"]).input(text).run().map(drop)
    }

    /// Writes settings below /proc/sys of this namespace.
    pub fn sysctl(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.enter(|| {
            settings.iter().try_for_each(|(key, value)| {
                let path = setting(key);
                fs::write(&path, value).map_err(Error::io(format!("write {value} to {}", path.display())))
            })
        })?
    }

    /// Enables forwarding of IPv4 and IPv6, without redirects.
    pub fn forward(&self) -> Result<()> {
        self.sysctl(&[
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv4.conf.all.send_redirects", "0"),
            ("net.ipv4.conf.default.send_redirects", "0"),
        ])
    }

    /// Adds an address with its prefix length ("192.0.2.1/24"), usable at once.
    pub fn address(&self, interface: &str, address: &str) -> Result<()> {
        self.ip(&ip::address(interface, address)).map(drop)
    }

    /// Adds a route.
    pub fn route(&self, destination: &str, via: &str) -> Result<()> {
        self.ip(&ip::route(destination, via)).map(drop)
    }

    /// Sets an interface up with this MTU.
    pub fn up(&self, interface: &str, mtu: u16) -> Result<()> {
        self.ip(&ip::up(interface, mtu)).map(drop)
    }

    /// Waits until an interface carries packets, as a port of a bridge too.
    pub fn await_link(&self, interface: &str) -> Result<()> {
        wait_until(&format!("the link of {interface}"), LINK_LIMIT, || {
            let shown = self.ip(&format!("-j -d link show {interface}"))?.stdout;
            let json: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
            let of_bridge = &json[0]["linkinfo"]["info_slave_data"]["state"];
            let carries = json[0]["operstate"] == "UP" && (of_bridge.is_null() || of_bridge == "forwarding");
            Ok(if carries { Ok(()) } else { Err(shown) })
        })
    }

    /// A plain switch: a bridge over `ports`, without addresses, spanning tree, or packet filters
    /// of the IP layer.
    pub fn bridge(&self, name: &str, ports: &[&str], mtu: u16) -> Result<()> {
        let filters =
            ["iptables", "ip6tables", "arptables"].map(|table| format!("net.bridge.bridge-nf-call-{table}"));
        // Without packet filters on bridges there is nothing to disable.
        let there =
            self.enter(|| filters.iter().filter(|filter| setting(filter).exists()).collect::<Vec<_>>())?;
        self.sysctl(&there.into_iter().map(|filter| (filter.as_str(), "0")).collect::<Vec<_>>())?;
        let added = format!("link add {name} type bridge stp_state 0 forward_delay 0 mcast_snooping 0");
        let joined = ports.iter().map(|port| ip::join(port, name));
        self.ip_each([added].into_iter().chain(joined).chain([ip::up(name, mtu)]))
    }

    /// Sets the offloads of an interface.
    pub fn offloads(&self, interface: &str, offloads: Offloads) -> Result<()> {
        match offloads {
            Offloads::Default => Ok(()),
            Offloads::None => self
                .run("ethtool", ["-K", interface, "tx", "off", "tso", "off", "gso", "off", "gro", "off"])
                .map(drop),
        }
    }

    /// A counter of an interface, by its name in /sys/class/net/*/statistics.
    pub fn statistic(&self, interface: &str, name: &str) -> Result<u64> {
        let shown = self.ip(&format!("-j -s link show {interface}"))?.stdout;
        let json: serde_json::Value = serde_json::from_str(&shown)
            .map_err(|e| Error::unexpected("ip -j -s link", "JSON", e.to_string()))?;
        let (direction, key) = name.split_once('_').unwrap_or(("", name));
        json[0]["stats64"][direction][key]
            .as_u64()
            .ok_or_else(|| Error::unexpected("ip -j -s link", format!("counter {name}"), shown))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = sweep::delete_namespace(&self.name) {
            // The next lab sweeps it, but the user should know.
            let _ = writeln!(std::io::stderr(), "namespace {} stays behind: {error}", self.name);
        }
    }
}

/// One end of a pair of veth interfaces.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// The namespace that has the interface.
    pub namespace: &'a Namespace,
    /// The name of the interface.
    pub interface: &'a str,
}

/// Joins two namespaces by a pair of veth interfaces, which are still down.
pub fn veth(one: VethEnd<'_>, other: VethEnd<'_>) -> Result<()> {
    one.namespace.ip(&ip::veth(one.interface, other, 1)).map(drop)
}

/// The file of a setting like `net.ipv4.ip_forward`.
fn setting(key: &str) -> PathBuf {
    Path::new("/proc/sys").join(key.replace('.', "/"))
}

/// Writes a file for a daemon of the lab; it may hold secrets.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let action = || Error::io(format!("write {}", path.display()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(action())?;
    file.write_all(text.as_bytes()).map_err(action())
}
