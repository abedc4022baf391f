//! Corosync's count of votes against the rule of testudo.toml: whether what it calls quorate counts,
//! and what operators are told where the two do not fit.

use crate::group::{Majorities, QuorumRule};
use crate::node::NodeId;
use testudo_corosync::{VoteInfo, VoteOptions};

/// The nodes of a cluster, and which of them may go on without the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Electorate {
    /// The nodes that count: while one is added or removed, those before and those after.
    pub nodes: Majorities,
    /// How often the nodes have been changed.
    pub number: u64,
    /// The rule of testudo.toml.
    pub rule: QuorumRule,
}

/// What corosync says of a ring that it calls quorate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) info: VoteInfo,
    /// The nodes of its daemons.
    pub(super) daemons: Vec<NodeId>,
}

impl Electorate {
    /// True if no other ring can be quorate beside one of these daemons that corosync calls quorate,
    /// or the members vote on that. Corosync counts by the nodes of corosync.conf, which may not
    /// have been changed yet.
    pub(super) fn trusts(self, info: &VoteInfo, daemons: &[NodeId]) -> bool {
        let most = self.nodes.have(|node| daemons.contains(&node));
        let counts = is_majority(info.quorum, info.highest_expected, daemons.len());
        let VoteOptions { last_man_standing, auto_tie_breaker, .. } = info.options;
        match self.rule {
            QuorumRule::LastManStanding => true,
            // Nodes that left before would count as they did then.
            QuorumRule::Majority if last_man_standing => most,
            // A tie can be broken. Corosync also breaks that of an odd number, rounded down.
            QuorumRule::Majority if auto_tie_breaker || info.device_votes > 0 => {
                counts && self.nodes.have_half(|node| daemons.contains(&node))
            }
            QuorumRule::Majority => counts && most,
        }
    }
}

impl QuorumRule {
    /// What is wrong in corosync.conf for this rule, and what follows from it.
    pub(super) fn misfit(self, options: VoteOptions) -> Option<String> {
        let VoteOptions { wait_for_all, last_man_standing, auto_tie_breaker } = options;
        match self {
            Self::Majority if last_man_standing => Some(
                "corosync.conf has quorum.last_man_standing: 1, and testudo.toml has cluster.quorum = \"majority\": half \
                 of the configured nodes or fewer do not go on. Set cluster.quorum = \"last_man_standing\" on all nodes, or \
                 remove last_man_standing from corosync.conf"
                    .to_owned(),
            ),
            Self::Majority => None,
            Self::LastManStanding => {
                let lacks = [
                    (last_man_standing, "last_man_standing: 1 (without it, takeover ends when half of the nodes are gone)"),
                    (auto_tie_breaker, "auto_tie_breaker: 1 (without it, none of the last two nodes goes on alone)"),
                    (wait_for_all, "wait_for_all: 1 (without it, corosync calls nodes quorate that have started without the others)"),
                ];
                let lacks: Vec<&str> = lacks.iter().filter(|(is_set, _)| !is_set).map(|(_, name)| *name).collect();
                (!lacks.is_empty()).then(|| {
                    format!(
                        "testudo.toml has cluster.quorum = \"last_man_standing\", and the section quorum of corosync.conf lacks \
                         {}; see votequorum(5)",
                        lacks.join(", ")
                    )
                })
            }
        }
    }
}

/// True for a ring of one daemon that is quorate by `two_node: 1` alone.
pub(super) fn is_two_node(info: &VoteInfo, daemons: usize) -> bool {
    let VoteOptions { last_man_standing, auto_tie_breaker, .. } = info.options;
    !(last_man_standing || auto_tie_breaker || is_majority(info.quorum, info.highest_expected, daemons))
}

/// With `two_node: 1` one vote of two is a quorum, and each half of a divided cluster has it. A
/// node that sees both daemons is alone in that all the same.
fn is_majority(quorum: u32, votes: u32, daemons: usize) -> bool {
    let votes = u64::from(votes);
    u64::from(quorum) * 2 > votes || daemons as u64 * 2 > votes
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: VoteOptions =
        VoteOptions { wait_for_all: false, last_man_standing: false, auto_tie_breaker: false };
    const ALL: VoteOptions =
        VoteOptions { wait_for_all: true, last_man_standing: true, auto_tie_breaker: true };

    fn nodes(count: u32) -> Vec<NodeId> {
        (1..=count).filter_map(NodeId::new).collect()
    }

    fn of(count: u32, rule: QuorumRule) -> Electorate {
        Electorate { nodes: Majorities::of(&nodes(count)), number: 0, rule }
    }

    fn info(quorum: u32, highest_expected: u32, options: VoteOptions) -> VoteInfo {
        VoteInfo { quorum, highest_expected, device_votes: 0, device_casts: false, options }
    }

    #[test]
    fn one_vote_of_two_is_no_majority_whatever_corosync_calls_it() {
        assert!(is_majority(2, 3, 2) && is_majority(2, 2, 2) && is_majority(3, 4, 3));
        assert!(is_majority(2, 3, 1), "one daemon, and the vote of a device");
        assert!(!is_majority(1, 2, 1), "two_node");
        assert!(is_majority(1, 2, 2), "two_node, with both there");
        assert!(is_majority(1, 1, 1), "a cluster of one");
    }

    #[test]
    fn by_majority_a_quorum_that_has_shrunk_does_not_count() {
        let majority = of(4, QuorumRule::Majority);
        assert!(majority.trusts(&info(3, 4, ALL), &nodes(3)));
        assert!(!majority.trusts(&info(2, 3, ALL), &nodes(2)), "two of three that were left");
        assert!(of(4, QuorumRule::LastManStanding).trusts(&info(2, 3, ALL), &nodes(2)), "the members vote");
    }

    #[test]
    fn by_majority_a_tie_is_broken_of_an_even_number_only() {
        let ties = VoteOptions { auto_tie_breaker: true, ..NONE };
        assert!(of(4, QuorumRule::Majority).trusts(&info(3, 4, ties), &nodes(2)));
        assert!(!of(5, QuorumRule::Majority).trusts(&info(3, 5, ties), &nodes(2)), "beside three");
    }

    #[test]
    fn by_majority_the_nodes_of_the_cluster_count_and_not_those_of_corosync() {
        let four = of(4, QuorumRule::Majority);
        assert!(!four.trusts(&info(2, 3, NONE), &nodes(2)), "corosync.conf lacks the fourth yet");
        let three = of(3, QuorumRule::Majority);
        let others = [3, 4, 5].map(|number| NodeId::new(number).unwrap());
        assert!(!three.trusts(&info(3, 5, NONE), &others), "two of these have been removed");
        let device = VoteInfo { device_votes: 1, ..info(2, 3, NONE) };
        assert!(of(2, QuorumRule::Majority).trusts(&device, &nodes(1)), "one of two, and a witness");
        assert!(!three.trusts(&device, &nodes(1)), "corosync.conf lacks the third yet");
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let last = QuorumRule::LastManStanding;
        assert_eq!((QuorumRule::Majority.misfit(NONE), last.misfit(ALL)), (None, None));
        let told = QuorumRule::Majority.misfit(ALL).unwrap();
        assert!(told.contains("cluster.quorum = \"majority\""), "{told}");
        let told = last.misfit(VoteOptions { auto_tie_breaker: false, ..ALL }).unwrap();
        assert!(told.contains("lacks auto_tie_breaker: 1 (") && !told.contains("wait_for_all"), "{told}");
        let told = last.misfit(NONE).unwrap();
        assert!(told.contains("last_man_standing: 1 (") && told.contains("wait_for_all: 1 ("), "{told}");
    }
}
