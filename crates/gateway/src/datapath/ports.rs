//! The ports' interfaces: whether each is there and in use, and since when. An interface may be
//! missing at the start, go while the daemon runs, and come again with another number. Nothing here
//! touches an interface: `reopen` does.

use std::time::{Duration, Instant};
use testudo_fastpath::fib::{PortIndex, PortLink};
use testudo_fastpath::filter::{FilterPort, XdpMode};
use testudo_fastpath::port::PortStatistics;
use testudo_fastpath::port::xdp::KernelLosses;

/// When an interface that cannot be used is tried again, unless it changes before.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// All ports, by their numbers.
pub(super) struct Ports(Vec<Port>);

struct Port {
    name: String,
    state: State,
    /// When the present [`Condition`] began.
    since: Instant,
    /// When the interface was lost, or the start.
    lost: Instant,
    /// Whether the link was up when the log last spoke of it.
    link: bool,
    /// The interface at the last attempt to use it, and when the next attempt is due without a
    /// change.
    tried: Option<(PortLink, Instant)>,
    /// The sockets that it has.
    sockets: Vec<KernelLosses>,
    /// Losses below sockets that were closed.
    closed: PortStatistics,
}

/// What a port is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It uses the interface with that number.
    InUse(u32),
    /// There is no interface of its name.
    Missing,
    /// There is one, but it cannot be used.
    Refused(String),
}

/// What is to be done about a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    /// Its interface is gone, or another one has its name.
    Close,
    /// Its interface is there, and not in use.
    Open,
}

/// How a port is, for operators.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Condition<'a> {
    /// `up`, `link-down`, `missing` or `waiting`.
    pub(super) state: &'static str,
    /// For how long it has been so.
    pub(super) lasts: Duration,
    /// Why its interface cannot be used.
    pub(super) why: Option<&'a str>,
}

/// What the log says of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PortLine {
    Warning(String),
    Info(String),
}

impl PortLine {
    pub(super) fn log(self) {
        match self {
            Self::Warning(line) => tracing::warn!("{line}"),
            Self::Info(line) => tracing::info!("{line}"),
        }
    }
}

impl Ports {
    /// The ports as the daemon starts with them; those whose interface is missing have number 0.
    pub(super) fn new(ports: &[FilterPort], now: Instant) -> Self {
        let port = |port: &FilterPort| Port {
            name: port.name.clone(),
            state: if port.ifindex == 0 { State::Missing } else { State::InUse(port.ifindex) },
            since: now,
            lost: now,
            link: true,
            tried: None,
            sockets: Vec::new(),
            closed: PortStatistics::default(),
        };
        Self(ports.iter().map(port).collect())
    }

    fn get(&self, index: PortIndex) -> Option<&Port> {
        self.0.get(usize::from(index.0))
    }

    fn get_mut(&mut self, index: PortIndex) -> Option<&mut Port> {
        self.0.get_mut(usize::from(index.0))
    }

    /// What the log says of ports that the daemon starts without.
    pub(super) fn missing(&self) -> impl Iterator<Item = PortLine> {
        let missing = self.0.iter().filter(|port| port.state == State::Missing);
        missing.map(|port| {
            PortLine::Warning(format!(
                "port {}: there is no interface of that name; waiting for it",
                port.name
            ))
        })
    }

    /// True if the port's interface has the filter, and sockets.
    pub(super) fn is_in_use(&self, index: PortIndex) -> bool {
        self.get(index).is_some_and(|port| matches!(port.state, State::InUse(_)))
    }

    /// What has to be done about a port whose interface is in that state.
    pub(super) fn need(&self, link: &PortLink, now: Instant) -> Need {
        let Some(port) = self.get(link.index) else { return Need::Nothing };
        let is_due = || match &port.tried {
            Some((before, again)) => before != link || *again <= now,
            None => true,
        };
        match (&port.state, link.ifindex) {
            (State::InUse(before), found) if *before != found => Need::Close,
            (State::Refused(_), 0) => Need::Close,
            (State::InUse(_), _) | (State::Missing, 0) => Need::Nothing,
            (State::Missing | State::Refused(_), _) if is_due() => Need::Open,
            (State::Missing | State::Refused(_), _) => Need::Nothing,
        }
    }

    /// A port has got a further socket.
    pub(super) fn add_socket(&mut self, index: PortIndex, losses: KernelLosses) {
        self.get_mut(index).into_iter().for_each(|port| port.sockets.push(losses.clone()));
    }

    /// The port's interface is gone. Its sockets must still be open: their losses are added up
    /// here.
    pub(super) fn lost(&mut self, index: PortIndex, now: Instant) -> Option<PortLine> {
        let port = self.get_mut(index)?;
        port.close();
        port.tried = None;
        port.lost = now;
        port.turn(State::Missing, now);
        Some(PortLine::Warning(format!("port {}: interface is gone; waiting for it", port.name)))
    }

    /// The port uses its interface.
    pub(super) fn opened(&mut self, link: &PortLink, mode: XdpMode, now: Instant) -> Option<PortLine> {
        let port = self.get_mut(link.index)?;
        let waited = now.duration_since(port.lost).as_secs();
        port.tried = None;
        port.link = true;
        port.turn(State::InUse(link.ifindex), now);
        Some(PortLine::Info(format!(
            "port {}: interface is there after {waited} s, in use; filter attached, {mode:?}",
            port.name
        )))
    }

    /// The port's interface is there, but cannot be used. Gives a line if the reason is new.
    pub(super) fn refused(&mut self, link: &PortLink, why: String, now: Instant) -> Option<PortLine> {
        let port = self.get_mut(link.index)?;
        port.close();
        port.tried = Some((link.clone(), now + RETRY_INTERVAL));
        let line = PortLine::Warning(format!("port {}: interface cannot be used yet: {why}", port.name));
        let state = State::Refused(why);
        if port.state == state {
            return None;
        }
        port.turn(state, now);
        Some(line)
    }

    /// Gives a line if the link of a port in use has gone or come.
    pub(super) fn link(&mut self, link: &PortLink, now: Instant) -> Option<PortLine> {
        let port = self.get_mut(link.index)?;
        if port.state != State::InUse(link.ifindex) || port.link == link.up {
            return None;
        }
        port.link = link.up;
        port.since = now;
        let name = &port.name;
        Some(match link.up {
            true => PortLine::Info(format!("port {name}: link is up")),
            false => PortLine::Warning(format!("port {name}: link is down")),
        })
    }

    /// How a port is.
    pub(super) fn condition(&self, index: PortIndex, now: Instant) -> Option<Condition<'_>> {
        let port = self.get(index)?;
        let (state, why) = match &port.state {
            State::InUse(_) if port.link => ("up", None),
            State::InUse(_) => ("link-down", None),
            State::Missing => ("missing", None),
            State::Refused(why) => ("waiting", Some(why.as_str())),
        };
        Some(Condition { state, lasts: now.duration_since(port.since), why })
    }

    /// How many sockets a port has.
    pub(super) fn sockets(&self, index: PortIndex) -> usize {
        self.get(index).map_or(0, |port| port.sockets.len())
    }

    /// All that the kernel has lost below a port so far.
    pub(super) fn losses(&self, index: PortIndex) -> PortStatistics {
        self.get(index).map(Port::losses).unwrap_or_default()
    }
}

impl Port {
    fn turn(&mut self, state: State, now: Instant) {
        self.state = state;
        self.since = now;
    }

    /// Its sockets will be closed: adds up their losses.
    fn close(&mut self) {
        self.closed = self.losses();
        self.sockets.clear();
    }

    fn losses(&self) -> PortStatistics {
        let open = self.sockets.iter().filter_map(KernelLosses::read);
        open.fold(self.closed, PortStatistics::plus)
    }
}

#[cfg(test)]
mod tests;
