//! The memory of an established IKE SA with its Child SA, so that tens of thousands fit.

use crate::scenarios::common::allocator::Watched;
use crate::scenarios::common::{connection, secret};
use std::net::SocketAddr;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_ike::alloc::Allocator;
use testudo_ike::endpoint::{Endpoint, EndpointConfig};
use testudo_ike::output::{Output, Path, Time};

const TUNNELS: u64 = 200;
/// Octets of each, the answer that may have to be repeated included.
const LIMIT: i64 = 2000;
const GATEWAY: &str = "192.0.2.254";

fn endpoint(seed: u64) -> Endpoint {
    let (mut alloc, _) = Watched::new(seed, SenderId(1));
    // The tables of slots of all shards are there once.
    for shard in 0..=u8::MAX {
        alloc.claim_esp_spi(Spi::from_parts(Shard(shard), 1, 0).unwrap());
    }
    let mut endpoint = Endpoint::new(EndpointConfig::default(), Box::new(alloc));
    endpoint.load_secret(secret("all", b"everybody's key", &[]));
    endpoint
}

/// Hands a message in, and copies the answer, if there is one, into memory that is there already.
fn exchange(endpoint: &mut Endpoint, path: Path, message: &[u8], answer: &mut Vec<u8>) -> i64 {
    let info = allocation_counter::measure(|| {
        endpoint.handle_datagram(Time::default(), path, message);
        while let Some(output) = endpoint.poll_output() {
            if let Output::Send { bytes, .. } = output {
                answer.clear();
                answer.extend_from_slice(&bytes);
            }
        }
    });
    info.bytes_current
}

#[test]
fn a_tunnel_takes_little_memory() {
    let mut gateway = endpoint(1);
    let mut everybody = connection((GATEWAY, "gw"), ("192.0.2.1", "host"));
    everybody.remote_addrs.clear();
    everybody.remote.id = None;
    gateway.load_connection(Time::default(), everybody).unwrap();
    let mut taken = 0;
    let (mut request, mut answer) = (Vec::with_capacity(1 << 16), Vec::with_capacity(1 << 16));
    for number in 0..TUNNELS {
        let addr = format!("192.0.2.{}", number + 1);
        let mut peer = endpoint(2 + number);
        peer.load_connection(Time::default(), connection((&addr, "host"), (GATEWAY, "gw"))).unwrap();
        peer.initiate(Time::default(), None, "net").unwrap();
        let [near, far] = [&addr, GATEWAY].map(|ip| SocketAddr::new(ip.parse().unwrap(), 500));
        let (there, back) = (Path { local: near, remote: far }, Path { local: far, remote: near });
        while let Some(output) = peer.poll_output() {
            if let Output::Send { bytes, .. } = output {
                request.clone_from(&bytes);
            }
        }
        // IKE_SA_INIT and IKE_AUTH. The first tunnel also brings what there is once.
        for _ in 0..2 {
            let more = exchange(&mut gateway, back, &request, &mut answer);
            taken += if number == 0 { 0 } else { more };
            exchange(&mut peer, there, &answer, &mut request);
        }
    }
    assert_eq!(gateway.sas().filter(|sa| sa.children.len() == 1).count(), TUNNELS as usize);
    let each = taken / (TUNNELS as i64 - 1);
    assert!(each <= LIMIT, "{each} octets a tunnel");
    assert!(each > 500, "{each} octets: the allocator was not watched");
}
