//! Packet capture in the untrusted network, cheap enough for full speed.

mod esp;

pub use esp::EspPacket;

use crate::command::Cmd;
use crate::count::MIRROR;
use crate::process::Process;
use crate::topology::{Family, Side, WIRE_PORTS};
use crate::{Error, Namespace, Result, wait_until};
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Time for tcpdump to read the last packets before it is stopped.
const SETTLE: Duration = Duration::from_millis(200);

/// A running capture of the packets that the gateways send.
#[derive(Debug)]
pub struct Capture {
    taps: Vec<(Process, PathBuf)>,
}

/// A finished capture.
#[derive(Clone, Debug)]
pub struct Captured {
    /// Packets that matched and were written.
    pub packets: u64,
    /// Packets that matched but were lost by the capture: then its result is worthless.
    pub lost: u64,
    files: Vec<PathBuf>,
}

impl Capture {
    /// Captures clear text only: everything but IKE and ESP between the gateways, ARP, neighbour
    /// discovery, and multicast listener reports. It may run all the time, because ESP does not
    /// reach it at any rate.
    pub fn clear_text(wire: &Namespace) -> Result<Self> {
        Self::start(wire, &[MIRROR], "clear", &[], &format!("not ({})", harmless()))
    }

    /// Captures NAT keepalives (RFC 3948 §2.3): one octet 0xFF in UDP over IPv4.
    pub fn keepalives(wire: &Namespace) -> Result<Self> {
        Self::start(wire, &WIRE_PORTS, "keepalives", &[], "udp port 4500 and udp[4:2] = 9 and udp[8] = 0xff")
    }

    /// Captures all packets whole, up to this number from each gateway; after that it costs
    /// nothing.
    pub fn everything(wire: &Namespace, packets: u32) -> Result<Self> {
        Self::start(wire, &WIRE_PORTS, "all", &["-c", &packets.to_string()], "")
    }

    /// The same without a limit, and with room for 128 MiB that wait for tcpdump.
    pub fn everything_fast(wire: &Namespace) -> Result<Self> {
        Self::start(wire, &WIRE_PORTS, "all", &["-B", "131072"], "")
    }

    /// Captures this many packets of ESP that arrive at one interface, whole.
    pub fn esp(wire: &Namespace, interface: &str, packets: u32) -> Result<Self> {
        Self::first(wire, interface, "esp", "ip proto 50", packets)
    }

    /// Captures so many packets that arrive at one interface and match a filter (pcap-filter(7)),
    /// whole.
    pub fn first(
        namespace: &Namespace,
        interface: &str,
        name: &str,
        filter: &str,
        packets: u32,
    ) -> Result<Self> {
        Self::start(namespace, &[interface], name, &["-c", &packets.to_string()], filter)
    }

    /// Captures the ESP packets that arrive at these interfaces, plain or in UDP over IPv4: this
    /// many octets of each, from the Ethernet header on, or all for 0. There is room for 32 MiB
    /// that wait for a tcpdump without a processor.
    pub fn all_esp(wire: &Namespace, interfaces: &[&str], octets: u16) -> Result<Self> {
        let filter = "ip proto 50 or (udp port 4500 and udp[8:4] != 0)";
        Self::start(wire, interfaces, "all-esp", &["-B", "32768", "-s", &octets.to_string()], filter)
    }

    fn start(
        wire: &Namespace,
        interfaces: &[&str],
        name: &str,
        options: &[&str],
        filter: &str,
    ) -> Result<Self> {
        let mut taps = Vec::new();
        for port in interfaces {
            // AppArmor lets tcpdump write files of this suffix only.
            let file = wire.lab().unused(&format!("{name}-{port}"), ".pcap");
            let title = format!("tcpdump-{}", file.file_stem().unwrap_or_default().display());
            let mut cmd = wire.cmd("tcpdump").args(["-i", port, "-Q", "in", "-n", "-U", "--immediate-mode"]);
            cmd = cmd.args(["-Z", "root", "-B", "4096", "-w"]).arg(&file).args(options);
            let mut tap = wire.start(&title, if filter.is_empty() { cmd } else { cmd.arg(filter) })?;
            tap.wait_log("listening on", START_LIMIT)?;
            taps.push((tap, file));
        }
        Ok(Self { taps })
    }

    /// Waits until that many packets have been captured.
    pub fn await_packets(&self, packets: usize, limit: Duration) -> Result<()> {
        wait_until(&format!("{packets} packets"), limit, || {
            let mut found = 0;
            for (_, file) in &self.taps {
                let octets = fs::read(file).map_err(Error::io(format!("read {}", file.display())))?;
                found += written(&octets).len();
            }
            Ok(if found >= packets { Ok(()) } else { Err(format!("{found}")) })
        })
    }

    /// Ends it.
    pub fn stop(self) -> Result<Captured> {
        sleep(SETTLE);
        let mut captured = Captured { packets: 0, lost: 0, files: Vec::new() };
        for (mut tap, file) in self.taps {
            tap.stop(STOP_LIMIT)?;
            let log = tap.log()?;
            captured.packets += summary(&log, "captured")?;
            captured.lost += summary(&log, "dropped by kernel")?;
            captured.files.push(file);
        }
        Ok(captured)
    }
}

impl Captured {
    /// The first packets of each gateway, one per line, sorted by time.
    pub fn show(&self, packets: u32) -> Result<String> {
        let count = packets.to_string();
        let mut lines = Vec::new();
        for file in &self.files {
            let shown = Cmd::new("tcpdump").args(["-nn", "-tt", "-c", &count, "-r"]).arg(file).run()?.stdout;
            lines.extend(shown.lines().map(str::to_owned));
        }
        // Each line begins with the seconds since 1970, which have the same number of digits for
        // the next centuries.
        lines.sort();
        Ok(lines.join("\n"))
    }

    /// The packets, with their Ethernet headers.
    pub fn frames(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.frames_by_interface()?.concat())
    }

    /// The same, of each interface.
    pub fn frames_by_interface(&self) -> Result<Vec<Vec<Vec<u8>>>> {
        let of = |file: &PathBuf| {
            let octets = fs::read(file).map_err(Error::io(format!("read {}", file.display())))?;
            Ok(written(&octets).into_iter().map(<[u8]>::to_vec).collect())
        };
        self.files.iter().map(of).collect()
    }

    /// Whether the capture contains these octets.
    pub fn contains(&self, needle: &[u8]) -> Result<bool> {
        for file in &self.files {
            let bytes = fs::read(file).map_err(Error::io(format!("read {}", file.display())))?;
            if memchr::memmem::find(&bytes, needle).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A pcap filter (pcap-filter(7)) for the packets allowed on the untrusted network.
fn harmless() -> String {
    let mut allowed = vec!["arp".to_owned(), neighbour_discovery().to_owned()];
    for (family, word) in [(Family::V4, "ip"), (Family::V6, "ip6")] {
        let (one, two) = (Side::One.outer(family), Side::Two.outer(family));
        allowed.push(format!(
            "({word} src {one} or {word} src {two}) and ({word} dst {one} or {word} dst {two}) \
             and ({word} proto 50 or ({word} proto 17 and (port 500 or port 4500)))"
        ));
    }
    allowed.iter().map(|part| format!("({part})")).collect::<Vec<_>>().join(" or ")
}

/// ICMPv6 types 133 to 136 (RFC 4861), and MLD (RFC 3810) after its hop-by-hop header.
fn neighbour_discovery() -> &'static str {
    "(icmp6 and ip6[40] >= 133 and ip6[40] <= 136) or (ip6[6] = 0 and ip6[40] = 58 and (ip6[48] = 143 or \
     (ip6[48] >= 130 and ip6[48] <= 132)))"
}

/// The whole packets in a file that tcpdump may still write: 24 octets, then for each packet 16,
/// whose octets 8 to 11 are its length in the host's order (pcap-savefile(5)).
pub fn written(file: &[u8]) -> Vec<&[u8]> {
    let mut rest = file.get(24..).unwrap_or_default();
    let mut packets = Vec::new();
    while let Some(length) = rest.get(8..12).and_then(|length| length.try_into().ok()) {
        let length = u32::from_ne_bytes(length) as usize;
        let Some((packet, behind)) = rest.get(16..).and_then(|rest| rest.split_at_checked(length)) else {
            break;
        };
        packets.push(packet);
        rest = behind;
    }
    packets
}

fn summary(log: &str, label: &str) -> Result<u64> {
    log.lines()
        .find(|line| line.ends_with(label) && line.contains(" packet"))
        .and_then(|line| line.split_ascii_whitespace().next()?.parse().ok())
        .ok_or_else(|| Error::unexpected("tcpdump's summary", format!("packets {label}"), log))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_packets_are_read_while_the_file_grows() {
        let record = |octets: &[u8]| {
            let length = (octets.len() as u32).to_ne_bytes();
            [&[0; 8][..], &length, &length, octets].concat()
        };
        let file = [vec![0; 24], record(&[1, 2, 3]), record(&[4])].concat();
        assert_eq!(written(&file), [&[1, 2, 3][..], &[4]]);
        for cut in 24..file.len() {
            let expected = usize::from(cut >= 24 + 16 + 3);
            assert_eq!(written(&file[..cut]).len(), expected, "{cut}");
        }
        assert!(written(&[]).is_empty());
    }
}
