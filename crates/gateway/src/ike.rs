//! IKE as the gateway drives it: an endpoint that stands alone, or one within a member of a cluster.

use std::ops::{Deref, DerefMut};
use testudo_cluster::member::{Member, MemberOutput};
use testudo_ike::endpoint::{Endpoint, IkeSaStatus, SaNames};
use testudo_ike::output::{IkeSaId, Path, Time, UnixTime};

/// One or the other. What both can do is the endpoint's; what differs is here.
pub(crate) enum Ike {
    /// All that it does is stable at once: there is nobody to wait for.
    Alone(Box<Endpoint>),
    /// What it does leaves when the others hold it.
    Member(Box<Member>),
}

impl Deref for Ike {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        match self {
            Self::Alone(endpoint) => endpoint,
            Self::Member(member) => member.endpoint(),
        }
    }
}

impl DerefMut for Ike {
    fn deref_mut(&mut self) -> &mut Endpoint {
        match self {
            Self::Alone(endpoint) => endpoint,
            Self::Member(member) => member.endpoint_mut(),
        }
    }
}

impl Ike {
    /// The member of a cluster, if the gateway does not stand alone.
    pub(crate) fn member(&mut self) -> Option<&mut Member> {
        match self {
            Self::Alone(_) => None,
            Self::Member(member) => Some(member),
        }
    }

    /// Tells the time of day.
    pub(crate) fn set_unix_time(&mut self, now: Time, unix: UnixTime) {
        match self {
            Self::Alone(endpoint) => endpoint.set_unix_time(now, unix),
            Self::Member(member) => member.set_unix_time(now, unix),
        }
    }

    /// An IKE message has come.
    pub(crate) fn handle_datagram(&mut self, now: Time, path: Path, bytes: &[u8]) {
        match self {
            Self::Alone(endpoint) => endpoint.handle_datagram(now, path, bytes),
            Self::Member(member) => member.handle_ike(now, path, bytes),
        }
    }

    /// [`Self::next_timeout`] has come.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Alone(endpoint) => endpoint.handle_timeout(now),
            Self::Member(member) => member.handle_timeout(now),
        }
    }

    /// When something is due.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Alone(endpoint) => endpoint.next_timeout(),
            Self::Member(member) => member.next_timeout(),
        }
    }

    /// An IKE SA, of whichever node.
    pub(crate) fn sa(&self, id: IkeSaId) -> Option<IkeSaStatus> {
        match self {
            Self::Alone(endpoint) => endpoint.sa(id),
            Self::Member(member) => member.sa(id),
        }
    }

    /// The numbers of all IKE SAs, of all nodes.
    pub(crate) fn sa_ids(&self) -> Vec<IkeSaId> {
        match self {
            Self::Alone(endpoint) => endpoint.names().map(SaNames::id).collect(),
            Self::Member(member) => member.sa_ids(),
        }
    }

    /// Whatever was begun is complete: the others may hear of it.
    pub(crate) fn pump(&mut self, now: Time) {
        if let Self::Member(member) = self {
            member.pump(now);
        }
    }

    /// What to do next. What waits for nobody is stable at once.
    pub(crate) fn poll_output(&mut self) -> Option<MemberOutput> {
        match self {
            Self::Alone(endpoint) => endpoint.poll_output().map(MemberOutput::Ike),
            Self::Member(member) => member.poll_output(),
        }
    }
}
