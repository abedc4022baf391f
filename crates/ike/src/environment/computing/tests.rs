use super::*;

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
    jobs.of_sas.push(peer, job(id));
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

/// Before there is an identity, half-open IKE SAs are what counts: many peers may have one address.
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
