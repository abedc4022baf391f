//! The engine's thread: only it calls corosync's libraries.

use super::agreement::Agreement;
use super::error::{Error, Result};
use super::roll;
use super::rule::{Claim, is_two_node};
use super::session::{Notification, Sent, Session};
use super::shared::Shared;
use super::wire::{self, Incoming, Standing};
use super::witness::Watch;
use crate::engine::EngineEvent;
use crate::group::QuorumRule;
use crate::node::NodeId;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testudo_corosync::Libraries;

pub(super) const WAKE: Token = Token(0);
const SESSION: [Token; 2] = [Token(1), Token(2)];

/// Pause between two attempts to reach a daemon that is not running.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(200);
/// Pause between two attempts to send a message that corosync does not take now.
const SEND_RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// Bound on the messages that are sent before corosync's events are read again.
const MAX_SENT_AT_ONCE: usize = 64;

/// Corosync calls a view quorate that may not be the only one.
const TWO_NODE: &str = "corosync.conf has quorum.two_node: 1, with which each half of a cluster that is cut in two is quorate: \
    a node alone counts as one without quorum. Use a quorum device (quorum.device) or a third node, and take two_node away";

/// State of the thread.
pub(super) struct Thread {
    pub(super) poll: Poll,
    pub(super) shared: Arc<Shared>,
    pub(super) libraries: Libraries,
    pub(super) node: NodeId,
    pub(super) rule: QuorumRule,
    pub(super) group: String,
    pub(super) witness: Watch,
}

/// A session and the state that belongs to it.
struct Connected {
    session: Session,
    /// Notifications that have not been digested, in order.
    notifications: VecDeque<Notification>,
    agreement: Agreement,
    /// Statements that must go before any message of the host.
    announcements: Vec<Standing>,
    obstacle: Option<String>,
    /// When this process must next state that it is alive. `None` while such a statement is under
    /// way.
    next_alive: Option<Instant>,
    /// Lines for the log; and whether each was logged already.
    notices: Vec<EngineEvent>,
    noticed: bool,
}

/// Why a connection ends.
enum End {
    /// The host has asked for it.
    Stop,
    /// The host takes no part any more.
    Left,
    /// The others have put this process out.
    PutOut,
    /// Corosync has failed, or reported something impossible.
    Failed(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// When the thread must check again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// At once: there is more.
    Now,
    /// Soon: corosync did not take a message.
    Soon,
    /// On the next event.
    Idle,
}

impl Thread {
    /// Connects, and reconnects, until it is told to end.
    pub(super) fn run(mut self) {
        let mut reported: Option<String> = None;
        while !self.shared.stopped() {
            let ended = match self.connect() {
                Ok(mut connected) => {
                    reported = None;
                    let reason = self.serve(&mut connected);
                    self.unwatch(&connected.session);
                    self.shared.set_witness(None);
                    self.shared.set_nodes(None);
                    reason
                }
                Err(error) => End::Failed(error),
            };
            match ended {
                End::Failed(error) => {
                    let reason = error.to_string();
                    // A reason that stays the same is logged once.
                    if reported.as_ref() != Some(&reason) {
                        reported = Some(reason.clone());
                        self.shared.tell([EngineEvent::Down { reason }]);
                    }
                }
                End::PutOut => self.shared.tell([EngineEvent::PutOut]),
                End::Stop | End::Left => {}
            }
            // If the host is stuck, the others would have to wait for it again.
            while !self.shared.stopped() {
                self.wait(RECONNECT_INTERVAL);
                if self.shared.served() && !self.shared.has_left() {
                    break;
                }
            }
        }
        self.shared.end();
    }

    fn connect(&mut self) -> Result<Connected> {
        let session = Session::open(self.libraries, self.node, &self.group)?;
        for (fd, token) in session.fds.iter().zip(SESSION) {
            let watched = self.poll.registry().register(&mut SourceFd(fd), token, Interest::READABLE);
            watched.map_err(Error::Watch)?;
        }
        // In nanoseconds: no connection begins soon enough, or opens epochs fast enough, to reach
        // the numbers of the one before.
        let serial = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let agreement = Agreement::new(session.me, self.shared.electorate(), serial);
        Ok(Connected {
            session,
            notifications: VecDeque::new(),
            agreement,
            announcements: Vec::new(),
            obstacle: None,
            next_alive: Some(Instant::now()),
            notices: Vec::new(),
            noticed: false,
        })
    }

    /// Ends watching before the libraries close the descriptors and their numbers are reused.
    fn unwatch(&self, session: &Session) {
        for fd in &session.fds {
            // A descriptor that the library has closed already is not watched any more.
            let _gone = self.poll.registry().deregister(&mut SourceFd(fd));
        }
    }

    /// Sleeps up to `limit`, or until the thread is woken.
    fn wait(&mut self, limit: Duration) {
        let mut events = Events::with_capacity(8);
        // Interrupted or not, the loop checks everything afterwards.
        let _interrupted = self.poll.poll(&mut events, Some(limit));
    }

    /// Serves a connection to its end.
    fn serve(&mut self, connected: &mut Connected) -> End {
        let mut next = Next::Now;
        loop {
            match next {
                Next::Now => {}
                Next::Soon => self.wait(SEND_RETRY_INTERVAL),
                Next::Idle => self.wait(connected.idle()),
            }
            if self.shared.stopped() {
                return End::Stop;
            }
            if self.shared.has_left() {
                return End::Left;
            }
            if self.shared.take_rejoin() {
                return End::Failed(Error::Rejoining);
            }
            match self.turn(connected) {
                Ok(then) => next = then,
                Err(reason) => return reason,
            }
        }
    }

    fn turn(&mut self, connected: &mut Connected) -> std::result::Result<Next, End> {
        let stalled = self.shared.stall();
        connected.agreement.set_electorate(self.shared.electorate());
        // Quorum first: before it reports a new ring, CPG has reported that ring, and the second
        // check sees it.
        let mut more = connected.session.dispatch_quorum(&mut connected.notifications)?;
        if !stalled {
            more |= connected.session.dispatch_cpg(&mut connected.notifications)?;
        }
        connected.digest()?;
        if self.shared.served() {
            connected.say_alive();
        }
        self.shared.tell(connected.agreement.take_events());
        self.shared.tell(connected.notices.drain(..));
        if let Some(reason) = connected.new_obstacle() {
            self.shared.tell([EngineEvent::Down { reason }]);
        }
        let then = match self.send(connected)? {
            Next::Idle if more => Next::Now,
            then => then,
        };
        // Corosync answers no question while very many messages wait to be sent.
        if then == Next::Idle && self.witness.is_due() {
            self.look(&connected.session);
        }
        Ok(then)
    }

    /// Checks the witness's vote, the nodes of corosync.conf, and whether that fits testudo.toml.
    fn look(&mut self, session: &Session) {
        self.shared.set_nodes(session.nodes().ok());
        let info = session.votes().ok();
        let device = info.filter(|info| info.device_votes > 0).map(|info| info.device_casts);
        self.shared.set_witness(device);
        self.shared.tell(self.witness.looked(device).map(|line| EngineEvent::Notice(line.to_owned())));
        let Some(info) = info else { return };
        let misfit = self.rule.misfit(info.options);
        if self.shared.set_misfit(misfit.clone()) {
            self.shared.tell(misfit.map(EngineEvent::Notice));
        }
    }

    /// Sends waiting messages.
    fn send(&self, connected: &mut Connected) -> Result<Next> {
        while let Some(first) = connected.announcements.first() {
            if connected.session.send(&wire::standing(first))? == Sent::TryAgain {
                return Ok(Next::Soon);
            }
            connected.announcements.remove(0);
        }
        for _ in 0..MAX_SENT_AT_ONCE {
            let Some(framed) = self.shared.next_outgoing() else { return Ok(Next::Idle) };
            if connected.session.send(&framed)? == Sent::TryAgain {
                self.shared.put_back(framed);
                return Ok(Next::Soon);
            }
        }
        Ok(Next::Now)
    }
}

impl Connected {
    /// Draws the conclusions from what corosync notifies of.
    fn digest(&mut self) -> std::result::Result<(), End> {
        while let Some(notification) = self.notifications.pop_front() {
            match notification {
                Notification::Members(members) => self.agreement.members(members)?,
                Notification::Ring(ring) => self.agreement.ring(ring),
                Notification::Quorum(ring, quorate, daemons) => {
                    let claim = if quorate { Some(self.claim(daemons)?) } else { None };
                    self.agreement.quorum(ring, claim);
                }
                Notification::Message(from, Incoming::Message(bytes)) => self.agreement.message(from, bytes),
                Notification::Message(from, Incoming::Standing(standing)) => {
                    if (from, standing) == (self.agreement.me(), Standing::Alive) {
                        self.next_alive = Some(Instant::now() + roll::ROLL_INTERVAL);
                    }
                    self.agreement.standing(from, standing);
                    if self.agreement.is_out() {
                        return Err(End::PutOut);
                    }
                }
                Notification::Message(_, Incoming::Unknown) => {}
            }
        }
        for standing in self.agreement.take_announcements() {
            self.announce(standing);
        }
        Ok(())
    }

    /// What corosync says of a ring of these daemons, which it calls quorate.
    fn claim(&mut self, daemons: Vec<NodeId>) -> Result<Claim> {
        let info = self.session.votes()?;
        if is_two_node(&info, daemons.len()) && !std::mem::replace(&mut self.noticed, true) {
            self.notices.push(EngineEvent::Notice(TWO_NODE.to_owned()));
        }
        Ok(Claim { info, daemons })
    }

    fn announce(&mut self, standing: Standing) {
        // Among unsent statements of one kind only the newest is still of use.
        self.announcements.retain(|waiting| discriminant(waiting) != discriminant(&standing));
        self.announcements.push(standing);
    }

    /// States that this process is alive, if it is time.
    fn say_alive(&mut self) {
        if self.next_alive.take_if(|at| *at <= Instant::now()).is_some() {
            self.announce(Standing::Alive);
        }
    }

    /// How long the thread may sleep if nothing happens.
    fn idle(&self) -> Duration {
        match self.next_alive.map(|at| at.saturating_duration_since(Instant::now())) {
            // A host that is stuck is checked again after an interval.
            Some(Duration::ZERO) | None => roll::ROLL_INTERVAL,
            Some(left) => left,
        }
    }

    /// Why there is no view, if the reason is new.
    fn new_obstacle(&mut self) -> Option<String> {
        let obstacle = self.agreement.obstacle();
        let new = obstacle.clone().filter(|_| obstacle != self.obstacle);
        self.obstacle = obstacle;
        new
    }
}
