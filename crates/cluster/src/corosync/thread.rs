//! The engine's thread: everything that calls corosync's libraries, and the only thing that does.

use super::agreement::Agreement;
use super::error::{Error, Result};
use super::roll;
use super::session::{Notification, Sent, Session};
use super::shared::Shared;
use super::wire::{self, Incoming, Standing};
use super::witness::Watch;
use crate::engine::EngineEvent;
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

/// Between two attempts to reach a daemon that is not there.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(200);
/// Between two attempts to send what corosync does not take now.
const SEND_RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// Messages sent before corosync is heard again.
const MAX_SENT_AT_ONCE: usize = 64;

/// Corosync calls a view quorate that is not shown to be the only one.
const TWO_NODE: &str = "corosync.conf has quorum.two_node: 1, with which each half of a cluster that is cut in two is quorate: \
    a node alone counts as one without quorum. Use a quorum device (quorum.device) or a third node, and take two_node away";

/// The thread's own.
pub(super) struct Thread {
    pub(super) poll: Poll,
    pub(super) shared: Arc<Shared>,
    pub(super) libraries: Libraries,
    pub(super) node: NodeId,
    pub(super) nodes: usize,
    pub(super) group: String,
    pub(super) witness: Watch,
}

/// A session with what belongs to it.
struct Connected {
    session: Session,
    /// Notifications that have not been digested, in order.
    notifications: VecDeque<Notification>,
    agreement: Agreement,
    /// What has to be said before anything of the host.
    announcements: Vec<Standing>,
    obstacle: Option<String>,
    /// When it is next to be said that this process is alive. `None`: that is under way.
    next_alive: Option<Instant>,
    /// For the log; and whether it was said already.
    notices: Vec<EngineEvent>,
    noticed: bool,
}

/// Why a connection ends.
enum End {
    /// The host wants it.
    Stop,
    /// The others have put this process out.
    PutOut,
    /// Corosync, or what it tells.
    Failed(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// How soon the thread has to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// There is more.
    Now,
    /// Corosync did not take a message.
    Soon,
    /// When something happens.
    Idle,
}

impl Thread {
    /// Connects, and connects again, until it is told to end.
    pub(super) fn run(mut self) {
        let mut reported: Option<String> = None;
        while !self.shared.stopped() {
            let ended = match self.connect() {
                Ok(mut connected) => {
                    reported = None;
                    let reason = self.serve(&mut connected);
                    self.unwatch(&connected.session);
                    self.shared.set_witness(None);
                    reason
                }
                Err(error) => End::Failed(error),
            };
            match ended {
                End::Failed(error) => {
                    let reason = error.to_string();
                    // As long as the reason stays the same it is told once.
                    if reported.as_ref() != Some(&reason) {
                        reported = Some(reason.clone());
                        self.shared.tell([EngineEvent::Down { reason }]);
                    }
                }
                End::PutOut => self.shared.tell([EngineEvent::PutOut]),
                End::Stop => {}
            }
            // With a host that is stuck the others would wait for it again.
            while !self.shared.stopped() {
                self.wait(RECONNECT_INTERVAL);
                if self.shared.served() {
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
        // Nanoseconds: no connection begins soon enough, nor opens epochs fast enough, to meet the
        // numbers of the one before.
        let serial = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let agreement = Agreement::new(session.me, self.nodes, serial);
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

    /// Before the libraries close them, and the numbers stand for something else.
    fn unwatch(&self, session: &Session) {
        for fd in &session.fds {
            // What the library has closed already is no longer watched.
            let _gone = self.poll.registry().deregister(&mut SourceFd(fd));
        }
    }

    /// Lets some time go by, less if somebody wakes the thread.
    fn wait(&mut self, limit: Duration) {
        let mut events = Events::with_capacity(8);
        // Interrupted or not, everything is looked at afterwards.
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
        // Quorum first: where it speaks of a new ring, CPG has spoken of it before, and the second
        // look sees that.
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
        // Corosync answers nobody while very much waits to be sent.
        if then == Next::Idle && self.witness.is_due() {
            let votes = connected.session.witness();
            self.shared.set_witness(votes);
            self.shared.tell(self.witness.looked(votes).map(|line| EngineEvent::Notice(line.to_owned())));
        }
        Ok(then)
    }

    /// Sends what waits.
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
                    let only = !quorate || self.session.is_the_only_one(daemons)?;
                    self.agreement.quorum(ring, quorate && only);
                    if !only && !std::mem::replace(&mut self.noticed, true) {
                        self.notices.push(EngineEvent::Notice(TWO_NODE.to_owned()));
                    }
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

    fn announce(&mut self, standing: Standing) {
        // Of what could not be sent yet, only the newest of its kind is still of use.
        self.announcements.retain(|waiting| discriminant(waiting) != discriminant(&standing));
        self.announcements.push(standing);
    }

    /// Says that this process is alive, if it is time.
    fn say_alive(&mut self) {
        if self.next_alive.take_if(|at| *at <= Instant::now()).is_some() {
            self.announce(Standing::Alive);
        }
    }

    /// How long there is nothing to do, as long as nothing happens.
    fn idle(&self) -> Duration {
        match self.next_alive.map(|at| at.saturating_duration_since(Instant::now())) {
            // A host that is stuck is looked after.
            Some(Duration::ZERO) | None => roll::ROLL_INTERVAL,
            Some(left) => left,
        }
    }

    /// Why there is no view, if that has just come up.
    fn new_obstacle(&mut self) -> Option<String> {
        let obstacle = self.agreement.obstacle();
        let new = obstacle.clone().filter(|_| obstacle != self.obstacle);
        self.obstacle = obstacle;
        new
    }
}
