//! Half of the nodes or fewer are told that others may have had a quorum.

use super::*;

/// A process that stood still for a moment finds both reports about quorum before the ring that
/// they are about.
#[test]
fn half_of_the_nodes_hear_that_quorum_was_gone_before_it_came_back() {
    for (configured, told) in [(2, 2), (1, 1)] {
        let mut cluster = Cluster { ring: R1, configured, ..Cluster::default() };
        cluster.join(process(1));
        cluster.settle();
        let before = cluster.views(process(1)).len();
        cluster.ring = R2;
        cluster.quorum(process(1), false);
        cluster.quorum(process(1), true);
        cluster.change_ring(R2);
        cluster.settle();
        let quorate: Vec<bool> =
            cluster.views(process(1))[before..].iter().map(|view| view.quorate).collect();
        assert_eq!(quorate, [false, true][2 - told..]);
    }
}
