use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use testudo_base::spi::Spi;
use testudo_ike::cert::Credentials;
use testudo_ike::config::{Connection, Identity, Pool, SharedSecret};
use testudo_ike::endpoint::{
    AlgorithmName, ChildSaState, ChildSaStatus, Exchanges, IkeSaState, IkeSaStatus, LeaseStatus, NatStatus,
    PoolStatus,
};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{ChildSaId, CommitId, IkeSaId, Time};
use testudo_ipsec::sa::Mode;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_vici::CommandError;
use testudo_vici::alarms::AlarmPage;
use testudo_vici::children::ChildReport;
use testudo_vici::cluster::ClusterReport;
use testudo_vici::control::{
    ChangeNodes, ConfigChange, ConfigItem, Control, Drain, Initiate, JobId, LoadedBy, Rekey, Selection,
    SetPolicy, Stats, Terminate, Version,
};
use testudo_vici::counters::{Counters, PortCounters, PortStatus, WorkerCounters};
use testudo_vici::processors::Processors;
use testudo_vici::schema::Policy;
use testudo_vici::shut::{Release, Released, ShutPage};
use testudo_vici::view::{ChildUsage, Usage};
use zeroize::Zeroizing;

/// The script's handling of commands that take time: they wait here until the test or its server
/// ends them.
#[derive(Default)]
pub(crate) struct Gateway {
    pub(crate) connections: Vec<Connection>,
    /// Connections, and what there was to say about them.
    pub(crate) warnings: Vec<(Option<String>, String)>,
    pub(crate) secrets: Vec<SharedSecret>,
    pub(crate) credentials: Credentials,
    pub(crate) pools: Vec<Pool>,
    /// By number.
    pub(crate) sas: Vec<IkeSaStatus>,
    /// Of connections.
    pub(crate) children: Vec<ChildReport>,
    pub(crate) initiations: Vec<(JobId, Initiate)>,
    pub(crate) terminations: Vec<(JobId, Terminate)>,
    pub(crate) rekeyings: Vec<Rekey>,
    pub(crate) drains: Vec<Drain>,
    pub(crate) changes: Vec<ChangeNodes>,
    pub(crate) path_mtus: Vec<(IpAddr, u16, String)>,
    /// Sources that were let in again, and for whom.
    pub(crate) accepted: Vec<(IpAddr, Option<String>)>,
    /// The shut prefixes, the requests about them, and the released ones.
    pub(crate) shut: ShutPage,
    pub(crate) pages: RefCell<Vec<Option<AddrRange>>>,
    pub(crate) releases: Vec<Release>,
    /// Commands that other nodes were to be told of, and whether there are any.
    pub(crate) policies: Vec<SetPolicy>,
    pub(crate) reloads: u32,
    pub(crate) replicated: Vec<(JobId, ConfigChange, Vec<u8>)>,
    pub(crate) replicates: bool,
    /// Which node of a cluster has all SAs.
    pub(crate) node: Option<u32>,
    pub(crate) exchanges: Exchanges,
    /// If it does not stand alone.
    pub(crate) cluster: Option<ClusterReport>,
    /// The refused commands.
    pub(crate) refusals: Vec<String>,
    /// How often somebody asked for all that is known of an IKE SA.
    pub(crate) asked: Cell<usize>,
}

impl Gateway {
    fn matches(&self, wanted: &Selection) -> u32 {
        let sas = self.sas.iter().filter(|sa| wanted.takes_ike(sa.id, sa.connection.as_deref()));
        if !wanted.is_of_children() {
            return sas.count() as u32;
        }
        let children = sas.flat_map(|sa| &sa.children);
        children.filter(|child| wanted.takes_child(child.id, &child.name)).count() as u32
    }
}

impl Control for Gateway {
    fn command_refused(&mut self, command: &str, why: &str) {
        self.refusals.push(format!("{command}: {why}"));
    }

    fn policy(&self) -> Policy {
        Policy::Modern
    }

    fn load_connection(&mut self, connection: Connection) -> Result<(), CommandError> {
        if connection.name == "full" {
            return Err(CommandError::new("connections.full: no room for one more connection"));
        }
        self.connections.retain(|other| other.name != connection.name);
        self.connections.push(connection);
        Ok(())
    }

    fn warn(&mut self, connection: Option<&str>, message: String) {
        self.warnings.push((connection.map(str::to_owned), message));
    }

    fn unload_connection(&mut self, name: &str) -> Result<(), CommandError> {
        self.connections.retain(|other| other.name != name);
        Ok(())
    }

    fn connection_names(&self) -> Vec<String> {
        self.connections.iter().map(|connection| connection.name.clone()).collect()
    }

    fn connection(&self, name: &str) -> Option<&Connection> {
        self.connections.iter().find(|connection| connection.name == name)
    }

    fn load_secret(&mut self, secret: SharedSecret) -> Result<(), CommandError> {
        self.unload_secret(&secret.name);
        self.secrets.push(secret);
        Ok(())
    }

    fn unload_secret(&mut self, name: &str) {
        self.secrets.retain(|other| other.name != name);
    }

    fn secret_names(&self) -> Vec<String> {
        self.secrets.iter().map(|secret| secret.name.clone()).collect()
    }

    fn clear_secrets(&mut self) {
        self.secrets.clear();
    }

    fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    fn credentials_mut(&mut self) -> &mut Credentials {
        &mut self.credentials
    }

    fn load_pool(&mut self, pool: Pool) -> Result<(), CommandError> {
        self.pools.retain(|other| other.name != pool.name);
        self.pools.push(pool);
        Ok(())
    }

    fn unload_pool(&mut self, name: &str) -> Result<(), CommandError> {
        if name == "busy" {
            return Err(CommandError::new(
                "pool busy has 1 online leases, and cannot be replaced or unloaded",
            ));
        }
        self.pools.retain(|other| other.name != name);
        Ok(())
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let status = |pool: &Pool| PoolStatus {
            name: pool.name.clone(),
            base: pool.base,
            size: 254,
            online: 1,
            offline: 1,
        };
        self.pools.iter().map(status).collect()
    }

    fn leases(&self, pool: &str) -> Vec<LeaseStatus> {
        let lease = |addr: &str, name: &str, online| LeaseStatus {
            addr: addr.parse().unwrap(),
            identity: Identity::Fqdn(name.to_owned()),
            online,
        };
        if pool == "road" {
            vec![lease("10.3.0.1", "carol", true), lease("10.3.0.2", "dave", false)]
        } else {
            Vec::new()
        }
    }

    fn initiate(&mut self, job: JobId, request: &Initiate) -> Result<(), CommandError> {
        if request.child.as_deref() == Some("absent") {
            return Err(CommandError::new("no connection has a child of that name"));
        }
        self.initiations.push((job, request.clone()));
        Ok(())
    }

    fn terminate(&mut self, job: JobId, request: &Terminate) -> Result<u32, CommandError> {
        let matches = self.matches(&request.sas);
        if matches > 0 {
            self.terminations.push((job, request.clone()));
        }
        Ok(matches)
    }

    fn set_policy(&mut self, request: &SetPolicy) -> Result<(), CommandError> {
        if request.child == "absent" {
            return Err(CommandError::new("no connection has a child of that name"));
        }
        self.policies.push(request.clone());
        Ok(())
    }

    /// The digest is how many commands the gateway has replicated before.
    fn command_behind(&self, request: &SetPolicy) -> Result<Option<LoadedBy>, CommandError> {
        if !self.replicates {
            return Ok(None);
        }
        let has_child = |found: &&Connection| found.children.iter().any(|child| child.name == request.child);
        let found = self.connections.iter().find(has_child);
        let found = found.ok_or_else(|| CommandError::new("no connection has a child of that name"))?;
        let connection = ConfigItem::connection(&found.name);
        let is_of_it = |change: &ConfigChange| match change {
            ConfigChange::Set(item) | ConfigChange::Replace { item, .. } => *item == connection,
            _ => false,
        };
        let digest = self.replicated.iter().rposition(|(_, change, _)| is_of_it(change));
        let loaded = |digest: usize| {
            let command = Zeroizing::new(self.replicated[digest].2.clone());
            LoadedBy { command, digest: digest as u64 }
        };
        Ok(digest.map(loaded))
    }

    fn reload_settings(&mut self) -> Result<(), CommandError> {
        self.reloads += 1;
        Ok(())
    }

    fn rekey(&mut self, request: &Rekey) -> u32 {
        self.rekeyings.push(request.clone());
        self.matches(&request.sas)
    }

    fn replicate(&mut self, job: JobId, change: ConfigChange, command: Zeroizing<Vec<u8>>) -> bool {
        self.replicated.push((job, change, command.to_vec()));
        self.replicates
    }

    fn children(&self, connection: &str, _: Time) -> Vec<ChildReport> {
        self.children.iter().filter(|child| child.connection == connection).cloned().collect()
    }

    fn node_of(&self, _: IkeSaId) -> Option<u32> {
        self.node
    }

    fn ike_sa_ids(&self) -> Vec<IkeSaId> {
        self.sas.iter().map(|sa| sa.id).collect()
    }

    fn ike_sa(&self, id: IkeSaId) -> Option<IkeSaStatus> {
        self.asked.set(self.asked.get() + 1);
        let at = self.sas.binary_search_by_key(&id, |sa| sa.id).ok()?;
        self.sas.get(at).cloned()
    }

    fn child_usage(&self, _: ChildSaId) -> ChildUsage {
        ChildUsage {
            inbound: Usage { bytes: 840, packets: 10, idle: Some(Duration::from_secs(1)) },
            outbound: Usage { bytes: 1680, packets: 20, idle: Some(Duration::from_secs(2)) },
        }
    }

    fn version(&self) -> Version {
        Version {
            daemon: "testudod".to_owned(),
            version: "0.1.0".to_owned(),
            sysname: "Linux".to_owned(),
            release: "6.18.5".to_owned(),
            machine: "x86_64".to_owned(),
        }
    }

    fn stats(&self) -> Stats {
        Stats {
            since: SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_293_300),
            uptime: Duration::from_secs(600),
            workers: 4,
            workers_idle: 3,
            scheduled: 7,
            ike_sas: 2,
            ike_sas_half_open: 1,
            plugins: vec!["intel-ipsec-mb".to_owned(), "xdp".to_owned()],
        }
    }

    fn counters(&self) -> Counters {
        let named = |name: &str, value| vec![(name.to_owned(), value)];
        Counters {
            totals: named("protected", 20),
            drops: vec![("replay".to_owned(), 3), ("no_sa".to_owned(), 0)],
            ike: named("received", 12),
            ports: vec![PortCounters {
                name: "eth0".to_owned(),
                kind: "xdp".to_owned(),
                rx_packets: 30,
                rx_bytes: 3000,
                tx_packets: 20,
                tx_bytes: 2000,
                drops: named("ring_full", 1),
                status: PortStatus {
                    state: "up".to_owned(),
                    seconds: 60,
                    ifindex: Some(2),
                    mtu: Some(1500),
                    queues: 1,
                    routes: 2,
                    filter: Some("native".to_owned()),
                    ..PortStatus::default()
                },
            }],
            workers: vec![WorkerCounters {
                index: 0,
                cpu: Some(1),
                cipher: "intel-ipsec-mb".to_owned(),
                bursts: 5,
                packets: 50,
                drops: named("replay", 3),
            }],
            alarms: vec![("replay-burst".to_owned(), 2)],
            inherited: vec!["10.9.0.0/16".to_owned()],
        }
    }

    fn cluster(&self) -> Option<ClusterReport> {
        self.cluster.clone()
    }

    fn drain(&mut self, request: &Drain) -> Result<(), CommandError> {
        if request.node == Some(9) {
            return Err(CommandError::new("no node 9"));
        }
        self.drains.push(request.clone());
        Ok(())
    }

    fn change_nodes(&mut self, request: &ChangeNodes) -> Result<u64, CommandError> {
        if request.node == 9 {
            return Err(CommandError::new("node 9 is taken"));
        }
        self.changes.push(request.clone());
        Ok(12)
    }

    fn processors(&self) -> Result<Processors, CommandError> {
        Ok(Processors { count: 2, busy: Duration::from_millis(70) })
    }

    fn hold_path_mtu(&mut self, remote: IpAddr, mtu: u16, holder: &str) -> Result<(), CommandError> {
        if remote == IpAddr::from([192, 0, 2, 9]) {
            return Err(CommandError::new("no Child SA goes to 192.0.2.9"));
        }
        self.path_mtus.push((remote, mtu, holder.to_owned()));
        Ok(())
    }

    fn release_path_mtus(&mut self, holder: &str) {
        self.path_mtus.retain(|(_, _, by)| by != holder);
    }

    fn alarms(&self, above: u64) -> AlarmPage {
        AlarmPage { last: above + 1, ..AlarmPage::default() }
    }

    fn accept_source(&mut self, source: IpAddr, by: Option<&str>) -> Result<(), CommandError> {
        if source == IpAddr::from([192, 0, 2, 9]) {
            return Err(CommandError::new("packets of 192.0.2.9 are not dropped"));
        }
        self.accepted.push((source, by.map(str::to_owned)));
        Ok(())
    }

    fn shut(&self, behind: Option<AddrRange>) -> ShutPage {
        self.pages.borrow_mut().push(behind);
        self.shut.clone()
    }

    fn release(&mut self, request: &Release) -> Result<Released, CommandError> {
        if request.prefix.start() == IpAddr::from([10, 9, 0, 0]) {
            return Err(CommandError::new("10.9.0.0/16 is not shut"));
        }
        self.releases.push(request.clone());
        Ok(Released { clustered: true, inside: 2 })
    }

    fn exchanges(&self) -> &Exchanges {
        &self.exchanges
    }

    fn exchanges_mut(&mut self) -> &mut Exchanges {
        &mut self.exchanges
    }
}

fn ts(first: &str, last: &str) -> TrafficSelector {
    let addrs = AddrRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap();
    TrafficSelector::all(addrs)
}

/// An established IKE SA of connection `gw` with one Child SA `net`.
pub(crate) fn net_sa(number: u64) -> IkeSaStatus {
    let gcm = AlgorithmName { name: "AES_GCM_16", keysize: Some(128) };
    let bare = |name| Some(AlgorithmName { name, keysize: None });
    IkeSaStatus {
        id: IkeSaId(number),
        connection: Some("gw".to_owned()),
        state: IkeSaState::Established,
        local: "192.0.2.1:4500".parse().unwrap(),
        remote: "192.0.2.2:4500".parse().unwrap(),
        local_id: Some(Identity::Fqdn("moon.example.org".to_owned())),
        remote_id: Some(Identity::Addr("192.0.2.2".parse().unwrap())),
        initiator: true,
        spi_i: IkeSpi(0x0102_0304_0506_0708),
        spi_r: IkeSpi(0x1112_1314_1516_1718),
        nat: NatStatus { local: false, remote: true, fake: false },
        encryption: Some(gcm),
        integrity: None,
        prf: bare("PRF_HMAC_SHA2_256"),
        ke: bare("CURVE_25519"),
        ppk: false,
        additional_ke: [bare("ML_KEM_768"), None, None, None, None, None, None],
        established: Some(Time(Duration::ZERO)),
        rekey: Some(Time(Duration::from_secs(14_000))),
        reauth: None,
        commit: CommitId(1),
        tasks_active: Vec::new(),
        tasks_queued: Vec::new(),
        local_vips: Vec::new(),
        remote_vips: Vec::new(),
        children: vec![ChildSaStatus {
            id: ChildSaId(number),
            name: "net".to_owned(),
            reqid: 1,
            state: ChildSaState::Installed,
            mode: Mode::Tunnel,
            encap: true,
            ah: false,
            spi_in: Spi(0xc0de_cafe),
            spi_out: Spi(0x0bad_f00d),
            encryption: Some(gcm),
            integrity: None,
            ke: bare("CURVE_25519"),
            additional_ke: [bare("ML_KEM_768"), None, None, None, None, None, None],
            esn: true,
            installed: Time(Duration::ZERO),
            rekey: Some(Time(Duration::from_secs(3300))),
            end: Some(Time(Duration::from_secs(3960))),
            local_ts: vec![ts("10.1.0.0", "10.1.255.255")],
            remote_ts: vec![ts("10.2.0.0", "10.2.255.255"), ts("10.3.0.1", "10.3.0.9")],
            per_cpu: true,
            worker: Some(3),
        }],
    }
}
