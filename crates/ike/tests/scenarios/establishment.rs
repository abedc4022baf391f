//! Two endpoints set up a tunnel.

use crate::common::{Weather, World};
use testudo_ike::endpoint::IkeSaState;
use testudo_ike::output::Event;

#[test]
fn two_endpoints_set_up_a_tunnel() {
    let mut world = World::pair(1, Weather::FAIR);
    let id = world.initiate(0);
    world.run_secs(1);
    world.assert_tunnel();
    let [moon, sun] = [0, 1].map(|index| world.hosts[index].sas().remove(0));
    assert_eq!((moon.state, sun.state), (IkeSaState::Established, IkeSaState::Established));
    assert_eq!((moon.spi_i, moon.spi_r), (sun.spi_i, sun.spi_r));
    assert!(moon.initiator && !sun.initiator);
    assert!(world.hosts[0].events.contains(&Event::IkeUp(id)));
    assert_eq!(world.hosts[0].results().len(), 1);
    assert!(world.hosts[0].results()[0].is_ok());
}
