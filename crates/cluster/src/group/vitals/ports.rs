//! Whether this node's ports work: it must hear others there, and be heard.
//!
//! Link 0 is the cluster's own. The others are ports, and a node that has lost one of them cannot
//! carry packets. What the driver says (carrier) counts at once. A switch that loses everything
//! says nothing. But then other nodes hear each other on that link, and not this node. Where no
//! node hears another, no node is to blame.

use super::peers::{Peer, Peers};
use crate::group::GroupConfig;
use crate::group::heartbeat::Heard;
use crate::node::NodeId;
use std::time::Duration;
use testudo_ike::output::Time;

/// A port works again after this long without complaint.
const PORT_TRIAL: Duration = Duration::from_secs(1);
/// A port that fails again and again has shards go to and fro. So each time it must do without
/// complaint for twice as long, up to this.
const MAX_PORT_TRIAL: Duration = Duration::from_secs(60);
/// After this long without complaint the trial is short again.
const TRIAL_RESET_AFTER: Duration = Duration::from_secs(300);

/// What a node hears of others on its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::group) enum Hearing {
    /// On one of them others hear each other, and this node hears none of them there, or none of
    /// them hears it.
    LeftOut,
    /// On each of them it hears another node, and is heard.
    InTouch,
    /// Neither.
    Unknown,
}

/// What is known of the ports.
#[derive(Clone, Copy, Debug)]
pub(in crate::group) struct Ports {
    /// Since when others hear each other on one of them, and not this node.
    left_out: Option<Time>,
    /// Others heard each other on one of them, and not this node. Nobody has been heard there since.
    is_silent: bool,
    /// When one of them last did not work.
    ill: Option<Time>,
    /// How long they must do without complaint until they work again.
    trial: Duration,
    /// What the layer above knows.
    told: bool,
}

impl Ports {
    /// All of them work.
    pub(in crate::group) const WELL: Self =
        Self { left_out: None, is_silent: false, ill: None, trial: PORT_TRIAL, told: true };

    /// What this node hears on the ports. True if one of them is silent: it has been left out for
    /// long, because not all nodes find at the same moment that one has fallen silent; and it is
    /// not in touch again. A node that is late itself knows nothing, which is no proof that the
    /// port works.
    pub(in crate::group) fn hear(&mut self, hearing: Hearing, now: Time, since: Time) -> bool {
        let is_left_out = hearing == Hearing::LeftOut;
        self.left_out = is_left_out.then(|| self.left_out.unwrap_or(now));
        if self.left_out.is_some_and(|at| at < since) {
            self.is_silent = true;
        } else if hearing == Hearing::InTouch {
            self.is_silent = false;
        }
        self.is_silent
    }

    /// Whether the ports work, if the layer above does not know that yet. `is_broken`: one of them
    /// does not work now.
    pub(in crate::group) fn judge(&mut self, is_broken: bool, now: Time) -> Option<bool> {
        if is_broken {
            self.complain(now);
        }
        let well = self.ill.is_none_or(|at| now.since(at) >= self.trial);
        (std::mem::replace(&mut self.told, well) != well).then_some(well)
    }

    fn complain(&mut self, now: Time) {
        if let Some(last) = self.ill.replace(now).filter(|_| self.told) {
            let calm = now.since(last) >= TRIAL_RESET_AFTER;
            self.trial = if calm { PORT_TRIAL } else { (self.trial * 2).min(MAX_PORT_TRIAL) };
        }
    }
}

/// The links on which a node was heard since then, as bits.
pub(in crate::group) fn hearing(peer: &Peer, since: Time) -> u8 {
    let lately = peer.on.iter().enumerate().filter(|(_, at)| at.is_some_and(|at| at >= since));
    lately.fold(0, |bits, (link, _)| bits | 1_u8.checked_shl(link as u32).unwrap_or(0))
}

/// On which links the sender of a heartbeat hears a node, and on which it hears others.
pub(in crate::group) fn of(heard: &[Heard], node: NodeId) -> (u8, u8) {
    heard.iter().fold((0, 0), |(us, others), heard| match heard.node == node.get() {
        true => (us | heard.links, others),
        false => (us, others | heard.links),
    })
}

/// What this node has heard of others on its ports since then.
pub(in crate::group) fn heard_on_all(config: &GroupConfig, peers: &Peers, since: Time) -> Hearing {
    let mut all = (1..config.links).map(|link| heard_on(link, peers, since));
    all.try_fold(Hearing::InTouch, |all, port| match port {
        Hearing::LeftOut => Err(Hearing::LeftOut),
        Hearing::InTouch => Ok(all),
        Hearing::Unknown => Ok(Hearing::Unknown),
    })
    .unwrap_or_else(|left_out| left_out)
}

fn heard_on(link: u8, peers: &Peers, since: Time) -> Hearing {
    let bit = 1_u8.checked_shl(link.into()).unwrap_or(0);
    let (mut hears, mut heard, mut others) = (false, false, false);
    for peer in peers.all.values().filter(|peer| peer.at.is_some_and(|at| at >= since)) {
        hears |= hearing(peer, since) & bit != 0;
        heard |= peer.hearing.0 & bit != 0;
        others |= peer.hearing.1 & bit != 0;
    }
    match (hears && heard, others) {
        (true, _) => Hearing::InTouch,
        (false, true) => Hearing::LeftOut,
        (false, false) => Hearing::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port fails at each of these seconds. How long each of its failures counts.
    fn trials(failures: &[u64]) -> Vec<u64> {
        let mut ports = Ports::WELL;
        let second = |second: u64| Time(Duration::from_secs(second));
        let mut trials = Vec::new();
        for at in failures {
            assert_eq!(ports.judge(true, second(*at)), Some(false));
            let well = (*at..).find(|now| ports.judge(false, second(*now)) == Some(true));
            trials.extend(well.map(|well| well - at));
        }
        trials
    }

    #[test]
    fn a_node_hears_others_where_it_hears_any_of_them() {
        let heard = |node, links| Heard { node, boot: 6, seq: 7, age: 8, proof: 9, links };
        let all = [heard(1, 0b011), heard(2, 0b110), heard(3, 0b100), heard(4, 0b110)];
        assert_eq!(of(&all, NodeId::new(1).unwrap()), (0b011, 0b110));
        assert_eq!(of(&all, NodeId::new(9).unwrap()), (0, 0b111));
    }

    #[test]
    fn a_port_that_fails_again_and_again_must_do_without_complaint_for_longer() {
        assert_eq!(trials(&[10, 20, 30, 40, 60, 100, 200, 300]), [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(trials(&[10, 20, 319, 619]), [1, 2, 4, 1], "after five minutes all is forgotten");
    }

    #[test]
    fn a_port_counts_as_broken_only_after_a_while_without_the_others() {
        let second = |second: u64| Time(Duration::from_secs(second));
        let mut ports = Ports::WELL;
        let mut hear = |hearing, now| ports.hear(hearing, second(now), second(now - 1));
        assert!(!hear(Hearing::LeftOut, 10));
        assert!(!hear(Hearing::LeftOut, 11));
        assert!(hear(Hearing::LeftOut, 12));
        assert!(hear(Hearing::Unknown, 13), "nobody was heard there");
        assert!(!hear(Hearing::InTouch, 14));
        assert!(!hear(Hearing::LeftOut, 15), "it begins anew");
        assert!(!hear(Hearing::Unknown, 16));
    }
}
