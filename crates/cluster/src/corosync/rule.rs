//! Corosync's count of votes against the rule of testudo.toml: whether what it calls quorate counts,
//! and what operators are told where the two do not fit.

use crate::group::QuorumRule;
use testudo_corosync::{VoteInfo, VoteOptions};

/// The nodes of a cluster, and which of them may go on without the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Electorate {
    /// Number of configured nodes.
    pub nodes: usize,
    /// The rule of testudo.toml.
    pub rule: QuorumRule,
}

impl Electorate {
    /// True if no other ring can be quorate beside one of this many daemons that corosync calls
    /// quorate, or the members vote on that.
    pub(super) fn trusts(self, info: &VoteInfo, daemons: u32) -> bool {
        let (here, all) = (u64::from(daemons) * 2, self.nodes as u64);
        let counts = is_majority(info.quorum, info.highest_expected, daemons);
        match self.rule {
            QuorumRule::LastManStanding => true,
            // Nodes that left before would count as they did then.
            QuorumRule::Majority if info.options.last_man_standing => here > all,
            // Corosync also breaks a tie of an odd number, rounded down.
            QuorumRule::Majority if info.options.auto_tie_breaker => here >= all && counts,
            QuorumRule::Majority => counts,
        }
    }

    /// What is wrong in corosync.conf for this rule, and what follows from it.
    pub(super) fn misfit(self, options: VoteOptions) -> Option<String> {
        let VoteOptions { wait_for_all, last_man_standing, auto_tie_breaker } = options;
        match self.rule {
            QuorumRule::Majority if last_man_standing => Some(
                "corosync.conf has quorum.last_man_standing: 1, and testudo.toml has cluster.quorum = \"majority\": half \
                 of the configured nodes or fewer do not go on. Set cluster.quorum = \"last_man_standing\" on all nodes, or \
                 remove last_man_standing from corosync.conf"
                    .to_owned(),
            ),
            QuorumRule::Majority => None,
            QuorumRule::LastManStanding => {
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

/// With `two_node: 1` one vote of two is a quorum, and each half of a divided cluster has it. A
/// node that sees both daemons is alone in that all the same.
fn is_majority(quorum: u32, votes: u32, daemons: u32) -> bool {
    let votes = u64::from(votes);
    u64::from(quorum) * 2 > votes || u64::from(daemons) * 2 > votes
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: VoteOptions =
        VoteOptions { wait_for_all: false, last_man_standing: false, auto_tie_breaker: false };
    const ALL: VoteOptions =
        VoteOptions { wait_for_all: true, last_man_standing: true, auto_tie_breaker: true };

    fn of(nodes: usize, rule: QuorumRule) -> Electorate {
        Electorate { nodes, rule }
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
        assert!(majority.trusts(&info(3, 4, ALL), 3));
        assert!(!majority.trusts(&info(2, 3, ALL), 2), "two of three that were left");
        assert!(of(4, QuorumRule::LastManStanding).trusts(&info(2, 3, ALL), 2), "the members vote");
    }

    #[test]
    fn by_majority_a_tie_is_broken_of_an_even_number_only() {
        let ties = VoteOptions { auto_tie_breaker: true, ..NONE };
        assert!(of(4, QuorumRule::Majority).trusts(&info(3, 4, ties), 2));
        assert!(!of(5, QuorumRule::Majority).trusts(&info(3, 5, ties), 2), "beside three");
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let last = of(4, QuorumRule::LastManStanding);
        assert_eq!((of(4, QuorumRule::Majority).misfit(NONE), last.misfit(ALL)), (None, None));
        let told = of(4, QuorumRule::Majority).misfit(ALL).unwrap();
        assert!(told.contains("cluster.quorum = \"majority\""), "{told}");
        let told = last.misfit(VoteOptions { auto_tie_breaker: false, ..ALL }).unwrap();
        assert!(told.contains("lacks auto_tie_breaker: 1 (") && !told.contains("wait_for_all"), "{told}");
        let told = last.misfit(NONE).unwrap();
        assert!(told.contains("last_man_standing: 1 (") && told.contains("wait_for_all: 1 ("), "{told}");
    }
}
