//! A gateway that stores its configuration, for the server to call.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};
use testudo_ike::cert::Credentials;
use testudo_ike::config::{Connection, Identity, Pool, SharedSecret};
use testudo_ike::endpoint::{Exchanges, IkeSaStatus, LeaseStatus, PoolStatus};
use testudo_ike::output::{ChildSaId, IkeSaId, Time};
use testudo_ipsec::selector::AddrRange;
use testudo_vici::CommandError;
use testudo_vici::alarms::AlarmPage;
use testudo_vici::children::ChildReport;
use testudo_vici::cluster::ClusterReport;
use testudo_vici::control::{
    ChangeNodes, ConfigChange, Control, Drain, Initiate, JobId, Rekey, SetPolicy, Stats, Terminate, Version,
};
use testudo_vici::counters::Counters;
use testudo_vici::processors::Processors;
use testudo_vici::schema::Policy;
use testudo_vici::shut::{Release, Released, ShutPage};
use testudo_vici::view::ChildUsage;
use zeroize::Zeroizing;

/// Stores connections and secrets; jobs wait here until the fuzzer ends them.
#[derive(Default)]
pub(super) struct Gateway {
    connections: Vec<Connection>,
    secrets: Vec<SharedSecret>,
    credentials: Credentials,
    pools: Vec<Pool>,
    pub(super) initiations: Vec<JobId>,
    pub(super) terminations: Vec<JobId>,
    exchanges: Exchanges,
}

impl Control for Gateway {
    fn command_refused(&mut self, _: &str, _: &str) {}

    fn policy(&self) -> Policy {
        Policy::Modern
    }

    fn load_connection(&mut self, connection: Connection) -> Result<(), CommandError> {
        self.connections.retain(|other| other.name != connection.name);
        self.connections.push(connection);
        Ok(())
    }

    fn warn(&mut self, _: Option<&str>, _: String) {}

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
        self.pools.retain(|other| other.name != name);
        Ok(())
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let status = |pool: &Pool| PoolStatus {
            name: pool.name.clone(),
            base: pool.base,
            size: 1,
            online: 1,
            offline: 0,
        };
        self.pools.iter().map(status).collect()
    }

    fn leases(&self, pool: &str) -> Vec<LeaseStatus> {
        let found = self.pools.iter().find(|other| other.name == pool);
        let lease =
            |pool: &Pool| LeaseStatus { addr: pool.base, identity: Identity::Addr(pool.base), online: true };
        found.map(lease).into_iter().collect()
    }

    fn initiate(&mut self, job: JobId, request: &Initiate) -> Result<(), CommandError> {
        if self.connections.is_empty() {
            return Err(CommandError::new(format!("there is no {:?}", request.child)));
        }
        self.initiations.push(job);
        Ok(())
    }

    fn set_policy(&mut self, request: &SetPolicy) -> Result<(), CommandError> {
        match self.connections.is_empty() {
            true => Err(CommandError::new(format!("there is no {:?}", request.child))),
            false => Ok(()),
        }
    }

    fn reload_settings(&mut self) -> Result<(), CommandError> {
        Ok(())
    }

    fn rekey(&mut self, _: &Rekey) -> u32 {
        self.connections.len() as u32
    }

    fn terminate(&mut self, job: JobId, _: &Terminate) -> Result<u32, CommandError> {
        let matches = self.connections.len() as u32;
        if matches > 0 {
            self.terminations.push(job);
        }
        Ok(matches)
    }

    fn replicate(&mut self, _: JobId, _: ConfigChange, _: Zeroizing<Vec<u8>>) -> bool {
        false
    }

    fn children(&self, _: &str, _: Time) -> Vec<ChildReport> {
        Vec::new()
    }

    fn node_of(&self, _: IkeSaId) -> Option<u32> {
        None
    }

    fn ike_sa_ids(&self) -> Vec<IkeSaId> {
        (0..self.connections.len() as u64).map(IkeSaId).collect()
    }

    fn ike_sa(&self, _: IkeSaId) -> Option<IkeSaStatus> {
        // Deleted between the list and the request.
        None
    }

    fn child_usage(&self, _: ChildSaId) -> ChildUsage {
        ChildUsage::default()
    }

    fn version(&self) -> Version {
        let [daemon, version, sysname, release, machine] =
            ["testudod", "0", "Linux", "6", "any"].map(str::to_owned);
        Version { daemon, version, sysname, release, machine }
    }

    fn stats(&self) -> Stats {
        Stats {
            since: SystemTime::UNIX_EPOCH,
            uptime: Duration::ZERO,
            workers: 1,
            workers_idle: 0,
            scheduled: 0,
            ike_sas: 0,
            ike_sas_half_open: 0,
            plugins: Vec::new(),
        }
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn cluster(&self) -> Option<ClusterReport> {
        None
    }

    fn drain(&mut self, _: &Drain) -> Result<(), CommandError> {
        Err(CommandError::new("it stands alone"))
    }

    fn change_nodes(&mut self, _: &ChangeNodes) -> Result<u64, CommandError> {
        Err(CommandError::new("it stands alone"))
    }

    fn processors(&self) -> Result<Processors, CommandError> {
        Ok(Processors::default())
    }

    fn hold_path_mtu(&mut self, _: IpAddr, _: u16, _: &str) -> Result<(), CommandError> {
        Ok(())
    }

    fn release_path_mtus(&mut self, _: &str) {}

    fn alarms(&self, _: u64) -> AlarmPage {
        AlarmPage::default()
    }

    fn accept_source(&mut self, _: IpAddr, _: Option<&str>) -> Result<(), CommandError> {
        Ok(())
    }

    fn shut(&self, _: Option<AddrRange>) -> ShutPage {
        ShutPage::default()
    }

    fn release(&mut self, _: &Release) -> Result<Released, CommandError> {
        Ok(Released::default())
    }

    fn exchanges(&self) -> &Exchanges {
        &self.exchanges
    }

    fn exchanges_mut(&mut self) -> &mut Exchanges {
        &mut self.exchanges
    }
}
