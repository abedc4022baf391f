//! What is wrong in the cluster, in sentences: why, what the node waits for, and which shards go
//! where.

use super::differences;
use super::report::{millis, owned};
use testudo_base::shard::ShardSet;
use testudo_cluster::group::{PeerStatus, Phase};
use testudo_cluster::member::{ClusterStatus, HandoverStage};
use testudo_cluster::node::{NodeId, names};
use testudo_ike::output::Time;

/// For `testudo cluster`; empty if nothing is wrong.
pub(crate) fn sentences(
    status: &ClusterStatus,
    witness: Option<bool>,
    misfit: Option<String>,
    now: Time,
) -> Vec<String> {
    let mut sentences = phase(status);
    sentences.extend(misfit);
    sentences.extend(nodes_change(status));
    if witness == Some(false) {
        sentences.push(no_vote(status.group.peers.len() + 1));
    }
    let group = &status.group;
    for peer in &group.peers {
        sentences.extend(of_peer(status, peer, now));
    }
    if let Some(view) = &group.view {
        sentences.extend(view.members.iter().filter_map(|node| standing(status, *node)));
        if view.quorate && group.sender.is_none() {
            sentences.push(
                "this node has no sender ID: it waits until more than half of all configured nodes are there to \
                 lease it one, and sends nothing encrypted until then"
                    .into(),
            );
        }
    }
    sentences.extend(moves(status, now));
    sentences.extend(differences::sentences(status));
    sentences
}

/// Why the cluster as a whole does not run.
fn phase(status: &ClusterStatus) -> Vec<String> {
    let group = &status.group;
    let configured = group.peers.len() + 1;
    if let Some(obstacle) = &group.obstacle {
        return vec![obstacle.to_string()];
    }
    let text = match group.phase {
        // A view that does not begin has an obstacle.
        Phase::Running | Phase::Exchange => return Vec::new(),
        Phase::Down => {
            "corosync is not there, or has told no view: see `systemctl status corosync`".to_owned()
        }
        Phase::NoQuorum => {
            let here = group.view.as_ref().map_or(0, |view| view.members.len());
            let witness = match configured {
                2 => {
                    " (a node that was not the last to go on alone waits for the other, whatever a witness says)"
                }
                _ => "",
            };
            format!(
                "no quorum: {here} of {configured} nodes are here, without a majority of the votes{witness}; no IKE is \
                 spoken and nothing is taken over until there is one"
            )
        }
    };
    vec![text]
}

/// How far a change of the nodes has come.
fn nodes_change(status: &ClusterStatus) -> Option<String> {
    let rosters = &status.group.rosters;
    if let Some(next) = &rosters.next {
        return Some(format!(
            "the nodes of the cluster become {}: this waits until all members have written it to their disks",
            names(&next.ids())
        ));
    }
    let behind = &status.engines_behind;
    (rosters.settled.number > 0 && !behind.is_empty()).then(|| {
        format!(
            "corosync of nodes {} has other nodes than the cluster ({}): change the nodelist of corosync.conf there, then \
             run `corosync-cfgtool -R` on one of them",
            names(behind),
            names(&rosters.settled.ids())
        )
    })
}

/// What it means that the witness does not vote.
fn no_vote(configured: usize) -> String {
    let meaning = match configured {
        2 => "it does not go on without the other",
        _ => "the nodes have to be a majority without it",
    };
    format!(
        "the witness gives this node no vote: {meaning}; see `corosync-quorumtool -s` here, and corosync-qnetd there"
    )
}

/// Why a node is suspected, or not there.
fn of_peer(status: &ClusterStatus, peer: &PeerStatus, now: Time) -> Option<String> {
    let node = peer.node;
    if !peer.member {
        let text = match peer.heard {
            None => "no heartbeat of it has ever come",
            Some(_) if status.group.view.is_some() => "corosync counts it out",
            Some(_) => "there is no view",
        };
        return Some(format!("node {node} is absent: {text}"));
    }
    if !status.suspects.contains(&node) {
        return None;
    }
    let threshold = millis(peer.threshold);
    let silence = match peer.heard {
        Some(at) => format!("nothing has been heard of it for {} ms, on any link", millis(now.since(at))),
        None => "nothing has been heard of it, on any link".to_owned(),
    };
    Some(format!(
        "node {node} is suspect: {silence}, and it is one after {threshold} ms; standbys carry its packets until it is heard \
         again, or corosync counts it out"
    ))
}

/// Why a member owns nothing.
fn standing(status: &ClusterStatus, node: NodeId) -> Option<String> {
    let left = match owned(status, node) {
        0 => "it owns none".to_owned(),
        count => format!("{count} are still to go"),
    };
    if status.drained.contains(&node) {
        return Some(format!(
            "node {node} is drained: its shards go to the other nodes, {left}; `testudo drain --undo {node}` gives them \
             back"
        ));
    }
    if status.unfit.contains(&node) {
        return Some(format!(
            "node {node} has lost a port: its shards go to nodes that have all of theirs, {left}"
        ));
    }
    if status.fresh.contains(&node) {
        let awaited = names(&status.awaited);
        return Some(format!(
            "node {node} is being brought up to date: nodes {awaited} have not told it all that they own; then it gets its \
             shards, one by one"
        ));
    }
    None
}

/// Which shards move, where to, and what for.
fn moves(status: &ClusterStatus, now: Time) -> Vec<String> {
    let mut sentences = Vec::new();
    for (to, count) in &status.misplaced {
        sentences.push(format!("{count} shards of this node are to go to node {to}, at most 16 at a time"));
    }
    for (shard, stage) in &status.handovers {
        let number = shard.0;
        sentences.push(match stage {
            HandoverStage::Offered(to) => {
                format!("shard {number} is offered to node {to}: this node carries it until all have heard that")
            }
            HandoverStage::Stopped(to) => format!(
                "shard {number} is about to go to node {to}: this node's workers finish what they have of it, and node {to} \
                 keeps back what comes"
            ),
            HandoverStage::Dropped => {
                format!("shard {number} has been given away: another node's as soon as all have heard that")
            }
        });
    }
    if !status.arrivals.is_empty() {
        sentences.push(format!(
            "shards {} are about to come here: their packets are kept back until their owner has told the last of them",
            list(status.arrivals)
        ));
    }
    for (shards, at) in &status.takes {
        let shards = list(*shards);
        sentences.push(match at {
            Some(at) => format!(
                "shards {shards} are this node's in {} ms: what their former owners may still send has run out by then",
                millis(at.since(now))
            ),
            None => format!("shards {shards} are this node's as soon as all have heard that"),
        });
    }
    if status.untold > 0 {
        sentences.push(format!(
            "this node has still to tell {} SAs to nodes that are being brought up to date",
            status.untold
        ));
    }
    sentences
}

/// Numbers of shards, in ranges.
fn list(shards: ShardSet) -> String {
    let mut ranges: Vec<(u8, u8)> = Vec::new();
    for shard in shards.iter() {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(shard.0) => *last = shard.0,
            _ => ranges.push((shard.0, shard.0)),
        }
    }
    let shown = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_base::spi::Shard;

    #[test]
    fn shards_are_listed_in_ranges() {
        let of = |numbers: &[u8]| list(numbers.iter().copied().map(Shard).collect());
        assert_eq!(of(&[0, 1, 2, 7, 254, 255]), "0-2 7 254-255");
        assert_eq!(of(&[]), "");
    }
}
