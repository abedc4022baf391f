//! What the gateway tells VICI's clients.

use crate::gateway::{Gateway, Note};
use testudo_cluster::member::Effect;
use testudo_ike::output::LogLevel;
use testudo_vici::server::{LogLine, Server, carry_out, take_back};

/// Hands the gateway's notes to the server, at most `limit` of them: its clients read in between.
pub(crate) fn pass_on(gateway: &mut Gateway, server: &mut Server, limit: usize) {
    for _ in 0..limit {
        // A piece of configuration of another node takes as long to load as one of this node.
        if gateway.ending.is_called_for() {
            return;
        }
        let Some(note) = gateway.take_note() else { return };
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
            Note::Replicated(job) => server.finish_replication(job),
            Note::Outdated(job) => server.refuse_replication(job),
            Note::Configure(from, effect, octets) => {
                // `testudo cluster` names a piece that is refused here alone until that is
                // repaired.
                if let Err(why) = carry_out(&octets, gateway) {
                    let what = match &effect {
                        Effect::Set(name) | Effect::Unset(name) | Effect::Replace { name, .. } => {
                            name.name.as_str()
                        }
                        Effect::ClearCredentials => "the removal of all credentials",
                    };
                    let line = format!(
                        "this node refuses {what} of the cluster's configuration, which node {from} has loaded: {why}"
                    );
                    gateway.log(None, None, LogLevel::Warning, line);
                    gateway.refused(&effect, why.to_string());
                }
            }
            Note::Unconfigure(name, octets) => {
                let name = name.name;
                let (level, line) = match take_back(&octets, gateway) {
                    Ok(()) => (
                        LogLevel::Notice,
                        format!("unloaded {name}, which the cluster's configuration does not have"),
                    ),
                    Err(why) => (
                        LogLevel::Warning,
                        format!(
                            "cannot unload {name}, which the cluster's configuration does not have: {why}"
                        ),
                    ),
                };
                gateway.log(None, None, level, line);
            }
            Note::Alarm(state, alarm) => server.alarm(state, &alarm),
            Note::Ike(up, sa) => server.ike_updown(up, &sa, gateway.now),
            Note::IkeRekeyed(both) => server.ike_rekey(&both.0, &both.1, gateway.now),
            Note::ChildRekeyed(of) => {
                server.child_rekey(&of.0, &of.1, &of.2, gateway.now, gateway);
            }
            Note::Child(up, sa, child) => server.child_updown(up, &sa, &child, gateway.now, gateway),
        }
    }
}
