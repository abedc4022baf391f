//! A gateway on a network in virtual time.

use super::allocator::{InUse, Watched};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use testudo_base::spi::SenderId;
use testudo_ike::config::{Connection, Pool, SharedSecret};
use testudo_ike::delta::Delta;
use testudo_ike::endpoint::{Endpoint, EndpointConfig, IkeSaStatus, Job};
use testudo_ike::output::{ChildSaId, CommitId, Event, IkeSaId, LogLevel, Path, Reason, Time};
use testudo_ipsec::sa::ChildSaParams;

/// A gateway: its endpoint, and what a data plane and an operator would have seen.
pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    pub(crate) addr: IpAddr,
    /// The ESP SPIs that the endpoint holds.
    pub(crate) in_use: InUse,
    /// The present state of the data plane.
    pub(crate) installed: BTreeMap<ChildSaId, ChildSaParams>,
    /// Virtual addresses that it has now, and the IKE SAs that brought them.
    pub(crate) virtual_ips: BTreeSet<(IpAddr, IkeSaId)>,
    /// Those of them that it sends through.
    pub(crate) sending: BTreeSet<ChildSaId>,
    /// Those through which one worker alone sends, and which.
    pub(crate) bound: BTreeMap<ChildSaId, u16>,
    /// Every message sent, in order.
    pub(crate) sent: Vec<(Path, Vec<u8>)>,
    /// Every message that reached it, in order.
    pub(crate) received: Vec<Vec<u8>>,
    pub(crate) events: Vec<Event>,
    pub(crate) keepalives: usize,
    /// How many sequence numbers were to be left out, and of which.
    pub(crate) skipped: Vec<(ChildSaId, u64)>,
    /// A stopped host neither receives nor sends.
    pub(crate) stopped: bool,
    /// Jobs that are being run, if its endpoint hands them out, and when each is done.
    pub(super) jobs: BTreeMap<(Time, u64), Job>,
    config: EndpointConfig,
    connections: Vec<Connection>,
    pools: Vec<Pool>,
    secrets: Vec<SharedSecret>,
    sender: u16,
    seed: u64,
    pub(super) last_commit: CommitId,
    /// The updates of each IKE SA that other nodes have received.
    told: BTreeMap<IkeSaId, (Time, Vec<u8>)>,
}

fn endpoint(config: &EndpointConfig, seed: u64, sender: u16) -> (Endpoint, InUse) {
    let (alloc, in_use) = Watched::new(seed, SenderId(sender));
    (Endpoint::new(config.clone(), Box::new(alloc)), in_use)
}

impl Host {
    pub(super) fn new(addr: IpAddr, config: EndpointConfig, seed: u64, sender: u16) -> Self {
        let (endpoint, in_use) = endpoint(&config, seed, sender);
        Self {
            endpoint,
            in_use,
            addr,
            installed: BTreeMap::new(),
            virtual_ips: BTreeSet::new(),
            sending: BTreeSet::new(),
            bound: BTreeMap::new(),
            sent: Vec::new(),
            received: Vec::new(),
            events: Vec::new(),
            keepalives: 0,
            skipped: Vec::new(),
            stopped: false,
            jobs: BTreeMap::new(),
            config,
            connections: Vec::new(),
            pools: Vec::new(),
            secrets: Vec::new(),
            sender,
            seed,
            last_commit: CommitId(0),
            told: BTreeMap::new(),
        }
    }

    /// Takes a connection and keeps it for a successor.
    pub(crate) fn load(&mut self, now: Time, connection: Connection) {
        self.endpoint.load_connection(now, connection.clone()).unwrap();
        self.connections.retain(|other| other.name != connection.name);
        self.connections.push(connection);
    }

    pub(crate) fn load_pool(&mut self, pool: Pool) {
        self.endpoint.load_pool(pool.clone()).unwrap();
        self.pools.retain(|other| other.name != pool.name);
        self.pools.push(pool);
    }

    pub(crate) fn load_secret(&mut self, secret: SharedSecret) {
        self.endpoint.load_secret(secret.clone());
        self.keep_secret(secret);
    }

    /// Only a successor gets it.
    pub(crate) fn keep_secret(&mut self, secret: SharedSecret) {
        self.secrets.retain(|other| other.name != secret.name);
        self.secrets.push(secret);
    }

    /// Another node takes everything over: a new endpoint with another sender ID gets the states
    /// and no more.
    pub(crate) fn take_over(&mut self, now: Time) {
        self.sender += 1;
        self.seed += 1;
        let (mut successor, in_use) = endpoint(&self.config, self.seed, self.sender);
        std::mem::swap(successor.credentials_mut(), self.endpoint.credentials_mut());
        successor.set_unix_time(now, self.endpoint.unix_time(now));
        for connection in &self.connections {
            successor.load_connection(now, connection.clone()).unwrap();
        }
        for secret in &self.secrets {
            successor.load_secret(secret.clone());
        }
        for pool in &self.pools {
            successor.load_pool(pool.clone()).unwrap();
        }
        let ids: Vec<IkeSaId> = self.endpoint.states().map(|(id, _)| id).collect();
        for id in ids {
            let state = self.endpoint.export_sa(now, id).unwrap();
            assert_eq!(successor.import_sa(now, &state), Ok(id));
            assert_eq!(successor.export_sa(now, id).map(|s| s.len()), Some(state.len()));
        }
        let listed = |endpoint: &Endpoint| endpoint.sas().collect::<Vec<IkeSaStatus>>();
        assert_eq!(listed(&successor), listed(&self.endpoint));
        // A running computation is lost.
        self.jobs.clear();
        if self.endpoint.jobs_out() == 0 {
            assert_eq!(successor.half_open(), self.endpoint.half_open());
        }
        assert_eq!(*in_use.lock().unwrap(), *self.in_use.lock().unwrap());
        self.endpoint = successor;
        // It knows of no change but those of the states.
        self.last_commit = self.endpoint.states().map(|(_, commit)| commit).max().unwrap_or(CommitId(0));
        self.in_use = in_use;
    }

    /// Every state goes through its octets.
    pub(super) fn restore(&mut self, now: Time) {
        let ids: Vec<IkeSaId> = self.endpoint.states().map(|(id, _)| id).collect();
        for id in ids {
            let state = self.endpoint.export_sa(now, id).expect("every state serialises");
            let before = self.endpoint.next_timeout();
            let (told, from_changes) = self.told(now, id, &state);
            assert_eq!(self.endpoint.import_sa(told, &from_changes), Ok(id));
            assert_eq!(self.endpoint.export_sa(now, id), Some(state), "a restored state is the same");
            assert_eq!(self.endpoint.next_timeout(), before, "and so are its deadlines");
        }
    }

    /// The state as another node has it that was told everything once, for that moment, and since
    /// then what has changed.
    fn told(&mut self, now: Time, id: IkeSaId, state: &[u8]) -> (Time, Vec<u8>) {
        let (told, octets) = self.told.entry(id).or_insert_with(|| (now, state.to_vec()));
        let result = self.endpoint.export_sa(*told, id).expect("for any moment");
        let delta = Delta::between(octets, &result);
        *octets = delta.apply(octets).expect("it is for these").to_vec();
        assert_eq!(*octets, **result, "what has changed leads from one state to the next");
        assert!(delta.size() <= result.len() + 40, "{delta:?}, and all is {} octets", result.len());
        (*told, octets.clone())
    }

    /// The virtual addresses that it has now, from any IKE SA.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let addrs: BTreeSet<IpAddr> = self.virtual_ips.iter().map(|(addr, _)| *addr).collect();
        addrs.into_iter().collect()
    }

    pub(crate) fn sas(&self) -> Vec<IkeSaStatus> {
        self.endpoint.sas().collect()
    }

    /// The log lines so far.
    pub(crate) fn log(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::Log { message, .. } => Some(message.as_str()),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn logged(&self, part: &str) -> bool {
        self.log().iter().any(|line| line.contains(part))
    }

    /// The same of lines that wake an operator up.
    pub(crate) fn warned(&self, part: &str) -> bool {
        self.events.iter().any(|event| match event {
            Event::Log { level, message, .. } => *level <= LogLevel::Warning && message.contains(part),
            _ => false,
        })
    }

    /// Results of initiations so far.
    pub(crate) fn results(&self) -> Vec<Result<ChildSaId, Reason>> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::InitiateDone { result, .. } => Some(result.clone()),
                _ => None,
            })
            .collect()
    }
}
