//! Deadlines of very many IKE SAs at once.

use crate::scenarios::common::allocator::Watched;
use crate::scenarios::common::{connection, secret};
use std::net::Ipv4Addr;
use std::time::Duration;
use testudo_base::spi::SenderId;
use testudo_ike::config::StartAction;
use testudo_ike::endpoint::{Endpoint, EndpointConfig};
use testudo_ike::output::{Output, Time};

/// What one call may do at most: others must get their turn, and a signal be heard.
const MOST: usize = 256;

/// Messages that wait to be sent, by their receivers.
fn sent(endpoint: &mut Endpoint) -> Vec<std::net::SocketAddr> {
    let outputs = std::iter::from_fn(|| endpoint.poll_output());
    let to = |output| if let Output::Send { path, .. } = output { Some(path.remote) } else { None };
    outputs.filter_map(to).collect()
}

/// Thousands of peers do not answer: each is asked again, once, and no call asks more than some.
#[test]
fn no_call_serves_more_than_some_and_all_are_served_in_turn() {
    const PEERS: usize = 1000;
    let (alloc, _) = Watched::new(1, SenderId(1));
    let mut endpoint = Endpoint::new(EndpointConfig::default(), Box::new(alloc));
    endpoint.load_secret(secret("all", b"everybody's key", &[]));
    for number in 0..PEERS as u32 {
        let addr = Ipv4Addr::from_bits(0x0a00_0000 + number).to_string();
        let mut site = connection(("192.0.2.254", "gw"), (&addr, "host"));
        site.name = format!("site{number}");
        site.children[0].start_action = StartAction::None;
        endpoint.load_connection(Time::default(), site).unwrap();
        endpoint.initiate(Time::default(), Some(&format!("site{number}")), "net").unwrap();
        sent(&mut endpoint);
    }
    for seconds in [5, 13] {
        let now = Time(Duration::from_secs(seconds));
        let mut asked = Vec::new();
        let mut calls = 0;
        while endpoint.next_timeout().is_some_and(|due| due <= now) {
            endpoint.handle_timeout(now);
            let some = sent(&mut endpoint);
            assert!(some.len() <= MOST, "{} in one call", some.len());
            asked.extend(some);
            calls += 1;
        }
        assert!(calls <= PEERS.div_ceil(MOST) + 1, "{calls}");
        asked.sort();
        let all = asked.len();
        asked.dedup();
        assert_eq!((all, asked.len()), (PEERS, PEERS));
    }
}
