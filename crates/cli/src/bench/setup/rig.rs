//! The responder: a `testudod` of its own, in a namespace of its own.

use super::SetupError;
use super::initiator::{ESP_PROPOSAL, KEY, MAX, PROPOSAL, PROTECTED, RESPONDER, inner};
use super::usage::{Cpu, memory};
use testudo_lab::namespace::{Namespace, veth};
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{INNER, OUTER};
use testudo_lab::{Lab, Result};

/// A gateway that waits for the swarm.
pub(super) struct Rig {
    daemon: Testudo,
    pub(super) namespace: Namespace,
}

impl Rig {
    pub(super) fn start() -> Result<Self> {
        let namespace = Lab::new("bench")?.namespace("gw")?;
        // The gateway wants ports; what the swarm sends goes over the loopback.
        veth((&namespace, OUTER), (&namespace, INNER))?;
        for port in [OUTER, INNER] {
            namespace.up(port, 1500)?;
        }
        let daemon = Testudo::start_with(&namespace, &limits())?;
        daemon.swanctl().load(&connections())?;
        Ok(Self { daemon, namespace })
    }

    fn pid(&mut self) -> u32 {
        self.daemon.process().pid()
    }

    /// Processor time that the daemon has used.
    pub(super) fn cpu(&mut self) -> std::result::Result<Cpu, SetupError> {
        Cpu::of(self.pid())
    }

    /// Octets that it has taken.
    pub(super) fn memory(&mut self) -> std::result::Result<u64, SetupError> {
        memory(self.pid())
    }

    /// IKE SAs that it says it has.
    pub(super) fn tunnels(&self) -> Result<u64> {
        let stats = self.daemon.swanctl().run(["--stats"])?.stdout;
        let line = stats.lines().find_map(|line| line.trim().strip_prefix("IKE_SAs: "));
        let count = line.and_then(|rest| rest.split(' ').next()).and_then(|count| count.parse().ok());
        count.ok_or_else(|| testudo_lab::Error::unexpected("swanctl --stats", "a line IKE_SAs", stats))
    }
}

/// For `testudo.toml`: handshakes in any number are what is wanted, not a flood to be fended off.
pub(super) fn limits() -> String {
    format!("\n[ike]\ncookie_threshold = {0}\nhalf_open_limit = {0}\nhalf_open_per_source = {0}\n", 1 << 20)
}

/// One connection for everybody, as for remote access.
pub(super) fn connections() -> String {
    format!(
        "connections {{
    swarm {{
        version = 2
        local_addrs = {RESPONDER}
        proposals = {PROPOSAL}
        local {{
            auth = psk
            id = gateway.bench
        }}
        remote {{
            auth = psk
        }}
        children {{
            net {{
                local_ts = {PROTECTED}
                remote_ts = {first}-{last}
                esp_proposals = {ESP_PROPOSAL}
                replay_window = 128
            }}
        }}
    }}
}}
secrets {{
    ike-swarm {{
        secret = \"{KEY}\"
    }}
}}
",
        first = inner(0),
        last = inner(MAX - 1),
    )
}
