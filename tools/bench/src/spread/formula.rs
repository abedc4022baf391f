//! The speed-up of a flat cluster, by the formula of [FLAT].
//!
//! Every node receives every packet. It works on its share of them, at a cost of R each, and drops
//! the others, at a cost of Q each. All packets together are done when the busiest node has done
//! its part.

/// The throughput of a cluster whose nodes have these shares of all packets, relative to that of
/// one node that works on all of them. `own` is R, `other` is Q.
pub(super) fn speed_up(own: f64, other: f64, shares: &[f64]) -> f64 {
    let busiest = shares.iter().map(|share| share * own + (1.0 - share) * other).fold(0.0, f64::max);
    own / busiest
}

/// The same share for each node.
pub(super) fn even(nodes: u8) -> Vec<f64> {
    vec![1.0 / f64::from(nodes); nodes.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 4-2 of [FLAT], which fits Q = 0.0172 R to these measurements.
    #[test]
    fn the_formula_gives_the_papers_figures() {
        for (nodes, measured) in [(1, 1.0), (2, 1.9663), (3, 2.9081), (4, 3.8221), (5, 4.6597), (6, 5.5073)] {
            let computed = speed_up(1.0, 0.0172, &even(nodes));
            assert!((computed - measured).abs() < 0.03, "{nodes} nodes: {computed}, measured {measured}");
        }
    }

    #[test]
    fn the_busiest_node_decides() {
        assert_eq!(speed_up(100.0, 0.0, &[0.25, 0.25, 0.5]), 2.0);
        assert_eq!(speed_up(100.0, 20.0, &[0.5, 0.5]), 100.0 / 60.0);
        assert_eq!(speed_up(100.0, 20.0, &[1.0, 0.0]), 1.0, "one node works on everything");
    }

    #[test]
    fn dropping_that_costs_as_much_as_working_leaves_no_speed_up() {
        assert_eq!(speed_up(70.0, 70.0, &even(6)), 1.0);
    }
}
