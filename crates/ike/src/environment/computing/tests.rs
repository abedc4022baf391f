use super::*;
use crate::sa::HalfOpenSource;

const MOON: Peer = Peer::Identity(1);
const SUN: Peer = Peer::Identity(2);

fn purpose(ike: u64) -> Purpose {
    Purpose::Sa { ike: IkeSaId(ike), response: false }
}

fn job(id: JobId) -> Job {
    fn nothing(_: &mut Environment, _: Time) {}
    Job { id, takes_long: true, work: Box::new(|| -> Then { Box::new(nothing) }) }
}

/// Hands out a job for that IKE SA of that peer.
fn hand_out(jobs: &mut Jobs, peer: Peer, ike: u64) -> JobId {
    let id = jobs.begin(purpose(ike), JobOwner::Peer(peer));
    jobs.push(JobOwner::Peer(peer), job(id));
    id
}

#[test]
fn peers_take_turns() {
    let mut jobs = Jobs::default();
    let of_moon: Vec<JobId> = (0..5).map(|ike| hand_out(&mut jobs, MOON, ike)).collect();
    let of_sun: Vec<JobId> = (5..7).map(|ike| hand_out(&mut jobs, SUN, ike)).collect();
    let taken: Vec<JobId> = std::iter::from_fn(|| jobs.take()).map(|job| job.id()).collect();
    let [m, s] = [of_moon, of_sun];
    assert_eq!(taken, [m[0], s[0], m[1], s[1], m[2], m[3], m[4]]);
    assert!(jobs.of_sas.queues.is_empty() && jobs.of_sas.order.is_empty());
    // One that comes again is at the end of the line.
    let (first, second) = (hand_out(&mut jobs, SUN, 8), hand_out(&mut jobs, MOON, 9));
    let taken: Vec<JobId> = std::iter::from_fn(|| jobs.take()).map(|job| job.id()).collect();
    assert_eq!(taken, [first, second]);
}

#[test]
fn jobs_count_against_their_peer_over_all_its_ike_sas() {
    let mut jobs = Jobs::default();
    let ids: Vec<JobId> = (0..4).map(|ike| hand_out(&mut jobs, MOON, ike)).collect();
    assert!(jobs.is_full(JobOwner::Peer(MOON), 16));
    assert!(!jobs.is_full(JobOwner::Peer(MOON), 20));
    assert!(!jobs.is_full(JobOwner::Peer(SUN), 16));
    // Fetched ones count until they are back, and once.
    while jobs.take().is_some() {}
    assert!(jobs.is_full(JobOwner::Peer(MOON), 16));
    assert!(jobs.end(ids[0]).is_some() && jobs.end(ids[0]).is_none());
    assert!(!jobs.is_full(JobOwner::Peer(MOON), 16));
    for id in ids {
        jobs.end(id);
    }
    assert!(jobs.peers.is_empty() && jobs.out.is_empty());
}

/// With a small limit every peer has one job, and all together no more than the limit.
#[test]
fn all_peers_together_have_a_limit() {
    let mut jobs = Jobs::default();
    assert!(!jobs.is_full(JobOwner::Peer(MOON), 2));
    hand_out(&mut jobs, MOON, 1);
    assert!(jobs.is_full(JobOwner::Peer(MOON), 2) && !jobs.is_full(JobOwner::Peer(SUN), 2));
    hand_out(&mut jobs, SUN, 2);
    assert!(jobs.is_full(JobOwner::Peer(Peer::Identity(3)), 2));
}

/// Many peers that we initiate IKE SAs to may have one address.
#[test]
fn an_address_is_no_peer_to_count_against() {
    let mut jobs = Jobs::default();
    let addr = Peer::Address("192.0.2.1".parse().unwrap());
    for ike in 0..15 {
        hand_out(&mut jobs, addr, ike);
    }
    assert!(!jobs.is_full(JobOwner::Peer(addr), 16));
    hand_out(&mut jobs, addr, 15);
    assert!(jobs.is_full(JobOwner::Peer(addr), 16));
}

fn claimant(addr: &str, connections: usize) -> Claimant {
    Claimant { source: HalfOpenSource { addr: addr.parse().unwrap(), proven: true }, connections }
}

/// One network has half of the places of strangers, over all of its sources; the next has half of
/// the rest. What is left is for others, and a quarter for peers that connections name.
#[test]
fn a_network_leaves_places_for_others() {
    for owner in [JobOwner::Stranger, JobOwner::HalfOpen] {
        let mut jobs = Jobs::default();
        let mut number = 0;
        let mut fill = |jobs: &mut Jobs, network: u32| {
            let mut ids = Vec::new();
            for source in 0..1000 {
                let owner =
                    owner(claimant(&format!("2001:db8:{network:x}:{:x}::1", source << 8 & 0xffff), 0));
                if !jobs.is_full(owner, 1000) {
                    number += 1;
                    ids.push(jobs.begin(purpose(number), owner));
                }
            }
            ids
        };
        let first = fill(&mut jobs, 1);
        assert_eq!([first.len(), fill(&mut jobs, 2).len(), fill(&mut jobs, 3).len()], [376, 188, 94]);
        assert!(!jobs.is_full(owner(claimant("192.0.2.1", 0)), 1000), "a stranger from elsewhere");
        for network in 4..100 {
            fill(&mut jobs, network);
        }
        assert_eq!(jobs.count(), 750);
        assert!(jobs.is_full(owner(claimant("192.0.2.1", 0)), 1000), "strangers have no place left");
        assert!(!jobs.is_full(owner(claimant("192.0.2.1", 1)), 1000), "one whose address is configured");
        assert!(!jobs.is_full(JobOwner::Peer(MOON), 1), "one that has authenticated");
        for id in first {
            assert!(jobs.end(id).is_some());
        }
        assert!(!jobs.is_full(owner(claimant("192.0.2.1", 0)), 1000));
    }
}

/// Neither requests for new IKE SAs nor half-open ones take the places of the other.
#[test]
fn requests_and_half_open_ike_sas_are_counted_apart() {
    let moon = claimant("192.0.2.1", 1);
    let [request, handshake] = [JobOwner::Stranger(moon), JobOwner::HalfOpen(moon)];
    for (taken, free) in [(request, handshake), (handshake, request)] {
        let mut jobs = Jobs::default();
        let id = jobs.begin(purpose(1), taken);
        assert!(jobs.is_full(taken, 1) && !jobs.is_full(free, 1) && !jobs.is_full(JobOwner::Peer(MOON), 1));
        jobs.end(id);
        assert!(!jobs.is_full(taken, 1));
        assert!(jobs.strangers.networks.is_empty() && jobs.half_open.networks.is_empty());
    }
}

/// However many jobs a network has, one of another network waits for at most one of them.
#[test]
fn networks_take_turns() {
    for owner in [JobOwner::Stranger, JobOwner::HalfOpen] {
        let mut jobs = Jobs::default();
        let addrs = ["2001:db8::1", "2001:db8:0:100::1", "2001:db8:0:200::1", "2001:db8:1::1"];
        let ids = (1..).zip(addrs).map(|(number, addr)| {
            let owner = owner(claimant(addr, 0));
            let id = jobs.begin(purpose(number), owner);
            jobs.push(owner, job(id));
            id
        });
        let ids: Vec<JobId> = ids.collect();
        let taken: Vec<JobId> = std::iter::from_fn(|| jobs.take()).map(|job| job.id()).collect();
        assert_eq!(taken, [ids[0], ids[3], ids[1], ids[2]]);
    }
}
