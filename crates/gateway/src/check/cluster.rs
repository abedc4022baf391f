//! What a node of a cluster needs in addition.

use super::{Host, Report};
use crate::cluster::{key, roster};
use crate::config::{ClusterSettings, Config};
use std::io::ErrorKind;
use testudo_cluster::group::Ingress;

/// The socket of corosync's CPG service.
const CPG: &str = "cpg";

pub(super) fn look(config: &Config, host: &dyn Host, report: &mut Report) {
    let Some(settings) = &config.cluster else { return };
    look_at_key(settings, host, report);
    if let Err(why) = host.corosync() {
        report.fault(why.to_string());
    }
    if !host.read("/proc/net/unix").is_some_and(|sockets| has_socket(&sockets, CPG)) {
        report.warn(
            "corosync is not there: found no socket of its service cpg. testudod waits for it, and takes no part in the \
             cluster until then",
        );
    }
    if let Some(line) = roster::outdated_on_disk(settings, &config.instance) {
        report.warn(line);
    }
    look_at_addresses(config, settings, host, report);
    let vips: Vec<String> = settings.vips.iter().map(ToString::to_string).collect();
    report.would(format!(
        "join the cluster \"{}\" by corosync as node {} of {}, and own the addresses {} with the others",
        settings.group,
        settings.node,
        settings.nodes.len(),
        vips.join(" ")
    ));
}

/// The node's own addresses. Others relay packets to the first one: a port has to receive them.
fn look_at_addresses(config: &Config, settings: &ClusterSettings, host: &dyn Host, report: &mut Report) {
    let own = settings.nodes.iter().find(|node| node.id == settings.node);
    for (number, address) in own.into_iter().flat_map(|node| node.addresses.iter().enumerate()) {
        let place = format!("{}: node {}", settings.nodes_place, settings.node);
        let relayed = settings.ingress == Ingress::Routed && number == 0;
        match host.interface_of(*address) {
            None => report
                .warn(format!("{place}: found \"{address}\", expected an address of this host: none has it now")),
            Some(interface) if relayed && !config.ports.iter().any(|port| port.interface == interface) => report
                .warn(format!(
                    "{place}: found \"{address}\" of {interface} as the first address, expected one of a [[port]]: with \
                     ingress = \"routed\" other nodes relay packets to it"
                )),
            Some(_) => {}
        }
    }
}

/// Only the key's owner may read it, and another user may run the check.
fn look_at_key(settings: &ClusterSettings, host: &dyn Host, report: &mut Report) {
    match host.open(&settings.key) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => report.warn(format!(
            "{}: {}: the user who runs this check may not read it",
            settings.key_place,
            settings.key.display()
        )),
        _ => {
            if let Err(error) = key::load(&settings.key_place, &settings.key) {
                report.fault(error.to_string());
            }
        }
    }
}

/// Whether a socket of that name is in the text of /proc/net/unix: in the kernel's own name space,
/// where the kernel writes `@` for NUL, or in the file system.
fn has_socket(sockets: &str, name: &str) -> bool {
    let named = |path: &str| match path.strip_prefix('@') {
        Some(path) => path.trim_end_matches('@') == name,
        None => path.rsplit_once('/').is_some_and(|(_, last)| last == name),
    };
    sockets.lines().filter_map(|line| line.split_ascii_whitespace().nth(7)).any(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_found_by_its_name() {
        let line =
            |path: &str| format!("0000000000000000: 00000002 00000000 00010000 0001 01 31337 {path}\n");
        for path in ["@cpg", "@cpg@@@@@@@@", "/run/cpg"] {
            assert!(has_socket(&format!("Num RefCount ...\n{}{}", line("@cfg"), line(path)), CPG), "{path}");
        }
        for path in ["", "@cpgx", "/run/cpg/other", "@quorum@@"] {
            assert!(!has_socket(&line(path), CPG), "{path}");
        }
    }
}
