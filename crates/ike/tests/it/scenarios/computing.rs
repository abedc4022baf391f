//! Jobs that are out while other things happen.

use crate::pki::{NOVEMBER_2026, cert, key, public_key};
use crate::scenarios::common::build::ts;
use crate::scenarios::common::peer::exchange;
use crate::scenarios::common::tunnels::assert_weathered;
use crate::scenarios::common::wire::{assert_ivs_never_repeat, sent};
use crate::scenarios::common::world::handing_out;
use crate::scenarios::common::{Random, Weather, World};
use crate::scenarios::rounds::{MOON, Round, SUN, pair_in as rounds_in};
use crate::scenarios::strangers::init_request;
use std::time::Duration;
use testudo_ike::config::{AuthMethod, Connection, Identity, KeyExchange, LocalAuth, TsSpec};
use testudo_ike::endpoint::{Discard, EndpointConfig, Job, Target};
use testudo_ike::message::ExchangeType;
use testudo_ike::output::Path;

const ADDRS: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
/// Longer than a message is in transit, shorter than any retransmission timeout.
pub(crate) const MOMENT: Duration = Duration::from_millis(100);

/// Two hosts whose jobs the test runs.
fn pair_with(config: EndpointConfig, edit: impl Fn(usize, &mut Connection)) -> World {
    let mut world = World::pair_of(ADDRS, 1, Weather::FAIR, config, edit);
    world.hold_jobs = true;
    // A restored SA has no jobs.
    world.restore = false;
    world
}

fn pair() -> World {
    pair_with(handing_out(), |_, _| {})
}

/// Both sides by certificate, with ML-KEM behind X25519, and messages in fragments: all that a
/// handshake may have to compute.
fn hybrid(seed: u64, weather: Weather) -> World {
    let config = EndpointConfig { fragment_size: 576, ..handing_out() };
    let mut world = World::pair_of(ADDRS, seed, weather, config, |index, connection| {
        let own = cert(["moon-P-256", "sun-ed25519"][index]);
        connection.local = LocalAuth::by_certificate(None, vec![own]);
        connection.remote.method = AuthMethod::PUBKEY;
        connection.remote.id = None;
        connection.proposals[0].additional[0] = vec![Some(KeyExchange::MlKem768)];
        connection.keyingtries = 0;
        connection.dpd_delay = Duration::from_secs(30);
    });
    for (host, own) in world.hosts.iter_mut().zip(["moon-P-256", "sun-ed25519"]) {
        host.endpoint.set_unix_time(world.now, NOVEMBER_2026);
        host.endpoint.credentials_mut().load_certificate(cert("root"), true).unwrap();
        host.endpoint.credentials_mut().load_key(key(own));
    }
    world
}

/// The only job of a host.
pub(crate) fn job(world: &mut World, host: usize) -> Job {
    let job = world.hosts[host].endpoint.take_job().expect("there is a job");
    assert!(world.hosts[host].endpoint.take_job().is_none(), "and no other");
    job
}

/// Runs it, and gives the host what came of it.
pub(crate) fn finish(world: &mut World, host: usize, job: Job) {
    let now = world.now;
    world.hosts[host].endpoint.job_done(now, job.run());
    world.settle(host);
}

fn discarded(world: &World, host: usize, reason: Discard) -> u64 {
    world.hosts[host].endpoint.stats().discarded(reason)
}

/// The initiator has the answer to its IKE_SA_INIT, and what follows from it is being computed.
fn answered(world: &mut World) -> Job {
    world.initiate(0);
    world.run(MOMENT);
    let responders = job(world, 1);
    finish(world, 1, responders);
    world.run(MOMENT);
    job(world, 0)
}

#[test]
fn a_request_that_comes_again_is_not_computed_again() {
    let mut world = pair();
    world.initiate(0);
    world.run_secs(20);
    assert!(sent(&world, 0, ExchangeType::IkeSaInit, false).len() > 2);
    assert_eq!((world.hosts[1].endpoint.jobs_out(), world.hosts[1].endpoint.half_open()), (1, 1));
    assert_eq!(discarded(&world, 1, Discard::Repeated), 2);
    let late = job(&mut world, 1);
    finish(&mut world, 1, late);
    assert_eq!(world.hosts[1].sent.len(), 1);
    assert_eq!((world.hosts[1].endpoint.jobs_out(), world.hosts[1].endpoint.half_open()), (0, 1));
    world.hold_jobs = false;
    world.run_secs(30);
    world.assert_tunnel();
}

#[test]
fn a_second_response_does_not_disturb_the_first() {
    let mut world = pair();
    let first = answered(&mut world);
    let response = sent(&world, 1, ExchangeType::IkeSaInit, true)[0].to_vec();
    world.forge("192.0.2.2:500", "192.0.2.1:500", &response);
    let mut forged = response;
    *forged.last_mut().unwrap() ^= 1;
    world.forge("192.0.2.2:500", "192.0.2.1:500", &forged);
    world.run(MOMENT);
    assert_eq!((world.hosts[0].endpoint.jobs_out(), discarded(&world, 0, Discard::Repeated)), (1, 2));
    finish(&mut world, 0, first);
    world.hold_jobs = false;
    world.run_secs(30);
    world.assert_tunnel();
}

#[test]
fn the_request_goes_on_being_repeated_and_a_new_attempt_makes_the_job_void() {
    let mut world = pair_with(handing_out(), |_, connection| connection.keyingtries = 2);
    let old = answered(&mut world);
    world.run_secs(170);
    assert_eq!(world.hosts[0].endpoint.jobs_out(), 0, "another attempt has begun");
    let before = world.hosts[0].sent.len();
    finish(&mut world, 0, old);
    assert_eq!(world.hosts[0].sent.len(), before);
    world.hold_jobs = false;
    world.run_secs(60);
    world.assert_tunnel();
}

#[test]
fn an_sa_terminated_during_a_computation_stays_terminated() {
    let mut world = pair();
    let job = answered(&mut world);
    let now = world.now;
    world.hosts[0].endpoint.terminate(now, &Target::All, false).unwrap();
    world.settle(0);
    let before = world.hosts[0].sent.len();
    finish(&mut world, 0, job);
    assert_eq!((world.hosts[0].endpoint.states().count(), world.hosts[0].sent.len()), (0, before));
    assert!(world.hosts[0].results()[0].is_err());
    world.run_secs(100);
    world.assert_nothing_left();
}

#[test]
fn a_connection_that_is_unloaded_meanwhile_gets_no_ike_sa() {
    let mut world = pair();
    world.initiate(0);
    world.run(MOMENT);
    let job = job(&mut world, 1);
    world.hosts[1].endpoint.unload_connection("site");
    finish(&mut world, 1, job);
    assert_eq!((world.hosts[1].endpoint.states().count(), world.hosts[1].endpoint.half_open()), (0, 0));
    assert!(world.hosts[1].sent.is_empty());
}

#[test]
fn an_initiators_job_is_lost_with_its_node_and_made_again() {
    let mut world = pair();
    drop(answered(&mut world));
    let now = world.now;
    world.hosts[0].take_over(now);
    assert_eq!(world.hosts[0].endpoint.jobs_out(), 0);
    world.hold_jobs = false;
    world.run_secs(30);
    world.assert_tunnel();
}

#[test]
fn time_spent_on_computing_is_no_time_to_authenticate() {
    let mut world = pair();
    world.initiate(0);
    world.run(MOMENT);
    world.hosts[0].stopped = true;
    let job = job(&mut world, 1);
    world.run_secs(25);
    finish(&mut world, 1, job);
    assert_eq!(world.hosts[1].endpoint.states().count(), 1);
    world.run_secs(6);
    assert_eq!(discarded(&world, 1, Discard::HalfOpenExpired), 1, "30 s after it began");
}

#[test]
fn a_failed_job_leaves_nothing_and_the_next_may_be_better() {
    let mut world = pair();
    world.initiate(0);
    world.run(MOMENT);
    let (job, now) = (job(&mut world, 1), world.now);
    world.hosts[1].endpoint.job_failed(now, job.id(), "the host had a fit");
    world.settle(1);
    assert!(world.hosts[1].logged("the host had a fit"));
    assert_eq!((world.hosts[1].endpoint.jobs_out(), world.hosts[1].endpoint.half_open()), (0, 0));
    finish(&mut world, 1, job);
    assert!(world.hosts[1].sent.is_empty(), "it is too late");
    world.hold_jobs = false;
    world.run_secs(30);
    world.assert_tunnel();
}

/// IKE_SA_INIT requests of so many strangers to host 0.
fn strangers(world: &mut World, count: u64) {
    let path = Path { local: "192.0.2.2:500".parse().unwrap(), remote: "192.0.2.1:500".parse().unwrap() };
    for seed in 0..count {
        let request = init_request(&mut Random::new(900 + seed));
        assert_eq!(exchange(world, path, &request).len(), 0);
    }
}

#[test]
fn jobs_are_bounded_and_strangers_do_not_take_the_place_of_others() {
    let mut world = pair_with(EndpointConfig { job_limit: 2, ..handing_out() }, |_, _| {});
    world.initiate(0);
    strangers(&mut world, 5);
    assert_eq!((discarded(&world, 0, Discard::Overload), world.hosts[0].endpoint.half_open()), (3, 2));
    world.run(MOMENT);
    let responders = job(&mut world, 1);
    finish(&mut world, 1, responders);
    world.run(MOMENT);
    assert_eq!(world.hosts[0].endpoint.jobs_out(), 3, "for the response there is room");
    let first = world.hosts[0].endpoint.take_job().unwrap();
    finish(&mut world, 0, first);
    assert_eq!(sent(&world, 0, ExchangeType::IkeAuth, false).len(), 1, "and it comes before strangers");
}

/// The sources of one IPv6 /48 may have half of the strangers' places. Those that are refused for
/// the lack of places may be peers: an operator is told.
#[test]
fn one_network_does_not_take_all_places() {
    let config = EndpointConfig { job_limit: 8, ..handing_out() };
    let mut world = pair_with(config, |_, connection| connection.remote_addrs = vec![]);
    let ask = |world: &mut World, seed: u64, from: String| {
        let path = Path { local: from.parse().unwrap(), remote: "192.0.2.1:500".parse().unwrap() };
        assert_eq!(exchange(world, path, &init_request(&mut Random::new(seed))).len(), 0);
        world.hosts[0].endpoint.jobs_out()
    };
    let out = (0..9).map(|site| ask(&mut world, site, format!("[2001:db8:0:{site}00::1]:500")));
    assert_eq!(out.collect::<Vec<_>>(), [1, 2, 3, 4, 4, 4, 4, 4, 4], "of six, and two for named peers");
    assert!(world.hosts[0].warned("ignored a message of a handshake: 4 computations are under way"));
    assert_eq!(ask(&mut world, 10, "[2001:db8:1::1]:500".into()), 5);
    assert_eq!(discarded(&world, 0, Discard::Overload), 5);
}

/// Runs a handshake to its end, where job number `lost`, if there is one, is lost in that way.
/// Gives the number of jobs.
fn handshake(lost: Option<u64>, lose: impl Fn(&mut World, usize, Job)) -> u64 {
    let mut world = hybrid(1, Weather::FAIR);
    (world.hold_jobs, world.restore) = (true, false);
    world.initiate(0);
    let mut number = 0;
    while !world.hosts.iter().all(|host| !host.installed.is_empty()) {
        assert!(number < 100, "it never ends: {:#?}", world.hosts[0].log());
        world.run(MOMENT);
        for host in 0..2 {
            while let Some(job) = world.hosts[host].endpoint.take_job() {
                number += 1;
                if lost == Some(number) {
                    lose(&mut world, host, job);
                } else {
                    finish(&mut world, host, job);
                }
            }
        }
    }
    world.assert_tunnel();
    assert_ivs_never_repeat(&world);
    number
}

/// Each side has the key exchange, the additional one and the other's certificate to compute, and
/// proves itself on the way.
#[test]
fn any_job_may_be_lost_once() {
    assert_eq!(handshake(None, |_, _, _| {}), 6);
    for lost in 1..=6 {
        let failed = handshake(Some(lost), |world, host, job| {
            let now = world.now;
            world.hosts[host].endpoint.job_failed(now, job.id(), "lost");
        });
        assert_eq!(failed, 7, "job {lost} is made again");
        let node_died = handshake(Some(lost), |world, host, _| {
            let now = world.now;
            world.hosts[host].take_over(now);
        });
        assert_eq!(node_died, 7, "job {lost} is made again");
        let came_back = handshake(Some(lost), |world, host, job| {
            world.run_secs(15);
            finish(world, host, job);
        });
        assert_eq!(came_back, 6, "job {lost} is late");
    }
}

#[test]
fn hybrid_handshakes_with_certificates_in_foul_weather() {
    for seed in 0..100 {
        let mut world = hybrid(seed, Weather::FOUL);
        world.initiate(0);
        if seed % 2 == 0 {
            world.initiate(1);
        }
        assert_weathered(&mut world, seed);
        assert!(world.jobs >= 6, "seed {seed}");
    }
}

#[test]
fn hybrid_handshakes_with_certificates_go_on_at_another_node() {
    for seed in 0..60 {
        let mut world = hybrid(seed, Weather::FOUL);
        world.initiate(0);
        let end = world.now.plus(Duration::from_secs(200));
        while world.step(end) {
            if world.network.random.percent(5) {
                let (host, now) = (world.network.random.below(2) as usize, world.now);
                world.hosts[host].take_over(now);
            }
        }
        assert_weathered(&mut world, seed);
    }
}

/// Two hosts up to the job that the request of IKE_AUTH makes at host 1.
fn ike_auth_under_way() -> (World, Job) {
    let mut world = hybrid(1, Weather::FAIR);
    (world.hold_jobs, world.restore) = (true, false);
    world.initiate(0);
    for host in [1, 0, 1, 0] {
        world.run(MOMENT);
        let job = job(&mut world, host);
        finish(&mut world, host, job);
    }
    world.run(MOMENT);
    let auth = job(&mut world, 1);
    (world, auth)
}

/// The certificates make several fragments of each message, and each is recognised.
#[test]
fn ike_auth_that_comes_again_is_not_computed_again() {
    let (mut world, auth) = ike_auth_under_way();
    let (repeated, requests) =
        (discarded(&world, 1, Discard::Repeated), sent(&world, 0, ExchangeType::IkeAuth, false).len() as u64);
    assert!(requests > 1, "in fragments");
    world.run_secs(15);
    assert_eq!(discarded(&world, 1, Discard::Repeated), repeated + 2 * requests);
    assert_eq!(
        (world.hosts[1].endpoint.jobs_out(), sent(&world, 1, ExchangeType::IkeAuth, true).len()),
        (1, 0)
    );
    finish(&mut world, 1, auth);
    world.run(MOMENT);
    let answers = sent(&world, 1, ExchangeType::IkeAuth, true).len();
    let response = job(&mut world, 0);
    world.run_secs(30);
    assert_eq!(world.hosts[0].endpoint.jobs_out(), 1);
    assert!(sent(&world, 1, ExchangeType::IkeAuth, true).len() > answers, "the answer is repeated meanwhile");
    finish(&mut world, 0, response);
    world.assert_tunnel();
}

/// Certificates loaded during a handshake count as they are when they are used.
#[test]
fn a_connection_unloaded_during_a_computation_still_applies() {
    let (mut world, auth) = ike_auth_under_way();
    world.hosts[1].endpoint.credentials_mut().clear();
    finish(&mut world, 1, auth);
    assert!(world.hosts[1].logged("established"), "{:#?}", world.hosts[1].log());
}

/// The connection at that time decides which peer is accepted, and for which traffic.
#[test]
fn a_connection_that_changes_while_ike_auth_is_computed_is_not_had_as_it_was() {
    let (mut world, auth) = ike_auth_under_way();
    let mut narrower = world.hosts[1].endpoint.connection("site").unwrap().clone();
    let net = ts("10.109.7.0-10.109.7.255");
    narrower.children[0].remote_ts = vec![TsSpec::Fixed(net)];
    let now = world.now;
    world.hosts[1].load(now, narrower);
    finish(&mut world, 1, auth);
    assert!(world.hosts[1].installed.is_empty(), "it is judged once more");
    let again = job(&mut world, 1);
    finish(&mut world, 1, again);
    let selectors: Vec<_> = world.hosts[1].installed.values().flat_map(|sa| sa.remote_ts.clone()).collect();
    assert_eq!(selectors, [net]);
}

/// Nor while a later round is computed: the key of that round is the one which is configured then.
#[test]
fn a_round_is_judged_by_the_connection_as_it_is_when_it_is_computed() {
    for changes in [false, true] {
        let rounds: [&[Round]; 2] = [&[MOON, Round::Key("alice", "moon-P-256")], &[SUN]];
        let mut world = rounds_in(1, Weather::FAIR, handing_out(), rounds, |_, _| {});
        (world.hold_jobs, world.restore) = (true, false);
        let first = answered(&mut world);
        finish(&mut world, 0, first);
        world.run(MOMENT);
        // The first round is by keys, and the initiator signs in the second.
        let signed = job(&mut world, 0);
        finish(&mut world, 0, signed);
        world.run(MOMENT);
        let judged = job(&mut world, 1);
        if changes {
            let mut other = world.hosts[1].endpoint.connection("site").unwrap().clone();
            other.rounds.remote[0].pubkeys = vec![public_key("moon-ed25519")];
            let now = world.now;
            world.hosts[1].load(now, other);
        }
        finish(&mut world, 1, judged);
        assert_eq!(world.hosts[1].installed.is_empty(), changes, "{:#?}", world.hosts[1].log());
        if changes {
            let again = job(&mut world, 1);
            finish(&mut world, 1, again);
            assert!(world.hosts[1].installed.is_empty() && !world.hosts[1].logged("established"));
        }
    }
}

/// The trusted keys are those at the time when the peer is known.
#[test]
fn a_connection_that_changes_while_the_answer_is_computed_is_not_had_as_it_was() {
    let (mut world, auth) = ike_auth_under_way();
    finish(&mut world, 1, auth);
    world.run(MOMENT);
    let response = job(&mut world, 0);
    let mut other = world.hosts[0].endpoint.connection("site").unwrap().clone();
    other.remote.id = Some(Identity::Fqdn("stranger.example.org".into()));
    let now = world.now;
    world.hosts[0].load(now, other);
    finish(&mut world, 0, response);
    assert!(world.hosts[0].installed.is_empty() && !world.hosts[0].logged("established"));
    assert!(world.hosts[0].logged("expected stranger.example.org"), "{:#?}", world.hosts[0].log());
}

#[test]
fn a_connection_that_is_unloaded_while_ike_auth_is_computed_lets_nobody_in() {
    let (mut world, auth) = ike_auth_under_way();
    world.hosts[1].endpoint.unload_connection("site");
    finish(&mut world, 1, auth);
    assert!(world.hosts[1].installed.is_empty() && !world.hosts[1].logged("established"));
    assert!(world.hosts[1].logged("no connection is configured for"), "{:#?}", world.hosts[1].log());
    assert_eq!(sent(&world, 1, ExchangeType::IkeAuth, true).len(), 1, "the initiator is told");
}
