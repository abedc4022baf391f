//! The socket's mode, and who gets a turn when.

use super::*;
use mio::{Events, Poll};
use std::cell::Cell;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as Stream;
use std::time::Duration;
use testudo_ike::cert::Credentials;
use testudo_ike::config::{Connection, Pool, SharedSecret};
use testudo_ike::endpoint::{Exchanges, IkeSaStatus, LeaseStatus, PoolStatus};
use testudo_ike::output::{ChildSaId, IkeSaId};
use testudo_ipsec::selector::AddrRange;
use testudo_vici::CommandError;
use testudo_vici::alarms::AlarmPage;
use testudo_vici::children::ChildReport;
use testudo_vici::cluster::ClusterReport;
use testudo_vici::codec::{Deframer, Packet};
use testudo_vici::control::{
    ChangeNodes, ConfigChange, Drain, Initiate, JobId, Rekey, SetPolicy, Stats, Terminate, Version,
};
use testudo_vici::counters::Counters;
use testudo_vici::message::Message;
use testudo_vici::processors::Processors;
use testudo_vici::schema::{self, Policy};
use testudo_vici::shut::{Release, Released, ShutPage};
use testudo_vici::view::ChildUsage;
use zeroize::Zeroizing;

#[test]
fn the_socket_is_for_its_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let file_mode = |name: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, "").unwrap();
        mode(&path)
    };
    let before = file_mode("before");
    let path = dir.path().join("vici.sock");
    let _listener = bind_private(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert!(bind_private(&path).is_err(), "it is in use");
    assert_eq!(file_mode("after"), before);
}

/// A gateway that has very many connections, all alike, and counts how often it is asked for one,
/// and what it is.
struct Crowd {
    connection: Connection,
    asked: Cell<usize>,
    versions: Cell<usize>,
    /// It is called to its end when it has been asked so often what it is.
    called_after: usize,
    exchanges: Exchanges,
    credentials: Credentials,
}

impl Crowd {
    const SIZE: usize = 10_000;

    fn new() -> Self {
        let auth = || Message::new().with("auth", "psk");
        let gw = Message::new().with_section("local", auth()).with_section("remote", auth());
        let gw = gw.with_section("children", Message::new().with_section("net", Message::new()));
        let connection = schema::connection(&Message::new().with_section("gw", gw), Policy::Modern).unwrap();
        Self {
            connection,
            asked: Cell::default(),
            versions: Cell::default(),
            called_after: usize::MAX,
            exchanges: Exchanges::default(),
            credentials: Credentials::default(),
        }
    }
}

/// A client that has said all that it has to say.
fn client(path: &Path, packets: &[Packet]) -> Stream {
    let mut client = Stream::connect(path).unwrap();
    let mut said = Vec::new();
    packets.iter().for_each(|packet| packet.encode(&mut said).unwrap());
    client.write_all(&said).unwrap();
    client
}

fn command(name: &str) -> Packet {
    Packet::CmdRequest(name.into(), Message::new())
}

/// Reads to the answer; returns how many events came before it.
fn read_to_answer(mut client: Stream) -> usize {
    let (mut input, mut events, mut buffer) = (Deframer::default(), 0, [0; 16384]);
    loop {
        let len = client.read(&mut buffer).unwrap();
        assert!(len > 0, "the server has hung up");
        input.push(&buffer[..len]).unwrap();
        while let Some(packet) = input.next_packet().unwrap() {
            match Packet::parse(&packet).unwrap() {
                Packet::Event(..) => events += 1,
                Packet::CmdResponse(_) => return events,
                _ => {}
            }
        }
    }
}

/// A reader that is as fast as the answer is made must not keep IKE and the other clients waiting
/// until its end.
#[test]
fn a_fast_reader_of_a_long_answer_leaves_others_their_turn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vici.sock");
    let mut poll = Poll::new().unwrap();
    let mut socket = ViciSocket::open(&path, poll.registry(), 0).unwrap();
    let reader = client(&path, &[Packet::EventRegister("list-conn".into()), command("list-conns")]);
    let mut other = client(&path, &[command("version")]);
    other.set_nonblocking(true).unwrap();
    let reading = std::thread::spawn(move || read_to_answer(reader));

    let (mut server, mut crowd) = (Server::new(), Crowd::new());
    let mut events = Events::with_capacity(8);
    let (mut more, mut made, mut made_before) = (false, 0, None);
    while !reading.is_finished() {
        let timeout = if more { Duration::ZERO } else { Duration::from_millis(10) };
        match poll.poll(&mut events, Some(timeout)) {
            // A machine that is stopped for a moment (signal(7)).
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            polled => polled.unwrap(),
        }
        for event in &events {
            match event.token() {
                Token(0) => socket.accept(&mut server, poll.registry()),
                token => socket.ready(token),
            }
        }
        more = socket.pump(&mut server, Time::default(), &mut crowd);
        let asked = crowd.asked.take();
        assert!(asked <= 256, "{asked} connections shown in one turn");
        made += asked;
        if other.read(&mut [0; 512]).is_ok_and(|len| len > 0) {
            made_before = Some(made);
        }
    }
    assert_eq!(reading.join().unwrap(), Crowd::SIZE);
    assert_eq!(made, Crowd::SIZE);
    assert!(made_before.is_some_and(|made| made <= 512), "the other one had to wait: {made_before:?}");
}

/// SIGTERM comes while clients have said many commands each: those that have not begun wait until
/// the end has begun.
#[test]
fn commands_wait_as_soon_as_the_end_is_called_for() {
    const CLIENTS: usize = 3;
    const EACH: usize = 10;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vici.sock");
    let mut poll = Poll::new().unwrap();
    let mut socket = ViciSocket::open(&path, poll.registry(), 0).unwrap();
    let commands: Vec<Packet> = (0..EACH).map(|_| command("version")).collect();
    let _clients: Vec<Stream> = (0..CLIENTS).map(|_| client(&path, &commands)).collect();
    let (mut server, mut crowd) = (Server::new(), Crowd::new());
    crowd.called_after = EACH + 2;
    let mut events = Events::with_capacity(8);
    let mut turn = |server: &mut Server, crowd: &mut Crowd| {
        match poll.poll(&mut events, Some(Duration::ZERO)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            polled => polled.unwrap(),
        }
        for event in &events {
            match event.token() {
                Token(0) => socket.accept(server, poll.registry()),
                token => socket.ready(token),
            }
        }
        socket.pump(server, Time::default(), crowd)
    };
    while crowd.takes_commands() {
        turn(&mut server, &mut crowd);
    }
    for _ in 0..3 {
        assert!(turn(&mut server, &mut crowd), "there is more to be done");
        assert_eq!(crowd.versions.get(), EACH + 2, "in the middle of what the second client has said");
    }
    crowd.called_after = usize::MAX;
    while crowd.versions.get() < CLIENTS * EACH {
        turn(&mut server, &mut crowd);
    }
}

impl Control for Crowd {
    fn command_refused(&mut self, _: &str, _: &str) {}

    fn policy(&self) -> Policy {
        Policy::Modern
    }

    fn connection_names(&self) -> Vec<String> {
        (0..Self::SIZE).map(|number| number.to_string()).collect()
    }

    fn connection(&self, _: &str) -> Option<&Connection> {
        self.asked.set(self.asked.get() + 1);
        Some(&self.connection)
    }

    fn takes_commands(&self) -> bool {
        self.versions.get() < self.called_after
    }

    fn version(&self) -> Version {
        self.versions.set(self.versions.get() + 1);
        Version {
            daemon: "testudod".into(),
            version: String::new(),
            sysname: String::new(),
            release: String::new(),
            machine: String::new(),
        }
    }

    fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    fn credentials_mut(&mut self) -> &mut Credentials {
        &mut self.credentials
    }

    fn processors(&self) -> Result<Processors, CommandError> {
        unreachable!("nobody asks for this")
    }

    fn hold_path_mtu(&mut self, _: IpAddr, _: u16, _: &str) -> Result<(), CommandError> {
        unreachable!("nobody asks for this")
    }

    fn release_path_mtus(&mut self, _: &str) {
        unreachable!("nobody asks for this")
    }

    fn alarms(&self, _: u64) -> AlarmPage {
        unreachable!("nobody asks for this")
    }

    fn accept_source(&mut self, _: IpAddr, _: Option<&str>) -> Result<(), CommandError> {
        unreachable!("nobody asks for this")
    }

    fn shut(&self, _: Option<AddrRange>) -> ShutPage {
        unreachable!("nobody asks for this")
    }

    fn release(&mut self, _: &Release) -> Result<Released, CommandError> {
        unreachable!("nobody asks for this")
    }

    fn exchanges(&self) -> &Exchanges {
        &self.exchanges
    }

    fn exchanges_mut(&mut self) -> &mut Exchanges {
        &mut self.exchanges
    }

    fn load_connection(&mut self, _: Connection) -> Result<(), CommandError> {
        unreachable!("nobody asks for this")
    }

    fn warn(&mut self, _: Option<&str>, _: String) {
        unreachable!("nobody asks for this")
    }

    fn unload_connection(&mut self, _: &str) -> Result<(), CommandError> {
        unreachable!("nobody asks for this")
    }

    fn load_secret(&mut self, _: SharedSecret) -> Result<(), CommandError> {
        unreachable!("nobody asks for this")
    }

    fn unload_secret(&mut self, _: &str) {
        unreachable!("nobody asks for this")
    }

    fn secret_names(&self) -> Vec<String> {
        unreachable!("nobody asks for this")
    }

    fn clear_secrets(&mut self) {
        unreachable!("nobody asks for this")
    }

    fn load_pool(&mut self, _: Pool) -> Result<(), CommandError> {
        unreachable!("nobody asks for this")
    }

    fn unload_pool(&mut self, _: &str) -> Result<(), CommandError> {
        unreachable!("nobody asks for this")
    }

    fn pools(&self) -> Vec<PoolStatus> {
        unreachable!("nobody asks for this")
    }

    fn leases(&self, _: &str) -> Vec<LeaseStatus> {
        unreachable!("nobody asks for this")
    }

    fn initiate(&mut self, _: JobId, _: &Initiate) -> Result<(), CommandError> {
        unreachable!("nobody asks for this")
    }

    fn terminate(&mut self, _: JobId, _: &Terminate) -> Result<u32, CommandError> {
        unreachable!("nobody asks for this")
    }

    fn set_policy(&mut self, _: &SetPolicy) -> Result<(), CommandError> {
        unreachable!("nobody asks for this")
    }

    fn reload_settings(&mut self) -> Result<(), CommandError> {
        unreachable!("nobody asks for this")
    }

    fn rekey(&mut self, _: &Rekey) -> u32 {
        unreachable!("nobody asks for this")
    }

    fn replicate(&mut self, _: JobId, _: ConfigChange, _: Zeroizing<Vec<u8>>) -> bool {
        unreachable!("nobody asks for this")
    }

    fn children(&self, _: &str, _: Time) -> Vec<ChildReport> {
        unreachable!("nobody asks for this")
    }

    fn node_of(&self, _: IkeSaId) -> Option<u32> {
        unreachable!("nobody asks for this")
    }

    fn ike_sa_ids(&self) -> Vec<IkeSaId> {
        unreachable!("nobody asks for this")
    }

    fn ike_sa(&self, _: IkeSaId) -> Option<IkeSaStatus> {
        unreachable!("nobody asks for this")
    }

    fn child_usage(&self, _: ChildSaId) -> ChildUsage {
        unreachable!("nobody asks for this")
    }

    fn stats(&self) -> Stats {
        unreachable!("nobody asks for this")
    }

    fn counters(&self) -> Counters {
        unreachable!("nobody asks for this")
    }

    fn drain(&mut self, _: &Drain) -> Result<(), CommandError> {
        unreachable!("nobody asks for this")
    }

    fn change_nodes(&mut self, _: &ChangeNodes) -> Result<u64, CommandError> {
        unreachable!("nobody asks for this")
    }

    fn cluster(&self) -> Option<ClusterReport> {
        unreachable!("nobody asks for this")
    }
}
