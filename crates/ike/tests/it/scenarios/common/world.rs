//! Endpoints on a network, run event by event. After every event each IKE SA is serialised and
//! restored.

use super::host::Host;
use super::network::{Datagram, Network, Weather};
use super::random::Random;
use super::wire::assert_ivs_never_repeat;
use std::net::SocketAddr;
use std::time::Duration;
use testudo_ike::config::Connection;
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::output::{Event, IkeSaId, Output, Path, Time};
use testudo_ipsec::sa::ChildSaParams;

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) hosts: Vec<Host>,
    pub(crate) network: Network,
    /// Restore the SAs after every event.
    pub(crate) restore: bool,
    /// How many jobs were handed out.
    pub(crate) jobs: u64,
    /// Leave the jobs for the test to run.
    pub(crate) hold_jobs: bool,
}

/// Jobs take so long at most; what varies is reordered.
const JOB: Duration = Duration::from_millis(2000);
/// In percent.
const FAILED_JOBS: u64 = 5;
/// In percent: how often SAs are restored all the same while jobs are out, which are lost by that.
const LOST_JOBS: u64 = 5;

/// An endpoint that hands its jobs out.
pub(crate) fn handing_out() -> EndpointConfig {
    EndpointConfig { hand_out_jobs: true, ..EndpointConfig::default() }
}

impl World {
    pub(crate) fn new(seed: u64, weather: Weather) -> Self {
        let network = Network::new(weather, Random::new(seed));
        Self {
            now: Time(Duration::from_secs(1000)),
            hosts: Vec::new(),
            network,
            restore: true,
            jobs: 0,
            hold_jobs: false,
        }
    }

    pub(crate) fn add(&mut self, addr: &str, config: EndpointConfig) -> &mut Host {
        let sender = u16::try_from(self.hosts.len()).unwrap() * 256 + 1;
        let seed = self.network.random.next();
        self.hosts.push(Host::new(addr.parse().unwrap(), config, seed, sender));
        self.hosts.last_mut().unwrap()
    }

    /// Two hosts, `moon` at 192.0.2.1 and `sun` at 192.0.2.2, each configured for the other.
    pub(crate) fn pair(seed: u64, weather: Weather) -> Self {
        Self::pair_with(seed, weather, |_, _| {})
    }

    /// The same, with what `edit` makes of each host's connection.
    pub(crate) fn pair_with(seed: u64, weather: Weather, edit: impl Fn(usize, &mut Connection)) -> Self {
        Self::pair_of(["192.0.2.1", "192.0.2.2"], seed, weather, EndpointConfig::default(), edit)
    }

    /// The same with a tunnel between them, in fair weather.
    pub(crate) fn established(seed: u64, edit: impl Fn(usize, &mut Connection)) -> Self {
        let mut world = Self::pair_with(seed, Weather::FAIR, edit);
        world.establish();
        world
    }

    /// A pair at any addresses and with any settings.
    pub(crate) fn pair_of(
        addrs: [&str; 2],
        seed: u64,
        weather: Weather,
        config: EndpointConfig,
        edit: impl Fn(usize, &mut Connection),
    ) -> Self {
        let mut world = Self::new(seed, weather);
        let ends = [(addrs[0], "moon"), (addrs[1], "sun")];
        for index in 0..2 {
            let now = world.now;
            let mut connection = super::connection(ends[index], ends[1 - index]);
            edit(index, &mut connection);
            let host = world.add(ends[index].0, config.clone());
            host.load_secret(super::secret("psk", b"a shared key", &["moon", "sun"]));
            host.load(now, connection);
        }
        world
    }

    /// Hands outputs on until there are none.
    pub(crate) fn settle(&mut self, host: usize) {
        let host = &mut self.hosts[host];
        while let Some(output) = host.endpoint.poll_output() {
            match output {
                Output::Send { after, path, bytes, ike: _ } => {
                    // A change is named before what depends on it leaves, and never again for
                    // something later.
                    assert!(after >= host.last_commit || host.sent.iter().any(|(_, old)| *old == bytes));
                    host.last_commit = host.last_commit.max(after);
                    host.sent.push((path, bytes.clone()));
                    if !host.stopped {
                        self.network.send(self.now, path, &bytes);
                    }
                }
                Output::Keepalive { .. } => host.keepalives += 1,
                Output::InstallChild { child, params, replaces, .. } => {
                    assert!(host.installed.insert(child, *params).is_none(), "a child is installed once");
                    match replaces {
                        None => assert!(host.sending.insert(child)),
                        Some(old) => assert!(host.installed.contains_key(&old), "what is replaced is there"),
                    }
                }
                Output::SwitchChild { from, to } => {
                    assert_ne!(from, to, "another takes its place");
                    let gone = !host.installed.contains_key(&from);
                    let idle = gone || host.bound.contains_key(&from);
                    assert!(host.sending.remove(&from) || idle, "{from:?} was sent through");
                    assert!(host.installed.contains_key(&to), "what takes its place is there");
                    let is_back = !host.sending.insert(to) && !host.bound.contains_key(&to);
                    // That of a worker goes to its successor, and one that is for all now was bound.
                    host.bound.remove(&to);
                    let worker = host.bound.remove(&from).filter(|_| !is_back);
                    host.bound.extend(worker.map(|worker| (to, worker)));
                }
                Output::StartChild { child } => {
                    assert!(host.installed.contains_key(&child) && host.sending.insert(child));
                }
                Output::BindChild { child, worker } => {
                    assert!(host.installed.contains_key(&child) && host.sending.insert(child));
                    // The newest one of a worker sends.
                    host.sending.retain(|other| host.bound.get(other) != Some(&worker));
                    host.bound.insert(child, worker);
                }
                Output::AdvanceSequence { child, by } => {
                    assert!(host.installed.contains_key(&child));
                    host.skipped.push((child, by));
                }
                Output::UpdateChild { child, path, spi_in, spi_out } => {
                    let params = host.installed.get_mut(&child).expect("only what is installed moves");
                    assert_eq!((params.spi_in, params.spi_out), (spi_in, spi_out));
                    (params.local, params.remote) = (path.local, path.remote);
                }
                Output::RemoveChild { child, spi_in } => {
                    let removed = host.installed.remove(&child).expect("only what is installed goes");
                    assert_eq!(removed.spi_in, spi_in);
                    host.sending.remove(&child);
                    let worker = host.bound.remove(&child);
                    let other = host.bound.iter().rev().find(|(_, of)| Some(**of) == worker);
                    host.sending.extend(other.map(|(other, _)| *other));
                }
                Output::InstallAddress { ike, addr } => {
                    assert!(host.virtual_ips.insert((addr, ike)), "an IKE SA brings an address once");
                }
                Output::RemoveAddress { ike, addr } => {
                    assert!(host.virtual_ips.remove(&(addr, ike)), "only what an IKE SA has brought goes");
                }
                Output::Event(event) => {
                    if let Event::IkeRekeyed(old, new) = event {
                        let moved =
                            |known: &Event| matches!(known, Event::IkeRekeyed(from, _) if *from == old);
                        assert!(!host.events.iter().any(moved), "the children of an IKE SA move once");
                        let moved = host
                            .virtual_ips
                            .iter()
                            .map(|&(addr, ike)| (addr, if ike == old { new } else { ike }));
                        host.virtual_ips = moved.collect();
                    }
                    host.events.push(event);
                }
            }
        }
        let in_use = host.in_use.lock().unwrap().clone();
        assert!(host.installed.values().all(|params| in_use.contains(&params.spi_in)));
        let random = &mut self.network.random;
        while !self.hold_jobs
            && let Some(job) = host.endpoint.take_job()
        {
            self.jobs += 1;
            let time = Duration::from_micros(random.below(JOB.as_micros() as u64));
            host.jobs.insert((self.now.plus(time), self.jobs), job);
        }
        if self.restore && (host.endpoint.jobs_out() == 0 || random.percent(LOST_JOBS)) {
            host.restore(self.now);
        }
    }

    pub(crate) fn initiate(&mut self, host: usize) -> IkeSaId {
        let id = self.hosts[host].endpoint.initiate(self.now, Some("site"), "net").unwrap();
        self.settle(host);
        id
    }

    /// Host 0 initiates, and gets its tunnel.
    pub(crate) fn establish(&mut self) -> IkeSaId {
        let id = self.initiate(0);
        self.run_secs(1);
        self.assert_tunnel();
        id
    }

    /// When something happens next.
    fn next_event(&self) -> Option<Time> {
        let timers = self.hosts.iter().filter(|host| !host.stopped).map(|host| host.endpoint.next_timeout());
        let running = self.hosts.iter().filter(|host| !host.stopped);
        let jobs = running.filter_map(|host| host.jobs.first_key_value()).map(|((time, _), _)| *time);
        timers.chain([self.network.next_arrival()]).flatten().chain(jobs).min()
    }

    /// Gives back the jobs that are done.
    fn finish_jobs(&mut self, index: usize) {
        let now = self.now;
        while let Some(entry) = self.hosts[index].jobs.first_entry().filter(|entry| entry.key().0 <= now) {
            let job = entry.remove();
            if self.network.random.percent(FAILED_JOBS) {
                self.hosts[index].endpoint.job_failed(now, job.id(), "for a test");
            } else {
                self.hosts[index].endpoint.job_done(now, job.run());
            }
            self.settle(index);
        }
    }

    /// One event; false if there is none until `end`.
    pub(crate) fn step(&mut self, end: Time) -> bool {
        let Some(next) = self.next_event().filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        if let Some(datagram) = self.network.arrive(self.now) {
            self.deliver(&datagram);
            return true;
        }
        for index in 0..self.hosts.len() {
            if !self.hosts[index].stopped {
                self.finish_jobs(index);
            }
            if !self.hosts[index].stopped && self.hosts[index].endpoint.next_timeout() <= Some(self.now) {
                self.hosts[index].endpoint.handle_timeout(self.now);
                self.settle(index);
            }
        }
        true
    }

    pub(crate) fn deliver(&mut self, datagram: &Datagram) {
        let Datagram { from, to, bytes } = datagram;
        let receiver = self.hosts.iter().position(|host| host.addr == to.ip() && !host.stopped);
        if let Some(index) = receiver {
            let path = Path { local: *to, remote: *from };
            self.hosts[index].received.push(bytes.clone());
            self.hosts[index].endpoint.handle_datagram(self.now, path, bytes);
            self.settle(index);
        }
    }

    /// Lets so much time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now.plus(time);
        while self.step(end) {}
        self.now = end;
    }

    /// Runs until something holds, for ten minutes at most.
    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        let end = self.now.plus(Duration::from_secs(600));
        while !done(self) {
            assert!(self.step(end), "it never came to that: {:?}", self.hosts[0].log());
        }
    }

    pub(crate) fn run_secs(&mut self, seconds: u64) {
        self.run(Duration::from_secs(seconds));
    }

    /// Sends octets from one address to another, past the endpoints.
    pub(crate) fn forge(&mut self, from: &str, to: &str, bytes: &[u8]) {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        self.network.inject(self.now, Datagram { from: addr(from), to: addr(to), bytes: bytes.to_vec() });
    }

    /// Another node takes over on either side, between any two of the first `events` events of what
    /// `begin` begins, and has twenty seconds to end it. `begin` gets the number of the event as a
    /// seed.
    pub(crate) fn taken_over_at_each(events: u64, begin: impl Fn(u64) -> Self, check: impl Fn(&Self)) {
        for (event, host) in (0..events).flat_map(|event| [(event, 0), (event, 1)]) {
            let mut world = begin(event);
            let end = world.now.plus(Duration::from_secs(20));
            for _ in 0..event {
                world.step(end);
            }
            let now = world.now;
            world.hosts[host].take_over(now);
            world.run_secs(20);
            check(&world);
            assert_ivs_never_repeat(&world);
        }
    }

    /// Asserts that both hosts have one Child SA, and that the two fit.
    pub(crate) fn assert_tunnel(&self) {
        let [a, b] = [0, 1].map(|index| {
            let children: Vec<_> = self.hosts[index].installed.values().collect();
            assert_eq!(children.len(), 1, "host {index} has one child: {:?}", self.hosts[index].log());
            children[0]
        });
        assert_fit(a, b);
    }

    /// Asserts that no host has any SA or state left.
    pub(crate) fn assert_nothing_left(&self) {
        for (index, host) in self.hosts.iter().enumerate() {
            assert!(host.installed.is_empty() && host.virtual_ips.is_empty(), "host {index}");
            assert_eq!(host.sas(), [], "host {index}");
            assert_eq!(host.endpoint.states().count(), 0, "host {index}");
            assert_eq!(host.endpoint.half_open(), 0, "host {index}");
            assert!(host.in_use.lock().unwrap().is_empty(), "host {index}");
        }
    }
}

/// Two ends of one Child SA.
pub(crate) fn assert_fit(a: &ChildSaParams, b: &ChildSaParams) {
    assert_eq!((a.spi_in, a.spi_out), (b.spi_out, b.spi_in));
    assert!(a.key_in == b.key_out && a.key_out == b.key_in, "keys cross");
    assert!(a.key_in != a.key_out, "each direction has its own key");
    assert_eq!((&a.local_ts, &a.remote_ts), (&b.remote_ts, &b.local_ts));
    let agreed = |sa: &ChildSaParams| (sa.algorithm, sa.esn, sa.encapsulation, sa.mode);
    assert_eq!(agreed(a), agreed(b));
}
