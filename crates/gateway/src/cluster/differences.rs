//! Nodes that are configured differently, or are of different versions, in sentences.

use testudo_cluster::group::{GroupConfig, Phase};
use testudo_cluster::member::{ClusterStatus, Difference, Found};
use testudo_cluster::node::names;

/// For `testudo cluster`; empty if all nodes are alike.
pub(super) fn sentences(status: &ClusterStatus) -> Vec<String> {
    let configuration = &status.configuration;
    let mut sentences = Vec::new();
    if status.group.phase == Phase::Running && status.version < GroupConfig::NEWEST {
        let lost = match status.version < GroupConfig::CONTROL_PLANE {
            true => ", and a configuration is loaded on each node by itself",
            false => "",
        };
        sentences.push(format!(
            "nodes of an older version are in the cluster: until they are upgraded all speak version {} of the replication \
             protocol{lost}",
            status.version
        ));
    }
    sentences.extend(configuration.refused.iter().map(|(piece, reason)| {
        format!("this node refuses {} of the cluster's configuration: {reason}", piece.name)
    }));
    sentences.extend(configuration.differences.iter().map(|Difference { node, found, name }| {
        let name = &name.name;
        match found {
            Found::ThereOnly => format!("node {node} has {name}, which this node has not"),
            Found::HereOnly => format!("node {node} has no {name}, which this node has"),
            Found::Other => {
                format!("{name} of node {node} differs from this node's, or one of them refuses it")
            }
        }
    }));
    let named = |node| configuration.differences.iter().any(|difference| difference.node == node);
    let unnamed: Vec<_> = configuration.differ.iter().copied().filter(|node| !named(*node)).collect();
    if !unnamed.is_empty() {
        sentences.push(format!("the configuration of nodes {} differs from this node's", names(&unnamed)));
    }
    if !sentences.is_empty() && !configuration.replicates && !configuration.differ.is_empty() {
        sentences.push(
            "replicate_config is off: each node has the configuration that was loaded on it".to_owned(),
        );
    }
    sentences
}
