//! The responder: a `testudod` in its own namespace.

use super::initiator::{ESP_PROPOSAL, MAX, PROPOSAL, PROTECTED, Place, host, inner, key};
use super::shape::Shape;
use super::usage::{Cpu, memory};
use crate::error::BenchError;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use testudo_lab::namespace::{Namespace, veth};
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{INNER, OUTER};
use testudo_lab::{Lab, Result};
use testudo_vici::client::Client;
use testudo_vici::counters::Counters;
use testudo_vici::message::Message;

/// A gateway for the swarm.
pub(super) struct Rig {
    daemon: Testudo,
    pub(super) namespace: Namespace,
    /// How long loading the connections took.
    pub(super) loading: Duration,
}

/// Limit for loading very many connections, and for the worker to have all SAs.
const LOAD_LIMIT: Duration = Duration::from_secs(600);
const WORKER_LIMIT: Duration = Duration::from_secs(10);

/// The SAs of the daemon.
pub(super) struct Found {
    /// IKE SAs, as the control thread reports.
    pub(super) ike: u64,
    /// Child SAs, as the worker reports: those in the direction that has fewer.
    pub(super) children: u64,
}

impl Rig {
    /// Starts it, and loads the configuration for that many peers.
    pub(super) fn start(shape: Shape, peers: u32) -> Result<Self> {
        let namespace = Lab::new("bench")?.namespace("gw")?;
        // The gateway needs ports, but the swarm uses the loopback interface.
        veth(namespace.end(OUTER), namespace.end(INNER))?;
        for port in [OUTER, INNER] {
            namespace.up(port, 1500)?;
        }
        let daemon = Testudo::start_with(&namespace, &limits())?;
        let swanctl = daemon.swanctl();
        swanctl.write_conf(&connections(shape, peers, &Place::LOOPBACK))?;
        let begun = Instant::now();
        swanctl.cmd(["--load-all", "--noprompt"]).limit(LOAD_LIMIT).run()?;
        Ok(Self { daemon, namespace, loading: begun.elapsed() })
    }

    fn pid(&mut self) -> u32 {
        self.daemon.process().pid()
    }

    /// Processor time that the daemon has used.
    pub(super) fn cpu(&mut self) -> std::result::Result<Cpu, BenchError> {
        Cpu::of(self.pid())
    }

    /// Octets of memory that it has allocated.
    pub(super) fn memory(&mut self) -> std::result::Result<u64, BenchError> {
        memory(self.pid())
    }

    /// Its SAs, as soon as the worker has the expected number of Child SAs, or after a timeout.
    pub(super) fn found(&self, expected: u64) -> std::result::Result<Found, BenchError> {
        let mut client = self.client().map_err(BenchError::Vici)?;
        let begun = Instant::now();
        loop {
            let found = Found::ask(&mut client).map_err(BenchError::Vici)?;
            if found.children >= expected || begun.elapsed() > WORKER_LIMIT {
                return Ok(found);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn client(&self) -> std::result::Result<Client, testudo_vici::Error> {
        let stream = UnixStream::connect(self.daemon.socket())?;
        stream.set_read_timeout(Some(WORKER_LIMIT))?;
        Ok(Client::over(stream))
    }
}

impl Found {
    fn ask(client: &mut Client) -> std::result::Result<Self, testudo_vici::Error> {
        let stats = client.request("stats", Message::new())?;
        let ike = stats.section("ikesas").and_then(|section| section.text("total")?.parse().ok());
        let counters = Counters::from_message(&client.request("testudo-counters", Message::new())?)?;
        let of = |name: &str| counters.totals.iter().find(|(n, _)| n == name).map_or(0, |(_, count)| *count);
        Ok(Self { ike: ike.unwrap_or_default(), children: of("inbound_sas").min(of("outbound_sas")) })
    }
}

/// For `testudo.toml`: any number of handshakes is intended, and must not be treated as a flood.
pub(crate) fn limits() -> String {
    let many = 1 << 20;
    format!(
        "\n[ike]\ncookie_threshold = {many}\nhalf_open_limit = {many}\nhalf_open_per_source = {many}\n\
         half_open_per_network = {many}\nike_sas_per_peer = 0\n"
    )
}

/// For `swanctl.conf`: the configuration for that many peers.
pub(crate) fn connections(shape: Shape, peers: u32, place: &Place) -> String {
    let (first, last) = (inner(0), inner(MAX - 1));
    let responder = place.responder;
    let one = |name: &str, remote: &str, id: &str, hosts: &str| {
        format!(
            "connections {{
    {name} {{
        version = 2
        local_addrs = {responder}
        {remote}
        proposals = {PROPOSAL}
        local {{
            auth = psk
            id = gateway.bench
        }}
        remote {{
            auth = psk
            {id}
        }}
        children {{
            {name} {{
                local_ts = {PROTECTED}
                remote_ts = {hosts}
                esp_proposals = {ESP_PROPOSAL}
                replay_window = 128
            }}
        }}
    }}
}}
"
        )
    };
    let secret = |name: &str, id: &str, key: &str| {
        format!("secrets {{\n    ike-{name} {{\n        {id}\n        secret = \"{key}\"\n    }}\n}}\n")
    };
    match shape {
        Shape::OneForAll => {
            one("swarm", "", "", &format!("{first}-{last}")) + &secret("swarm", "", &key(shape, 0))
        }
        Shape::Each => (0..peers)
            .map(|number| {
                let (name, id) = (format!("peer{number}"), format!("id = {}", host(number)));
                let remote = format!("remote_addrs = {}", place.address(number));
                let hosts = inner(number).to_string();
                one(&name, &remote, &id, &hosts) + &secret(&name, &id, &key(shape, number))
            })
            .collect(),
    }
}
