//! The configured children as VICI reports them: what this node knows of them, and what the other
//! nodes of the cluster have.

use crate::ike::Ike;
use std::collections::BTreeMap;
use testudo_cluster::member::{Member, RemoteSas};
use testudo_ike::endpoint::{ChildState, ChildStatus};
use testudo_ike::output::Time;
use testudo_vici::children::{ChildError, ChildReport};

/// The children of a connection, in the order of the configuration.
pub(crate) fn reports(ike: &Ike, connection: &str, now: Time) -> Vec<ChildReport> {
    let reports = ike.children(connection).into_iter().map(|child| report(connection, child, now));
    match ike {
        Ike::Alone(_) => reports.collect(),
        Ike::Member(member) => {
            let others = member.remote_sas_of(connection);
            reports.map(|report| in_cluster(report, member, &others)).collect()
        }
    }
}

/// A child as this node knows it.
fn report(connection: &str, child: ChildStatus, now: Time) -> ChildReport {
    let ago = |then: Time| now.since(then).as_secs();
    ChildReport {
        connection: connection.to_owned(),
        name: child.name,
        state: child.state,
        expected: child.expected,
        since: child.since.map(ago),
        last_error: child.failure.map(|failure| ChildError { reason: failure.why, ago: ago(failure.at) }),
        // Rounded up to a second: 0 would mean that the time is over.
        next_try: child.next_try.map(|at| at.since(now).as_millis().div_ceil(1000) as u64),
        silent: child.heard.map(ago),
        sas: child.sas as u64,
        node: None,
    }
}

/// Adds the node that has the child or is to bring it up. Only that node knows why the child does
/// not come up and when it tries again.
fn in_cluster(report: ChildReport, member: &Member, others: &BTreeMap<&str, RemoteSas>) -> ChildReport {
    let own = Some(u64::from(member.node().get()));
    let home = || member.home_of(&report.connection).map(|node| node.get().into());
    let node = |node: Option<_>| node.map(|node: testudo_cluster::node::NodeId| u64::from(node.get()));
    match (report.state, others.get(report.name.as_str())) {
        (ChildState::Pass | ChildState::Drop, _) => report,
        (ChildState::Up, there) => {
            let more = there.map_or(0, |there| there.sas as u64);
            ChildReport { sas: report.sas + more, node: own, ..report }
        }
        (_, Some(there)) => ChildReport {
            state: ChildState::Up,
            since: None,
            next_try: None,
            sas: there.sas as u64,
            node: node(there.node),
            ..report
        },
        (ChildState::Establishing | ChildState::Waiting, None) => ChildReport { node: own, ..report },
        (_, None) if report.expected => ChildReport { node: home(), ..report },
        (_, None) => report,
    }
}
