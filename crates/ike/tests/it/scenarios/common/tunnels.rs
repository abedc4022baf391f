//! An invariant of rekeying: at every moment each side accepts what the other sends.

use super::host::Host;
use super::wire::assert_ivs_never_repeat;
use super::world::assert_fit;
use super::{Weather, World};
use std::time::Duration;
use testudo_ike::endpoint::{ChildSaState, IkeSaState};
use testudo_ike::output::Event;

/// Each SA that one host sends through, the other has. Between two hosts whose tunnel is up.
pub(crate) fn assert_lossless(world: &World) {
    for (from, to) in [(0, 1), (1, 0)] {
        let (from, to) = (&world.hosts[from], &world.hosts[to]);
        assert!(!from.sending.is_empty(), "nothing goes out: {:#?}", from.log());
        for child in &from.sending {
            let spi = from.installed[child].spi_out;
            let taken = to.installed.values().any(|params| params.spi_in == spi);
            assert!(taken, "{spi} is not taken in: {:#?} {:#?}", from.log(), to.log());
        }
    }
}

/// Lets so much time pass, and looks after every event.
pub(crate) fn run_lossless(world: &mut World, time: Duration) {
    let end = world.now.plus(time);
    while world.step(end) {
        assert_lossless(world);
    }
    world.now = end;
}

/// One IKE SA with one Child SA on each side, and nothing of what was before.
pub(crate) fn assert_one_tunnel(world: &World) {
    world.assert_tunnel();
    let [a, b] = [0, 1].map(|index| {
        let host = &world.hosts[index];
        let sas = host.sas();
        assert_eq!(sas.len(), 1, "{:#?}", host.log());
        assert_eq!(sas[0].state, IkeSaState::Established);
        assert_eq!(sas[0].children.len(), 1);
        assert_eq!(sas[0].children[0].state, ChildSaState::Installed);
        assert_eq!(host.sending.len(), 1);
        assert_eq!(host.in_use.lock().unwrap().len(), 1, "no SPI is forgotten");
        ((sas[0].spi_i, sas[0].spi_r), host.installed.values().next().unwrap())
    });
    assert_eq!(a.0, b.0);
    assert_fit(a.1, b.1);
}

/// After a bad network has become good, both have the tunnel, and nothing else.
pub(crate) fn assert_weathered(world: &mut World, seed: u64) {
    world.run_secs(200);
    world.network.weather = Weather::FAIR;
    // Time for liveness checks to find what only one side has.
    world.run_secs(400);
    world.initiate(0);
    world.run_secs(60);
    let [moon, sun] = [0, 1].map(|index| &world.hosts[index].installed);
    assert!(!moon.is_empty(), "seed {seed}: {:#?}", world.hosts[0].log());
    assert_eq!(moon.len(), sun.len(), "seed {seed}");
    for params in moon.values() {
        let other = sun.values().find(|other| other.spi_in == params.spi_out);
        assert_fit(params, other.expect("each SA has two ends"));
    }
    assert_eq!(world.hosts[0].endpoint.states().count(), moon.len(), "nothing lingers");
    assert_ivs_never_repeat(world);
}

/// How often Child SAs were renewed.
pub(crate) fn child_rekeys(host: &Host) -> usize {
    host.events.iter().filter(|event| matches!(event, Event::ChildRekeyed(..))).count()
}

/// How often IKE SAs were renewed.
pub(crate) fn ike_rekeys(host: &Host) -> usize {
    host.events.iter().filter(|event| matches!(event, Event::IkeRekeyed(..))).count()
}
