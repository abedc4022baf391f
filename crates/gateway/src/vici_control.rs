//! The gateway as VICI sees it: commands in, answers out.

use crate::gateway::{Gateway, Note};
use std::time::{Duration, SystemTime};
use testudo_ike::config::{ChildMode, Connection, SharedSecret};
use testudo_ike::endpoint::{IkeSaState, IkeSaStatus, Target};
use testudo_ike::output::{ChildSaId, IkeSaId};
use testudo_vici::control::{Control, Initiate, JobId, Stats, Terminate, Version};
use testudo_vici::counters::Counters;
use testudo_vici::server::{LogLine, Server};
use testudo_vici::view::ChildUsage;

impl Control for Gateway {
    fn load_connection(&mut self, connection: Connection) -> Result<(), String> {
        self.policies.load(&connection);
        self.policies_changed = true;
        // The policies stand before the first message goes out; a refused connection takes them along.
        let name = connection.name.clone();
        let loaded = self.endpoint.load_connection(self.now, connection).map_err(|e| e.to_string());
        if loaded.is_err() {
            match self.endpoint.connections().find(|c| c.name == name) {
                Some(before) => self.policies.load(before),
                None => self.policies.unload(&name),
            }
        }
        self.settle();
        loaded
    }

    fn unload_connection(&mut self, name: &str) -> Result<(), String> {
        if !self.endpoint.unload_connection(name) {
            return Err(format!("no connection is named {name}"));
        }
        self.policies.unload(name);
        self.policies_changed = true;
        self.settle();
        Ok(())
    }

    fn connection_names(&self) -> Vec<String> {
        self.endpoint.connections().map(|c| c.name.clone()).collect()
    }

    fn connection(&self, name: &str) -> Option<&Connection> {
        self.endpoint.connections().find(|c| c.name == name)
    }

    fn load_secret(&mut self, secret: SharedSecret) -> Result<(), String> {
        self.endpoint.load_secret(secret);
        Ok(())
    }

    fn unload_secret(&mut self, name: &str) {
        self.endpoint.unload_secret(name);
    }

    fn secret_names(&self) -> Vec<String> {
        self.endpoint.secret_names().map(str::to_owned).collect()
    }

    fn clear_secrets(&mut self) {
        self.endpoint.clear_secrets();
    }

    fn initiate(&mut self, job: JobId, request: &Initiate) -> Result<(), String> {
        let Some(child) = &request.child else {
            return Err("an IKE SA comes up with a child: name one with --child".into());
        };
        let begun = self.endpoint.initiate(self.now, request.ike.as_deref(), child);
        let ike = begun.map_err(|e| e.to_string())?;
        self.jobs.initiating(job, ike, child);
        self.settle();
        Ok(())
    }

    fn terminate(&mut self, job: JobId, request: &Terminate) -> Result<u32, String> {
        let target = match request {
            Terminate { child_id: Some(id), .. } => Target::Child(*id),
            Terminate { ike_id: Some(id), .. } => Target::Ike(*id),
            Terminate { child: Some(child), ike, .. } => {
                Target::ChildName { connection: ike.clone(), child: child.clone() }
            }
            Terminate { ike: Some(ike), .. } => Target::Connection(ike.clone()),
            _ => return Ok(0),
        };
        let Ok(begun) = self.endpoint.terminate(self.now, &target, request.force) else { return Ok(0) };
        self.jobs.terminating(job, &begun);
        self.settle();
        Ok((begun.ikes.len() + begun.children.len()) as u32)
    }

    fn ike_sa_ids(&self) -> Vec<IkeSaId> {
        self.endpoint.sas().map(|sa| sa.id).collect()
    }

    fn ike_sa(&self, id: IkeSaId) -> Option<IkeSaStatus> {
        self.endpoint.sa(id)
    }

    fn child_usage(&self, id: ChildSaId) -> ChildUsage {
        self.data.usage(id)
    }

    fn version(&self) -> Version {
        let uts = nix::sys::utsname::uname();
        let text = |s: Option<&std::ffi::OsStr>| s.unwrap_or_default().to_string_lossy().into_owned();
        Version {
            daemon: "testudod".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            sysname: text(uts.as_ref().ok().map(|u| u.sysname())),
            release: text(uts.as_ref().ok().map(|u| u.release())),
            machine: text(uts.as_ref().ok().map(|u| u.machine())),
        }
    }

    fn stats(&self) -> Stats {
        let half_open = self.endpoint.sas().filter(|sa| sa.state == IkeSaState::Connecting).count();
        Stats {
            since: self.since,
            uptime: SystemTime::now().duration_since(self.since).unwrap_or(Duration::ZERO),
            workers: 1,
            workers_idle: u32::from(self.data.is_idle()),
            scheduled: u32::from(self.endpoint.next_timeout().is_some()),
            ike_sas: self.endpoint.sas().count() as u32,
            ike_sas_half_open: half_open as u32,
            plugins: self.data.parts(),
        }
    }

    fn counters(&self) -> Counters {
        let mut counters = self.data.counters();
        let stats = self.endpoint.stats();
        let mut named = |name: &str, value: u64| counters.ike.push((name.to_owned(), value));
        named("received", stats.received);
        named("sent", stats.sent);
        named("retransmitted", stats.retransmitted);
        named("responses_repeated", stats.responses_repeated);
        named("cookies_demanded", stats.cookies_demanded);
        named("established", stats.established);
        named("failed", stats.failed);
        for (name, value) in stats.discards() {
            named(&format!("discarded_{name}"), value);
        }
        let bypassed = self
            .endpoint
            .connections()
            .flat_map(|c| &c.children)
            .filter(|child| child.mode == ChildMode::Pass)
            .count();
        counters.totals.push(("bypass_policies".into(), bypassed as u64));
        counters
    }
}

/// Tells the server what the gateway has noted since the last call.
pub(crate) fn pass_on(gateway: &mut Gateway, server: &mut Server) {
    for note in gateway.take_notes() {
        match note {
            Note::Log { ike, connection, level, message, jobs } => {
                let line = LogLine { level, ike, connection: connection.as_deref(), message: &message };
                for job in jobs {
                    server.control_log(job, line);
                }
                server.log(line);
            }
            Note::Initiated(job, result) => server.finish_initiate(job, result),
            Note::Terminated(job, gone) => server.finish_terminate(job, gone),
            Note::Ike(up, sa) => server.ike_updown(up, &sa, gateway.now),
            Note::Child(up, sa, child) => server.child_updown(up, &sa, &child, gateway.now, gateway),
        }
    }
}
