//! Nodes that are added to a running cluster, or removed from it, with the steps that
//! `testudo cluster add` and `remove` tell an operator.

use super::{Bed, index};
use crate::cluster::{Cluster, Net};
use crate::corosync::Corosync;
use crate::topology::Family;
use crate::{Error, Result, wait_until};
use serde_json::Value;
use std::net::IpAddr;

impl Bed {
    /// `testudo cluster add` on a node, without waiting for corosync.
    pub fn add_node(&self, asked: u8, node: u8) -> Result<Value> {
        let addresses = own(node, self.options.outside).map(|address| address.to_string());
        let arguments =
            ["add", &node.to_string(), "--addresses", &addresses.join(","), "--wait", "0"].map(str::to_owned);
        self.change_nodes(asked, &arguments)
    }

    /// `testudo cluster remove` on a node, which waits until the node is drained and corosync knows.
    pub fn remove_node(&self, asked: u8, node: u8, wait: u32) -> Result<Value> {
        let arguments = ["remove", &node.to_string(), "--wait", &wait.to_string()].map(str::to_owned);
        self.change_nodes(asked, &arguments)
    }

    fn change_nodes(&self, asked: u8, arguments: &[String]) -> Result<Value> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.nodes[index(asked)].cluster_with(&arguments)
    }

    /// Writes these nodes into the corosync.conf of every node that there is, and has corosync read
    /// it again.
    pub fn tell_corosync(&mut self, nodes: &[u8]) -> Result<()> {
        let address = |node: &u8| (*node, Cluster::own(*node, Net::Cluster, Family::V4));
        self.ring = self.ring.clone().with_nodes(nodes.iter().map(address).collect());
        self.corosyncs.iter().try_for_each(|corosync| corosync.rewrite(&self.ring))?;
        self.corosyncs.first().map_or(Ok(()), Corosync::reload)
    }

    /// Starts the daemons of the next host that has been spared.
    pub fn start_spare(&mut self) -> Result<u8> {
        let node = self.nodes.len() as u8 + 1;
        let namespace = self.cluster.node(node).clone();
        self.corosyncs.push(Corosync::start(&namespace, &self.ring)?);
        let options = super::BedOptions { nodes: node, ..self.options.clone() };
        let started = super::start_node(&namespace, node, &options, &self.key_file, &self.connections)?;
        self.nodes.push(started);
        Ok(node)
    }

    /// Ends the daemons of the last node for good.
    pub fn end_last(&mut self) -> Result<()> {
        let none = || Error::unexpected("the last node".to_owned(), "one", "none");
        let mut testudod = self.nodes.pop().ok_or_else(none)?;
        testudod.stop()?;
        self.gone.push(testudod);
        drop(self.corosyncs.pop());
        Ok(())
    }

    /// Waits until these are the cluster's nodes, as each of them says, and corosync has them too.
    pub fn await_nodes(&self, nodes: &[u8]) -> Result<()> {
        for (number, node) in (1..).zip(&self.nodes).filter(|(number, _): &(u8, _)| nodes.contains(number)) {
            wait_until(&format!("the nodes {nodes:?} at node {number}"), super::LIMIT, || {
                let shown = node.cluster()?;
                let there = shown["configured"] == serde_json::json!(nodes)
                    && shown["changing"] == false
                    && shown["engines_behind"] == serde_json::json!([]);
                Ok(if there { Ok(()) } else { Err(shown.to_string()) })
            })?;
        }
        Ok(())
    }
}

/// A node's own addresses, by link.
pub(super) fn own(node: u8, outside: Family) -> [IpAddr; 3] {
    [(Net::Cluster, Family::V4), (Net::Outer, outside), (Net::Inner, Family::V4)]
        .map(|(net, family)| Cluster::own(node, net, family))
}
