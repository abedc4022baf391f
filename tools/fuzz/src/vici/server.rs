//! The server with two clients that send anything, in any order, and read at any time.

use super::{gateway::Gateway, text};
use crate::input::{Input, bit};
use std::time::Duration;
use testudo_ike::output::Time;
use testudo_vici::codec::{Deframer, MAX_READ, Packet};
use testudo_vici::control::JobId;
use testudo_vici::server::{ClientId, LogLine, Server};
use testudo_vici::{CommandError, Error};

/// The most steps of one input.
const MOST: usize = 100;
/// Every command, so that the fuzzer need not spell them. `""` stands for a name from the input.
pub(crate) const COMMANDS: [&str; 30] = [
    "",
    "version",
    "stats",
    "testudo-counters",
    "get-conns",
    "get-shared",
    "get-keys",
    "get-authorities",
    "get-pools",
    "get-algorithms",
    "load-conn",
    "unload-conn",
    "load-shared",
    "unload-shared",
    "clear-creds",
    "flush-certs",
    "reload-settings",
    "initiate",
    "terminate",
    "list-sas",
    "list-conns",
    "list-policies",
    "list-certs",
    "list-authorities",
    "load-cert",
    "load-key",
    "rekey",
    "install",
    "get-counters",
    "redirect",
];
/// Every event, and one that does not exist.
pub(crate) const EVENTS: [&str; 10] = [
    "list-sa",
    "list-conn",
    "list-policy",
    "list-cert",
    "list-authority",
    "control-log",
    "log",
    "ike-updown",
    "child-updown",
    "nothing",
];

/// Steps: `what:8 | ...`, see [`Rig::step`].
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let mut rig = Rig::new();
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        rig.step(&mut input);
        rig.check();
    }
}

/// A client's end.
struct Client {
    id: ClientId,
    received: Deframer,
    /// Commands sent as such, and answers to them. Raw octets of a client may be a command as well.
    asked: u64,
    answered: u64,
    raw: bool,
}

struct Rig {
    server: Server,
    gateway: Gateway,
    clients: [Client; 2],
    now: Time,
}

fn client(server: &mut Server) -> Client {
    let id = server.connect().expect("there are few clients");
    Client { id, received: Deframer::default(), asked: 0, answered: 0, raw: false }
}

impl Rig {
    fn new() -> Self {
        let mut server = Server::new();
        let clients = [client(&mut server), client(&mut server)];
        Self { server, gateway: Gateway::default(), clients, now: Time::default() }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let who = usize::from(bit(what, 7));
        match what & 7 {
            0 => {
                self.clients[who].raw = true;
                self.send(who, input.chunk());
            }
            1 => self.ask(who, input),
            2 => {
                let event = EVENTS[usize::from(input.u8()) % EVENTS.len()].to_owned();
                let packet =
                    if bit(what, 3) { Packet::EventUnregister(event) } else { Packet::EventRegister(event) };
                self.send_packet(who, &packet);
            }
            3 => self.read(who, usize::from(input.u16())),
            4 => self.finish(what, input),
            5 => {
                self.now = Time(self.now.0.saturating_add(Duration::from_millis(input.u16().into())));
                self.server.handle_deadline(self.now);
            }
            6 => {
                let text = String::from_utf8_lossy(input.chunk()).into_owned();
                let line =
                    LogLine { level: what >> 3 & 3, ike: None, connection: Some("gw"), message: &text };
                self.server.log(line);
                let jobs = self.gateway.initiations.iter().chain(&self.gateway.terminations);
                jobs.for_each(|job| self.server.control_log(*job, line));
            }
            _ => self.reconnect(who),
        }
    }

    /// `command:8 | arguments`, with a name before the arguments if the command is `""`.
    fn ask(&mut self, who: usize, input: &mut Input<'_>) {
        let name = match COMMANDS[usize::from(input.u8()) % COMMANDS.len()] {
            "" => String::from_utf8_lossy(input.chunk()).into_owned(),
            name => name.to_owned(),
        };
        let packet = Packet::CmdRequest(name, text::message(input.chunk()));
        self.clients[who].asked += 1;
        self.send_packet(who, &packet);
    }

    fn send_packet(&mut self, who: usize, packet: &Packet) {
        let mut bytes = Vec::new();
        if packet.encode(&mut bytes).is_ok() {
            self.send(who, &bytes);
        }
    }

    fn send(&mut self, who: usize, bytes: &[u8]) {
        let id = self.clients[who].id;
        if !self.server.wants_input(id) {
            return;
        }
        let sent = bytes
            .chunks(MAX_READ)
            .try_for_each(|piece| self.server.receive(id, piece, self.now, &mut self.gateway));
        if let Err(error) = sent {
            self.lost(who, &error);
        }
    }

    /// Reads at most this many octets; every packet must be whole and well formed.
    fn read(&mut self, who: usize, most: usize) {
        let client = &mut self.clients[who];
        let output = match self.server.poll_output(client.id, self.now, &mut self.gateway) {
            Ok(output) => output,
            Err(error) => return self.lost(who, &error),
        };
        let len = output.len().min(most);
        client.received.push(&output[..len]).expect("a client that reads has room");
        self.server.sent(client.id, len);
        while let Some(bytes) = client.received.next_packet().expect("the server frames its packets") {
            match Packet::parse(&bytes).expect("the server writes packets") {
                Packet::CmdResponse(_) | Packet::CmdUnknown => client.answered += 1,
                Packet::EventConfirm | Packet::EventUnknown | Packet::Event(..) => (),
                other => panic!("the server sent {other:?}"),
            }
        }
        assert!(client.raw || client.answered <= client.asked, "one answer for each command");
    }

    /// Ends a job, or one that does not exist.
    fn finish(&mut self, what: u8, input: &mut Input<'_>) {
        let number = usize::from(input.u8());
        let pick = |jobs: &mut Vec<JobId>| match jobs.len() {
            0 => JobId(number as u64),
            len => jobs.remove(number % len),
        };
        if bit(what, 3) {
            let job = pick(&mut self.gateway.terminations);
            self.server.finish_terminate(job, input.u8().into());
        } else {
            let job = pick(&mut self.gateway.initiations);
            let result = if bit(what, 4) { Err(CommandError::new("no answer")) } else { Ok(()) };
            self.server.finish_initiate(job, result);
        }
    }

    fn lost(&mut self, who: usize, error: &Error) {
        assert!(!error.to_string().is_empty());
        self.reconnect(who);
    }

    fn reconnect(&mut self, who: usize) {
        self.server.disconnect(self.clients[who].id);
        self.clients[who] = client(&mut self.server);
    }

    fn check(&self) {
        assert_eq!(self.server.clients().count(), self.clients.len());
        assert!(
            self.server.next_deadline().is_none_or(|deadline| deadline > self.now || self.now.0.is_zero())
        );
    }
}
