//! `[[spread]]`: connections whose packets are spread over all nodes of a cluster.

use super::ClusterSettings;
use crate::reader::{ConfigError, Section};
use std::collections::BTreeMap;
use testudo_base::lane::Spread;
use testudo_cluster::group::GroupConfig;

/// More than the widest window that Testudo itself has.
const MAX_WINDOW: u64 = 1 << 20;

/// The connections, by name, and how each is spread; and the smallest replay window of a peer.
/// `cluster`: the file's `[cluster]`.
pub(super) fn parse(
    root: &Section<'_>,
    cluster: Option<&ClusterSettings>,
) -> Result<(BTreeMap<String, Spread>, u64), ConfigError> {
    let (mut spread, mut peer_window) = (BTreeMap::new(), None);
    for section in root.sections("spread")? {
        let unused = |s: &str| (!s.is_empty() && !spread.contains_key(s)).then(|| s.to_owned());
        let expected = "the name of a connection that no other [[spread]] has";
        let connection = section.string("connection", expected, unused)?;
        let schemes = "\"session-hash\", \"session-rr\", \"session-sqf\", \"packet-hash\", \"packet-rr\" \
                       or \"packet-sqf\"";
        let named = |s: &str| Spread::ALL.into_iter().find(|by| by.name() == s);
        let scheme = section.string("scheme", schemes, named)?;
        let window = section.integer("peer_window", 32, MAX_WINDOW)?.unwrap_or(GroupConfig::PEER_WINDOW);
        let (no_connection, no_scheme) =
            (section.missing("connection", expected), section.missing("scheme", schemes));
        let alone = section.unfit("connection", "a [cluster] over whose nodes it is spread");
        section.finish()?;
        let (connection, scheme) = (connection.ok_or(no_connection)?, scheme.ok_or(no_scheme)?);
        if cluster.is_none() {
            return Err(alone);
        }
        spread.insert(connection, scheme);
        peer_window = Some(peer_window.map_or(window, |smallest| window.min(smallest)));
    }
    Ok((spread, peer_window.unwrap_or(GroupConfig::PEER_WINDOW)))
}
