//! `testudo-counters`, a command that strongSwan does not have: the counters of the data plane.
//!
//! ```text
//! {} => {
//!     totals = { <counter> = <n> ... }
//!     drops = { <reason> = <n> ... }
//!     ike = { <counter> = <n> ... }
//!     alarms = { <kind> = <alarms raised> ... }
//!     ports = {
//!         <interface> = {
//!             kind = <xdp or tun>
//!             rx-packets = <n>  rx-bytes = <n>  tx-packets = <n>  tx-bytes = <n>
//!             drops = { <reason> = <n> ... }
//!             status = { <state of the port: see [`PortStatus`]> }
//!         }
//!     }
//!     workers = {
//!         <number> = {
//!             cpu = <processor, if pinned>
//!             cipher = <library>
//!             bursts = <n>  packets = <n>
//!             drops = { <reason> = <n> ... }
//!         }
//!     }
//! inherited = [ <protected prefixes of an earlier process that no connection has claimed yet> ] }
//! ```

mod ports;

use crate::Error;
pub use crate::answer::Named;
use crate::answer::{answer_error, as_map, named, number, read_named, section, text};
use crate::message::Message;
pub use ports::PortStatus;
use serde::Serialize;

/// The content of the answer to `testudo-counters`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Totals of the data plane: packets and octets protected, opened, bypassed, ...
    #[serde(serialize_with = "as_map")]
    pub totals: Named,
    /// Packets dropped by reason, in total.
    #[serde(serialize_with = "as_map")]
    pub drops: Named,
    /// Counters of the key exchange: messages, failures, discards by reason.
    #[serde(serialize_with = "as_map")]
    pub ike: Named,
    /// Alarms raised, by kind.
    #[serde(serialize_with = "as_map")]
    pub alarms: Named,
    /// Counters of each port.
    pub ports: Vec<PortCounters>,
    /// Counters of each worker.
    pub workers: Vec<WorkerCounters>,
    /// Protected prefixes of an earlier process: their traffic is dropped until a connection claims
    /// them.
    pub inherited: Vec<String>,
}

/// Counters of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortCounters {
    /// Interface.
    pub name: String,
    /// `xdp` or `tun`.
    pub kind: String,
    /// Packets received.
    pub rx_packets: u64,
    /// Octets received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Octets sent.
    pub tx_bytes: u64,
    /// Packets lost at the port, by reason.
    #[serde(serialize_with = "as_map")]
    pub drops: Named,
    /// State of the port.
    #[serde(flatten)]
    pub status: PortStatus,
}

/// Counters of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerCounters {
    /// Number of the worker.
    pub index: u32,
    /// Processor that it is pinned to.
    pub cpu: Option<u32>,
    /// Cipher library.
    pub cipher: String,
    /// Bursts processed.
    pub bursts: u64,
    /// Packets processed.
    pub packets: u64,
    /// Packets dropped by reason.
    #[serde(serialize_with = "as_map")]
    pub drops: Named,
}

impl Counters {
    /// The answer to `testudo-counters`.
    pub fn to_message(&self) -> Message {
        let mut ports = Message::new();
        for port in &self.ports {
            ports.add_section(&port.name, port.to_message());
        }
        let mut workers = Message::new();
        for worker in &self.workers {
            workers.add_section(&worker.index.to_string(), worker.to_message());
        }
        Message::new()
            .with_section("totals", named(&self.totals))
            .with_section("drops", named(&self.drops))
            .with_section("ike", named(&self.ike))
            .with_section("alarms", named(&self.alarms))
            .with_section("ports", ports)
            .with_section("workers", workers)
            .with_list("inherited", self.inherited.iter().map(String::as_str))
    }

    /// Reads the answer to `testudo-counters`.
    pub fn from_message(message: &Message) -> Result<Self, Error> {
        let mut counters = Self {
            totals: read_named(message, "totals")?,
            drops: read_named(message, "drops")?,
            ike: read_named(message, "ike")?,
            alarms: read_named(message, "alarms")?,
            inherited: message.texts("inherited").map(str::to_owned).collect(),
            ..Self::default()
        };
        for (name, port) in section(message, "ports")?.sections() {
            counters.ports.push(PortCounters::from_message(name, port)?);
        }
        for (index, worker) in section(message, "workers")?.sections() {
            counters.workers.push(WorkerCounters::from_message(index, worker)?);
        }
        Ok(counters)
    }
}

impl PortCounters {
    fn to_message(&self) -> Message {
        let mut message = Message::new().with("kind", self.kind.as_str());
        message.add_text("rx-packets", self.rx_packets);
        message.add_text("rx-bytes", self.rx_bytes);
        message.add_text("tx-packets", self.tx_packets);
        message.add_text("tx-bytes", self.tx_bytes);
        message.with_section("drops", named(&self.drops)).with_section("status", self.status.to_message())
    }

    fn from_message(name: &str, message: &Message) -> Result<Self, Error> {
        Ok(Self {
            name: name.to_owned(),
            kind: text(message, "kind")?.to_owned(),
            rx_packets: number(message, "rx-packets")?,
            rx_bytes: number(message, "rx-bytes")?,
            tx_packets: number(message, "tx-packets")?,
            tx_bytes: number(message, "tx-bytes")?,
            drops: read_named(message, "drops")?,
            status: PortStatus::from_message(section(message, "status")?)?,
        })
    }
}

impl WorkerCounters {
    fn to_message(&self) -> Message {
        let mut message = Message::new();
        if let Some(cpu) = self.cpu {
            message.add_text("cpu", cpu);
        }
        message.add("cipher", self.cipher.as_str());
        message.add_text("bursts", self.bursts);
        message.add_text("packets", self.packets);
        message.with_section("drops", named(&self.drops))
    }

    fn from_message(index: &str, message: &Message) -> Result<Self, Error> {
        let bad = |key: &str, found: &str| answer_error(key, found, "a number");
        let cpu = message.text("cpu");
        Ok(Self {
            index: index.parse().map_err(|_| bad("workers", index))?,
            cpu: cpu.map(|cpu| cpu.parse().map_err(|_| bad("cpu", cpu))).transpose()?,
            cipher: text(message, "cipher")?.to_owned(),
            bursts: number(message, "bursts")?,
            packets: number(message, "packets")?,
            drops: read_named(message, "drops")?,
        })
    }
}
