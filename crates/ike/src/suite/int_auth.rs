//! IntAuth: the part of the IKE_INTERMEDIATE exchanges that AUTH covers (RFC 9242 §3.3.2).

use super::algorithm::Role;
use super::error::SuiteError;
use super::keys::IkeKeys;
use super::sk::Opened;
use crate::message::{MessageBuilder, MessageId};
use serde::{Deserialize, Serialize};

/// The chains over the messages of both sides so far. Each link is made with the keys that
/// protected the message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntAuth {
    /// IntAuth_i; empty before the first exchange.
    initiator: Vec<u8>,
    /// IntAuth_r.
    responder: Vec<u8>,
}

impl IntAuth {
    /// Adds a message of ours, before it is encrypted and fragmented.
    pub fn sent(&mut self, keys: &IkeKeys, sender: Role, message: &MessageBuilder) -> Result<(), SuiteError> {
        // The lengths count only what is authenticated.
        let draft = message.draft(0)?;
        self.link(keys, sender, &draft.aad, &draft.plaintext)
    }

    /// Adds a message of the peer. `head` is its [`crate::message::Encrypted::head`], or that of
    /// its first fragment.
    pub fn received(
        &mut self,
        keys: &IkeKeys,
        sender: Role,
        head: &[u8],
        opened: &Opened,
    ) -> Result<(), SuiteError> {
        let content = opened.content();
        let head = crate::message::adjusted(head, content.len())?;
        self.link(keys, sender, &head, content)
    }

    fn link(&mut self, keys: &IkeKeys, sender: Role, a: &[u8], p: &[u8]) -> Result<(), SuiteError> {
        let chain = match sender {
            Role::Initiator => &mut self.initiator,
            Role::Responder => &mut self.responder,
        };
        let key = keys.identity_key(sender)?;
        let next = keys.suite().prf.compute(key, &[chain.as_slice(), a, p])?;
        *chain = next.expose().to_vec();
        Ok(())
    }

    /// IntAuth for an IKE_AUTH whose first request has this Message ID: empty if no exchange came
    /// before it.
    pub fn octets(&self, auth: MessageId) -> Vec<u8> {
        if self.initiator.is_empty() {
            return Vec::new();
        }
        [self.initiator.as_slice(), &self.responder, &auth.0.to_be_bytes()].concat()
    }
}
