//! Answers that are a series of events, made only as fast as the client reads.

use crate::Error;
use crate::children::ChildReport;
use crate::codec::MAX_PACKET;
use crate::control::{Control, Selection};
use crate::message::Message;
use crate::render;
use crate::session::{Event, Session};
use crate::view::ListedCert;
use std::collections::VecDeque;
use testudo_ike::cert::Certificate;
use testudo_ike::config::ChildMode;
use testudo_ike::output::{IkeSaId, Time};

/// A streamed answer: the items still to be rendered, and the events that wait for the client.
pub(super) struct Stream {
    source: Source,
    ready: VecDeque<Message>,
}

/// The items still to be rendered.
pub(super) enum Source {
    /// `list-sas`.
    Sas(VecDeque<IkeSaId>, Selection),
    /// `list-conns`.
    Conns(VecDeque<String>),
    /// `testudo-children`.
    Children(VecDeque<String>),
    /// `list-policies`.
    Policies(VecDeque<String>, PolicyFilter),
    /// `list-certs`.
    Certs(VecDeque<ListedCert>),
    /// `list-authorities`.
    Authorities(VecDeque<(String, Certificate)>),
}

/// Which policies `list-policies` shows.
pub(super) struct PolicyFilter {
    pub(super) drop: bool,
    pub(super) pass: bool,
    pub(super) trap: bool,
    pub(super) child: Option<String>,
}

impl PolicyFilter {
    fn shows(&self, mode: ChildMode, name: &str) -> bool {
        let kind = match mode {
            ChildMode::Tunnel | ChildMode::Transport => self.trap,
            ChildMode::Pass => self.pass,
            ChildMode::Drop => self.drop,
        };
        kind && self.child.as_deref().is_none_or(|child| child == name)
    }
}

impl Stream {
    /// Octets of backlog at which the stream waits for the client to read.
    const MAX_UNREAD_OCTETS: usize = MAX_PACKET / 8;
    /// Items examined, shown or not, before the host gets its turn.
    const MAX_ITEMS_PER_TURN: usize = 128;

    pub(super) fn new(source: Source) -> Self {
        Self { source, ready: VecDeque::new() }
    }

    /// False while the client must read first.
    pub(super) fn wants_more(session: &Session) -> bool {
        session.output().len() < Self::MAX_UNREAD_OCTETS
    }

    /// Sends some events. Returns true at the end of the stream, false if there is more.
    pub(super) fn fill(
        &mut self,
        session: &mut Session,
        now: Time,
        control: &dyn Control,
    ) -> Result<bool, Error> {
        if !session.is_registered(self.source.event()) {
            return Ok(true);
        }
        let mut made = 0;
        while Self::wants_more(session) && made < Self::MAX_ITEMS_PER_TURN {
            if let Some(message) = self.ready.pop_front() {
                session.send_event(self.source.event(), message)?;
            } else if self.source.make(&mut self.ready, now, control) {
                made += 1;
            } else {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Source {
    fn event(&self) -> Event {
        match self {
            Self::Sas(..) => Event::ListSa,
            Self::Conns(_) => Event::ListConn,
            Self::Children(_) => Event::TestudoChild,
            Self::Policies(..) => Event::ListPolicy,
            Self::Certs(_) => Event::ListCert,
            Self::Authorities(_) => Event::ListAuthority,
        }
    }

    /// Renders the next item as events, perhaps none. Returns false if there is no next item.
    fn make(&mut self, out: &mut VecDeque<Message>, now: Time, control: &dyn Control) -> bool {
        match self {
            Self::Sas(ids, filter) => {
                let Some(id) = ids.pop_front() else { return false };
                out.extend(sa_events(id, filter, now, control));
            }
            Self::Conns(names) => {
                let Some(name) = names.pop_front() else { return false };
                out.extend(control.connection(&name).into_iter().flat_map(render::list_conn));
            }
            Self::Children(names) => {
                let Some(name) = names.pop_front() else { return false };
                out.extend(ChildReport::events(&name, &control.children(&name, now)));
            }
            Self::Policies(names, filter) => {
                let Some(name) = names.pop_front() else { return false };
                let children = control.connection(&name).map(|c| c.children.as_slice()).unwrap_or_default();
                let shown =
                    children.iter().filter(|c| render::has_policy(c) && filter.shows(c.mode, &c.name));
                out.extend(shown.map(|child| render::list_policy(&name, child)));
            }
            Self::Certs(certs) => {
                let Some(cert) = certs.pop_front() else { return false };
                out.push_back(render::list_cert(&cert));
            }
            Self::Authorities(authorities) => {
                let Some((name, ca)) = authorities.pop_front() else { return false };
                out.push_back(render::list_authority(&name, &ca));
            }
        }
        true
    }
}

fn sa_events(id: IkeSaId, filter: &Selection, now: Time, control: &dyn Control) -> Vec<Message> {
    let Some(mut sa) = control.ike_sa(id) else { return Vec::new() };
    if !filter.takes_ike(sa.id, sa.connection.as_deref()) {
        return Vec::new();
    }
    sa.children.retain(|child| filter.takes_child(child.id, &child.name));
    render::list_sa(&sa, control.node_of(id), now, &|id| control.child_usage(id))
}
