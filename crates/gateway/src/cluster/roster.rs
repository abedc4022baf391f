//! The nodes of the cluster: those of testudo.toml at first, then those that operators have made of
//! them while the cluster ran. The latter are in this node's state on disk, and count.

use super::Disk;
use crate::config::ClusterSettings;
use crate::error::{Error, Result};
use std::net::IpAddr;
use testudo_cluster::group::{Durable, Roster, Rosters};
use testudo_cluster::node::{NodeId, names};

/// The nodes of testudo.toml.
pub(super) fn configured(settings: &ClusterSettings) -> Rosters {
    Rosters::first(settings.nodes.iter().map(|node| (node.id, node.addresses.clone())))
}

/// How testudo.toml differs from the nodes of the cluster, if it does. `None` without a change
/// since the cluster's first start.
fn outdated(settings: &ClusterSettings, rosters: &Rosters) -> Option<String> {
    let Roster { number, nodes } = &rosters.settled;
    let same = *number == 0 || *nodes == configured(settings).settled.nodes;
    (!same).then(|| {
        format!(
            "{}: found nodes {}, expected those of the cluster: {}; they were changed by `testudo cluster add` or `remove`, \
             and count whatever is here",
            settings.nodes_place,
            names(&settings.nodes.iter().map(|node| node.id).collect::<Vec<_>>()),
            listed(&rosters.settled),
        )
    })
}

/// The same for a gateway that does not run. What cannot be read is told at its start.
pub(crate) fn outdated_on_disk(settings: &ClusterSettings, instance: &str) -> Option<String> {
    let durable = Disk::at(&settings.state, instance).last().ok()?;
    outdated(settings, &durable.rosters?)
}

fn listed(roster: &Roster) -> String {
    let node = |(id, addresses): (&NodeId, &Vec<IpAddr>)| {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("{id} ({})", addresses.join(" "))
    };
    roster.nodes.iter().map(node).collect::<Vec<_>>().join(", ")
}

/// Whether another node may have these addresses.
pub(super) fn check_addresses(
    settings: &ClusterSettings,
    rosters: &Rosters,
    addresses: &[IpAddr],
) -> Result<()> {
    let nodes = rosters.nodes();
    let own = nodes.get(&settings.node).map_or(0, |own| own.len());
    if addresses.len() != own {
        return Err(Error::NodeAddressCount { found: addresses.to_vec(), expected: own });
    }
    for (index, address) in addresses.iter().enumerate() {
        let of_node = nodes.iter().find(|(_, known)| known.contains(address));
        let user = match of_node {
            Some((node, _)) => format!("node {node}"),
            None if settings.vips.contains(address) => "all nodes together".to_owned(),
            None if addresses.iter().take(index).any(|other| other == address) => "another link".to_owned(),
            None => continue,
        };
        return Err(Error::NodeAddressInUse { address: *address, user });
    }
    Ok(())
}

/// What the disk says about the nodes, or testudo.toml.
pub(super) fn at_start(settings: &ClusterSettings, durable: &Durable) -> Rosters {
    let rosters = durable.rosters_or(&configured(settings));
    if let Some(line) = outdated(settings, &rosters) {
        tracing::warn!("{line}");
    }
    rosters
}

#[cfg(test)]
mod tests {
    use super::super::heartbeats::tests::settings;
    use super::*;

    fn rosters(number: u64, nodes: u32) -> Rosters {
        let addresses = |node: u32| (0..2).map(|link| IpAddr::from([127, 9, link, node as u8])).collect();
        let mut rosters =
            Rosters::first((1..=nodes).map(|node| (NodeId::new(node).unwrap(), addresses(node))));
        rosters.settled.number = number;
        rosters
    }

    #[test]
    fn a_file_that_lacks_a_node_is_named_with_what_belongs_there() {
        let settings = settings(1, 5406);
        assert_eq!(outdated(&settings, &rosters(3, 2)), None);
        assert_eq!(outdated(&settings, &rosters(0, 3)), None, "never changed");
        let told = outdated(&settings, &rosters(3, 3)).unwrap();
        assert!(
            told.starts_with("t.toml:9: cluster.nodes: found nodes 1, 2, expected those of the cluster"),
            "{told}"
        );
        assert!(told.contains("3 (127.9.0.3 127.9.1.3)"), "{told}");
    }

    #[test]
    fn addresses_are_as_many_as_the_others_have_and_nobodys() {
        let mut settings = settings(1, 5406);
        settings.vips = vec!["192.0.2.1".parse().unwrap()];
        let check = |addresses: &[&str]| {
            let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
            check_addresses(&settings, &rosters(0, 2), &addresses).map_err(|error| error.to_string())
        };
        assert_eq!(check(&["10.0.0.4", "10.0.1.4"]), Ok(()));
        for (addresses, complaint) in [
            (&["10.0.0.4"][..], "addresses: found 10.0.0.4, expected 2, as many as the other nodes have"),
            (&["10.0.0.4", "127.9.1.2"], "addresses: found 127.9.1.2, which node 2 has"),
            (&["10.0.0.4", "192.0.2.1"], "addresses: found 192.0.2.1, which all nodes together has"),
            (&["10.0.0.4", "10.0.0.4"], "addresses: found 10.0.0.4, which another link has"),
        ] {
            let error = check(addresses).unwrap_err();
            assert!(error.starts_with(complaint), "{error}");
        }
    }
}
