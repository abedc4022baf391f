//! Failovers of either side at random, in foul weather, against what must hold of windows in any
//! case (RFC 6311 §5.1).

use crate::scenarios::common::wire::assert_ivs_never_repeat;
use crate::scenarios::common::world::handing_out;
use crate::scenarios::common::{Weather, World};
use crate::scenarios::counter_sync::assert_windows_fit;
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::message::{ExchangeType, IkeSpi, Message, MessageId};

/// The knowledge of an observer of all states.
#[derive(Default)]
struct Model {
    /// How far the windows of each IKE SA were.
    windows: BTreeMap<(usize, IkeSpi, IkeSpi), (MessageId, MessageId)>,
    /// Requests by SPIs, direction and Message ID, with their content.
    requests: BTreeMap<(IkeSpi, IkeSpi, bool, MessageId), Vec<u8>>,
    looked_at: [usize; 2],
}

impl Model {
    fn look(&mut self, world: &World) {
        for (index, host) in world.hosts.iter().enumerate() {
            for sa in host.sas() {
                let now = host.endpoint.replication().message_ids(sa.id).unwrap();
                let before = self.windows.insert((index, sa.spi_i, sa.spi_r), now).unwrap_or_default();
                assert!(now.0 >= before.0 && now.1 >= before.1, "{before:?}, then {now:?}");
            }
            for (_, bytes) in &host.sent[self.looked_at[index]..] {
                self.sent(bytes);
            }
            self.looked_at[index] = host.sent.len();
        }
    }

    /// One content for each number, but beside the windows.
    fn sent(&mut self, bytes: &[u8]) {
        let message = Message::parse(bytes).unwrap();
        let header = message.header;
        let beside = header.exchange == ExchangeType::Informational && header.message_id == MessageId(0);
        let Some(encrypted) = message.encrypted.filter(|_| !header.response && !beside) else { return };
        assert!(encrypted.fragment.is_none());
        let (i, r) = (header.initiator_spi, header.responder_spi);
        let name = (i, r, header.from_initiator, header.message_id);
        let first = self.requests.entry(name).or_insert_with(|| bytes.to_vec());
        assert_eq!(first, bytes, "{header:?} is used twice");
    }
}

/// Gives how many synchronizations there were.
fn storm(seed: u64, config: EndpointConfig) -> usize {
    let addrs = ["192.0.2.1", "192.0.2.2"];
    let mut world = World::pair_of(addrs, seed, Weather::FOUL, config, |_, connection| {
        connection.keyingtries = 0;
        connection.dpd_delay = Duration::from_secs(30);
    });
    world.initiate(0);
    world.run_secs(60);
    let (mut model, mut syncs) = (Model::default(), 0);
    let end = world.now.plus(Duration::from_secs(200));
    while world.step(end) {
        model.look(&world);
        let host = world.network.random.below(2) as usize;
        let (now, what) = (world.now, world.network.random.below(100));
        let Some(sa) = world.hosts[host].sas().into_iter().next() else { continue };
        let endpoint = &mut world.hosts[host].endpoint;
        match what {
            0..5 => {
                world.hosts[host].take_over(now);
                syncs +=
                    usize::from(world.hosts[host].endpoint.replication_mut().sync_message_ids(now, sa.id));
            }
            5 => _ = endpoint.replication_mut().sync_replay_counters(now, sa.id, 10),
            6 => _ = sa.children.first().map(|child| endpoint.rekey_child(now, child.id)),
            _ => {}
        }
        world.settle(host);
    }
    // When everything has ended, both know the same.
    world.network.weather = Weather::FAIR;
    world.run_secs(300);
    model.look(&world);
    world.assert_tunnel();
    assert_eq!(world.hosts.iter().map(|host| host.sas().len()).collect::<Vec<_>>(), [1, 1], "{seed}");
    assert_windows_fit(&world);
    assert_ivs_never_repeat(&world);
    syncs
}

#[test]
fn windows_never_go_back_and_no_number_is_used_twice() {
    let syncs: usize = (0..150).map(|seed| storm(seed, EndpointConfig::default())).sum();
    assert!(syncs > 500, "{syncs}");
}

#[test]
fn nor_where_answers_are_computed_meanwhile() {
    let syncs: usize = (200..300).map(|seed| storm(seed, handing_out())).sum();
    assert!(syncs > 300, "{syncs}");
}
