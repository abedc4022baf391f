//! Common parts of all scenarios: two gateways with a connection loaded, traffic between their
//! hosts, and a check of the untrusted network.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use testudo_lab::capture::Capture;
use testudo_lab::count::Counters;
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::iperf::Direction;
use testudo_lab::namespace::Offloads;
use testudo_lab::nat::Nat;
use testudo_lab::ping::Ping;
use testudo_lab::pki::{KeyKind, Pki};
use testudo_lab::streams::Streams;
use testudo_lab::swanctl::{IkeSa, Swanctl};
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{Family, Options, Side};
use testudo_lab::{Lab, Namespace, Topology, wait_until};

pub(crate) const UP_LIMIT: Duration = Duration::from_secs(60);
/// Long enough for whatever should come at once, on a machine that has much else to do.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// For `ping -W`, where replies are expected: seconds until a missing one counts as lost. A packet
/// may wait 3 s for a neighbour whose first answer was lost or late.
pub(crate) const ANSWERED: &str = "20";
/// Requests by ping(8), for its options. Each has a ping of its own: of several, ping awaits the
/// last reply no longer than an interval or twice the longest round trip. `Err` is what it said of
/// the first that was not answered.
pub(crate) fn each_ping(from: &Namespace, count: u32, options: &[&str]) -> Result<(), String> {
    for _ in 0..count {
        let ping = from.cmd("ping").args(["-n", "-c", "1", "-W", ANSWERED]).args(options.iter().copied());
        let done = ping.run_any().unwrap();
        if !done.stdout.contains("1 packets transmitted, 1 received") {
            return Err(format!("{}{}", done.stdout, done.stderr));
        }
    }
    Ok(())
}

const IMPATIENT: &str = "\n[ike]\nretransmit_timeout_ms = 250\nretransmit_tries = 2\n";

const MIB: u64 = 1 << 20;

/// The setup of a scenario: Testudo on side one, `peer` on side two.
pub(crate) struct Scenario {
    name: &'static str,
    peer: Kind,
    outer: Family,
    options: Options,
    settings: &'static str,
    hosts: &'static str,
    places: u8,
    leave_open: bool,
    prepare: fn(&Topology),
}

/// The lab with both gateways running.
pub(crate) struct Pair {
    pub(crate) one: Testudo,
    pub(crate) two: Gateway,
    pub(crate) t: Topology,
    /// What the topology was built with.
    pub(crate) options: Options,
}

impl Scenario {
    /// Over IPv4, with a connection that both sides agree on. A guest takes more places than other
    /// peers: its emulator takes a processor.
    pub(crate) fn new(name: &'static str, peer: Kind) -> Self {
        let places = if peer == Kind::Guest { 2 } else { 1 };
        let options = Options::default();
        let (outer, settings, hosts) = (Family::V4, "", "");
        Self { name, peer, outer, options, settings, hosts, places, leave_open: false, prepare: |_| {} }
    }

    /// Senders to our side leave checksums to their virtual device, as kernels do by default.
    pub(crate) fn neighbours_leave_checksums_open(mut self) -> Self {
        self.leave_open = true;
        self
    }

    /// With workers that leave no other lab their processors.
    pub(crate) fn large(mut self) -> Self {
        self.places = 2;
        self
    }

    /// Gives a silent peer up 1.5 s after the first transmission.
    pub(crate) fn impatient(self) -> Self {
        self.settings(IMPATIENT)
    }

    /// The family of the outer addresses.
    pub(crate) fn outer(mut self, outer: Family) -> Self {
        self.outer = outer;
        self
    }

    /// MTU of the untrusted network.
    pub(crate) fn outer_mtu(mut self, mtu: u16) -> Self {
        self.options.outer_mtu = mtu;
        self
    }

    /// Puts the gateway of that side behind a NAT.
    pub(crate) fn nat(mut self, side: Side) -> Self {
        self.options.nat = Some(side);
        self
    }

    /// Queues of the interfaces on side one, and on side two.
    pub(crate) fn queues(mut self, queues: [u32; 2]) -> Self {
        self.options.queues = queues;
        self
    }

    /// MTU of the protected networks.
    pub(crate) fn inner_mtu(mut self, mtu: u16) -> Self {
        self.options.inner_mtu = mtu;
        self
    }

    /// Further keys and sections of Testudo's configuration, on both sides if both run it.
    pub(crate) fn settings(mut self, settings: &'static str) -> Self {
        self.settings = settings;
        self
    }

    /// Testudo's `/etc/hosts` on side one.
    pub(crate) fn hosts(mut self, hosts: &'static str) -> Self {
        self.hosts = hosts;
        self
    }

    /// What happens to the hosts before the gateways start.
    pub(crate) fn prepare(mut self, prepare: fn(&Topology)) -> Self {
        self.prepare = prepare;
        self
    }

    /// Starts both gateways and loads a connection into each.
    pub(crate) fn start(self) -> Pair {
        self.start_with(|_, _| {})
    }

    /// The same; `adjust` changes both connections before they are loaded.
    pub(crate) fn start_with(self, adjust: impl Fn(Side, &mut Connection)) -> Pair {
        let (outer, nat) = (self.outer, self.options.nat);
        let pair = self.start_empty();
        for side in [Side::One, Side::Two] {
            let mut connection = Connection::of(side, outer);
            if nat == Some(side) {
                connection.local_addr = Nat::hidden(side);
            }
            adjust(side, &mut connection);
            pair.swanctl(side).load(&connection.to_string()).unwrap();
        }
        pair
    }

    /// Starts both gateways, without a connection.
    pub(crate) fn start_empty(mut self) -> Pair {
        let towards_us = if self.leave_open { Offloads::Default } else { Kind::Testudo.offloads_towards() };
        self.options.towards = [towards_us, self.peer.offloads_towards()];
        let t = Topology::build(&Lab::large(self.name, self.places).unwrap(), &self.options).unwrap();
        (self.prepare)(&t);
        let one = Testudo::start_with_hosts(t.gateway(Side::One), self.settings, self.hosts).unwrap();
        let two = match self.peer {
            Kind::Testudo => {
                Gateway::Testudo(Testudo::start_with(t.gateway(Side::Two), self.settings).unwrap())
            }
            peer => Gateway::start(peer, t.gateway(Side::Two)).unwrap(),
        };
        Pair { one, two, t, options: self.options }
    }
}

impl Pair {
    /// swanctl against the gateway of that side.
    pub(crate) fn swanctl(&self, side: Side) -> &Swanctl {
        match side {
            Side::One => self.one.swanctl(),
            Side::Two => self.two.swanctl(),
        }
    }

    /// The SAs of that side.
    pub(crate) fn sas(&self, side: Side) -> Vec<IkeSa> {
        self.swanctl(side).list_sas().unwrap()
    }

    /// Brings the tunnel up from that side; both sides have exactly one then.
    pub(crate) fn up(&self, initiator: Side) {
        self.swanctl(initiator).initiate("lab", UP_LIMIT).unwrap();
        // The responder installs its Child SA before it answers; a charon that initiates, before
        // swanctl ends.
        for side in [Side::One, Side::Two] {
            let sas = self.sas(side);
            assert!(matches!(sas.as_slice(), [sa] if sa.is_up()), "{side:?}: {sas:?}");
        }
    }

    /// Waits until that side has as many IKE SAs, all of them up.
    pub(crate) fn await_sas(&self, side: Side, count: usize, limit: Duration) {
        let what = format!("{count} IKE SAs at side {side:?}");
        wait_until(&what, limit, || {
            let sas = self.swanctl(side).list_sas()?;
            let fits = sas.len() == count && sas.iter().all(IkeSa::is_up);
            Ok(if fits { Ok(()) } else { Err(format!("{sas:?}")) })
        })
        .unwrap();
    }

    /// Every ping from that side's host to the other's is answered.
    pub(crate) fn ping_from(&self, from: Side, family: Family, size: u32) {
        let ping = Ping::new(from.other().host(family)).size(size);
        let pong = ping.run(self.t.host(from)).unwrap();
        assert_eq!(
            pong.received,
            pong.sent,
            "{family}, {size} octets, from {from:?}; drops {:?}",
            self.all_dropped()
        );
    }

    /// Small and large pings from client to server and back, IPv4 and IPv6, all at once.
    pub(crate) fn ping_both_ways(&self) {
        let families = || [Family::V4, Family::V6].into_iter();
        let cases = families().flat_map(|family| [56, 1200].map(|size| (family, size)));
        at_once(cases.flat_map(|(family, size)| {
            [Side::One, Side::Two].map(|from| move || self.ping_from(from, family, size))
        }));
    }

    /// TCP from client to server and back.
    pub(crate) fn tcp_both_ways(&self, family: Family) {
        for direction in [Direction::Up, Direction::Down] {
            let to = Side::Two.host(family);
            let carried = Streams::one(direction, MIB).carry(&self.t.client, &self.t.server, to);
            carried.unwrap_or_else(|error| panic!("{error}; drops {:?}", self.all_dropped()));
        }
    }

    /// What each side has dropped so far, by reason.
    pub(crate) fn all_dropped(&self) -> [BTreeMap<String, u64>; 2] {
        [Side::One, Side::Two]
            .map(|side| self.drops(side).into_iter().filter(|(_, count)| *count > 0).collect())
    }

    /// Packets that our side has dropped for this reason so far.
    pub(crate) fn dropped(&self, reason: &str) -> u64 {
        let found = self.drops(Side::One).get(reason).copied();
        found.unwrap_or_else(|| panic!("no counter is named {reason}"))
    }

    /// Waits until our side has dropped as many packets for this reason, and then no more: what a
    /// ping has sent may still be in a queue when the ping ends.
    #[track_caller]
    pub(crate) fn await_dropped(&self, reason: &str, total: u64) {
        let dropped = wait_until(&format!("{total} drops for {reason}"), SOON, || {
            let now = self.dropped(reason);
            Ok(if now >= total { Ok(now) } else { Err(format!("{now}")) })
        });
        assert_eq!(dropped.unwrap(), total, "drops for {reason}");
    }

    /// All drops of that side, by reason; strongSwan has none to tell.
    pub(crate) fn drops(&self, side: Side) -> BTreeMap<String, u64> {
        match side {
            Side::One => self.one.drops().unwrap(),
            Side::Two => self.two.drops().unwrap().unwrap_or_default(),
        }
    }

    /// The output of `testudo status --json` on that side.
    pub(crate) fn status(&self, side: Side) -> serde_json::Value {
        match (side, &self.two) {
            (Side::One, _) => self.one.status().unwrap(),
            (Side::Two, Gateway::Testudo(testudo)) => testudo.status().unwrap(),
            (Side::Two, Gateway::Strongswan(_) | Gateway::Guest(_)) => panic!("side two runs strongSwan"),
        }
    }

    /// Waits until our log has a line with this text.
    pub(crate) fn await_log(&mut self, text: &str) {
        self.await_log_times(text, 1);
    }

    /// The same, while others look at the pair: it does not notice if the daemon ends.
    pub(crate) fn await_said(&self, text: &str) {
        wait_until(&format!("\"{text}\" in our log"), SOON, || {
            let log = self.one.log()?;
            Ok(if log.contains(text) { Ok(()) } else { Err(log) })
        })
        .unwrap();
    }

    /// Waits until our log has this text `times` times.
    pub(crate) fn await_log_times(&mut self, text: &str, times: usize) {
        self.one.process().wait_log_times(text, times, SOON).unwrap();
    }
}

/// Two independent checks of the untrusted network for clear text.
pub(crate) struct Watch {
    capture: Capture,
    counters: Counters,
}

impl Watch {
    /// From now on.
    pub(crate) fn start(t: &Topology) -> Self {
        Self { capture: Capture::clear_text(&t.wire).unwrap(), counters: Counters::start(&t.wire).unwrap() }
    }

    /// ESP packets of both sides so far.
    pub(crate) fn esp_packets(&self) -> u64 {
        self.counters.esp_packets().unwrap()
    }

    /// Nothing in clear has left a gateway since the start.
    pub(crate) fn saw_nothing(self) {
        let clear = self.counters.clear_packets().unwrap();
        let captured = self.capture.stop().unwrap();
        let shown = captured.show(10).unwrap();
        assert_eq!((captured.packets, captured.lost, clear), (0, 0, 0), "{shown}");
    }
}

/// A gateway's instance has left neither pins, nor a TUN, nor rules, nor routes, nor a filter.
pub(crate) fn nothing_is_left(namespace: &Namespace, instance: &str) {
    let pins = format!("/sys/fs/bpf/testudo-{instance}");
    assert!(!Path::new(&pins).exists(), "{pins} is left");
    for (words, unwanted) in [
        ("rule", "220"),
        ("-6 rule", "220"),
        ("route show table all", " 220 "),
        ("-6 route show table all", " 220 "),
        ("link", "tu-"),
        ("link", "xdp"),
    ] {
        let shown = namespace.ip(words).unwrap().stdout;
        assert!(!shown.contains(unwanted), "ip {words}: {shown}");
    }
}

/// Counts what comes in at an interface, apart from ARP, neighbour discovery and listener reports.
pub(crate) struct Arrivals {
    namespace: Namespace,
    table: String,
}

impl Arrivals {
    /// From now on, and without what one of the nftables expressions in `allowed` matches.
    pub(crate) fn count(namespace: &Namespace, interface: &str, allowed: &[&str]) -> Self {
        let table = format!("arrivals_{interface}");
        let accept: String = allowed.iter().map(|expression| format!("{expression} accept\n")).collect();
        let rules = format!(
            "table netdev {table} {{
                counter rest {{ }}
                chain ingress {{
                    type filter hook ingress device {interface} priority 0; policy accept;
                    ether type arp accept
                    icmpv6 type {{ 133, 134, 135, 136, 143 }} accept
                    {accept}counter name rest
                }}
            }}"
        );
        namespace.run("nft", [rules]).unwrap();
        Self { namespace: namespace.clone(), table }
    }

    /// Packets so far.
    pub(crate) fn packets(&self) -> u64 {
        counted(&self.namespace, ["netdev", &self.table, "rest"])
    }
}

/// Packets that a counter of nftables has so far: by its family, its table and its name.
pub(crate) fn counted(namespace: &Namespace, [family, table, counter]: [&str; 3]) -> u64 {
    let shown = namespace.run("nft", ["list", "counter", family, table, counter]).unwrap().stdout;
    let mut words = shown.split_ascii_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{shown}"))
}

/// Makes a key of that name: the private one stays at its owner, and both sides have the public
/// one.
pub(crate) fn give_key(pair: &Pair, pki: &Pki, (name, kind): (&str, KeyKind), owner: Side) {
    pki.bare(name, kind).unwrap();
    pki.give(pair.swanctl(owner), &format!("{name}.key"), "private").unwrap();
    for side in [Side::One, Side::Two] {
        pki.give(pair.swanctl(side), &format!("{name}.pub"), "pubkey").unwrap();
    }
}

/// Runs all of this at the same time; fails as the first of it that has failed.
pub(crate) fn at_once<T: Send>(work: impl IntoIterator<Item = impl FnOnce() -> T + Send>) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = work.into_iter().map(|work| scope.spawn(work)).collect();
        let ends = threads.into_iter().map(|thread| thread.join());
        ends.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}
