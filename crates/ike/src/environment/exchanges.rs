//! Counters of exchanges under charon's names: of the whole endpoint, and of each connection.
//!
//! As with charon, a message counts once, when it is made or understood: repetitions do not count,
//! and a message that belongs to no connection yet counts for the endpoint only.

use crate::message::ExchangeType;
use std::collections::BTreeMap;

/// The counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExchangeCounter {
    /// IKE SAs rekeyed by us.
    IkeRekeyInit,
    /// IKE SAs rekeyed by the peer.
    IkeRekeyResp,
    /// Child SAs rekeyed.
    ChildRekey,
    /// Messages that cannot be read, or whose integrity check failed.
    Invalid,
    /// Messages for an IKE SA that we do not have.
    InvalidSpi,
    /// IKE_SA_INIT requests received.
    IkeInitInReq,
    /// IKE_SA_INIT responses received.
    IkeInitInResp,
    /// IKE_SA_INIT requests sent.
    IkeInitOutReq,
    /// IKE_SA_INIT responses sent.
    IkeInitOutResp,
    /// IKE_AUTH requests received.
    IkeAuthInReq,
    /// IKE_AUTH responses received.
    IkeAuthInResp,
    /// IKE_AUTH requests sent.
    IkeAuthOutReq,
    /// IKE_AUTH responses sent.
    IkeAuthOutResp,
    /// CREATE_CHILD_SA requests received.
    CreateChildInReq,
    /// CREATE_CHILD_SA responses received.
    CreateChildInResp,
    /// CREATE_CHILD_SA requests sent.
    CreateChildOutReq,
    /// CREATE_CHILD_SA responses sent.
    CreateChildOutResp,
    /// INFORMATIONAL requests received.
    InfoInReq,
    /// INFORMATIONAL responses received.
    InfoInResp,
    /// INFORMATIONAL requests sent.
    InfoOutReq,
    /// INFORMATIONAL responses sent.
    InfoOutResp,
}

/// A message that counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted {
    InRequest,
    InResponse,
    OutRequest,
    OutResponse,
}

impl ExchangeCounter {
    /// All counters, in charon's order.
    pub const ALL: [Self; 21] = [
        Self::IkeRekeyInit,
        Self::IkeRekeyResp,
        Self::ChildRekey,
        Self::Invalid,
        Self::InvalidSpi,
        Self::IkeInitInReq,
        Self::IkeInitInResp,
        Self::IkeInitOutReq,
        Self::IkeInitOutResp,
        Self::IkeAuthInReq,
        Self::IkeAuthInResp,
        Self::IkeAuthOutReq,
        Self::IkeAuthOutResp,
        Self::CreateChildInReq,
        Self::CreateChildInResp,
        Self::CreateChildOutReq,
        Self::CreateChildOutResp,
        Self::InfoInReq,
        Self::InfoInResp,
        Self::InfoOutReq,
        Self::InfoOutResp,
    ];

    /// charon's name of the counter.
    pub fn name(self) -> &'static str {
        match self {
            Self::IkeRekeyInit => "ike-rekey-init",
            Self::IkeRekeyResp => "ike-rekey-resp",
            Self::ChildRekey => "child-rekey",
            Self::Invalid => "invalid",
            Self::InvalidSpi => "invalid-spi",
            Self::IkeInitInReq => "ike-init-in-req",
            Self::IkeInitInResp => "ike-init-in-resp",
            Self::IkeInitOutReq => "ike-init-out-req",
            Self::IkeInitOutResp => "ike-init-out-resp",
            Self::IkeAuthInReq => "ike-auth-in-req",
            Self::IkeAuthInResp => "ike-auth-in-resp",
            Self::IkeAuthOutReq => "ike-auth-out-req",
            Self::IkeAuthOutResp => "ike-auth-out-resp",
            Self::CreateChildInReq => "create-child-in-req",
            Self::CreateChildInResp => "create-child-in-resp",
            Self::CreateChildOutReq => "create-child-out-req",
            Self::CreateChildOutResp => "create-child-out-resp",
            Self::InfoInReq => "info-in-req",
            Self::InfoInResp => "info-in-resp",
            Self::InfoOutReq => "info-out-req",
            Self::InfoOutResp => "info-out-resp",
        }
    }

    /// The counter of a message; charon has none for the exchanges of extensions.
    pub(super) fn of(exchange: ExchangeType, message: Counted) -> Option<Self> {
        use Counted::{InRequest, InResponse, OutRequest, OutResponse};
        Some(match (exchange, message) {
            (ExchangeType::IkeSaInit, InRequest) => Self::IkeInitInReq,
            (ExchangeType::IkeSaInit, InResponse) => Self::IkeInitInResp,
            (ExchangeType::IkeSaInit, OutRequest) => Self::IkeInitOutReq,
            (ExchangeType::IkeSaInit, OutResponse) => Self::IkeInitOutResp,
            (ExchangeType::IkeAuth, InRequest) => Self::IkeAuthInReq,
            (ExchangeType::IkeAuth, InResponse) => Self::IkeAuthInResp,
            (ExchangeType::IkeAuth, OutRequest) => Self::IkeAuthOutReq,
            (ExchangeType::IkeAuth, OutResponse) => Self::IkeAuthOutResp,
            (ExchangeType::CreateChildSa, InRequest) => Self::CreateChildInReq,
            (ExchangeType::CreateChildSa, InResponse) => Self::CreateChildInResp,
            (ExchangeType::CreateChildSa, OutRequest) => Self::CreateChildOutReq,
            (ExchangeType::CreateChildSa, OutResponse) => Self::CreateChildOutResp,
            (ExchangeType::Informational, InRequest) => Self::InfoInReq,
            (ExchangeType::Informational, InResponse) => Self::InfoInResp,
            (ExchangeType::Informational, OutRequest) => Self::InfoOutReq,
            (ExchangeType::Informational, OutResponse) => Self::InfoOutResp,
            _ => return None,
        })
    }
}

/// One set of counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExchangeCounters([u64; ExchangeCounter::ALL.len()]);

impl ExchangeCounters {
    /// One of them.
    pub fn get(&self, counter: ExchangeCounter) -> u64 {
        self.0.get(counter as usize).copied().unwrap_or_default()
    }

    /// All of them by name, in charon's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        ExchangeCounter::ALL.into_iter().map(|counter| (counter.name(), self.get(counter)))
    }

    fn count(&mut self, counter: ExchangeCounter) {
        if let Some(value) = self.0.get_mut(counter as usize) {
            *value = value.saturating_add(1);
        }
    }
}

/// The counters of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchanges {
    total: ExchangeCounters,
    /// Only of connections that have been authenticated or initiated: the names are the operator's,
    /// so their number is bounded.
    connections: BTreeMap<String, ExchangeCounters>,
}

impl Exchanges {
    /// Of the whole endpoint.
    pub fn total(&self) -> &ExchangeCounters {
        &self.total
    }

    /// Of one connection, if anything has been counted for it.
    pub fn of(&self, connection: &str) -> Option<&ExchangeCounters> {
        self.connections.get(connection)
    }

    /// Resets the counters of the whole endpoint; those of connections stay.
    pub fn reset_total(&mut self) {
        self.total = ExchangeCounters::default();
    }

    /// Removes the counters of one connection.
    pub fn reset_connection(&mut self, connection: &str) {
        self.connections.remove(connection);
    }

    /// Removes the counters of all connections; those of the whole endpoint stay.
    pub fn reset_connections(&mut self) {
        self.connections.clear();
    }

    /// The counters of every connection that has any.
    pub fn connections(&self) -> impl Iterator<Item = (&str, &ExchangeCounters)> {
        self.connections.iter().map(|(name, counters)| (name.as_str(), counters))
    }

    /// Counts an event of an IKE SA of this connection, or of none that is known.
    pub fn count(&mut self, connection: Option<&str>, counter: ExchangeCounter) {
        self.total.count(counter);
        let Some(name) = connection else { return };
        match self.connections.get_mut(name) {
            Some(counters) => counters.count(counter),
            None => self.connections.entry(name.to_owned()).or_default().count(counter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_its_place() {
        for (index, counter) in ExchangeCounter::ALL.into_iter().enumerate() {
            assert_eq!(counter as usize, index, "{}", counter.name());
        }
    }
}
