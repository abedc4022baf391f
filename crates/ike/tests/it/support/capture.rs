//! Whole negotiations between two strongSwan, captured by us, with the keys from charon's own log.

use std::collections::HashMap;
use testudo_ike::config::{IkeEncryption, KeyExchange, Prf};
use testudo_ike::message::{Message, Payloads};
use testudo_ike::suite::{IkeKeys, IkeSpis, IkeSuite, Nonces, Role, Secret};

/// A negotiation.
pub(crate) struct Capture {
    /// The algorithms chosen.
    pub(crate) suite: IkeSuite,
    fields: HashMap<&'static str, Vec<u8>>,
}

/// Both captures.
pub(crate) fn captures() -> [Capture; 2] {
    [
        Capture {
            suite: IkeSuite {
                encryption: IkeEncryption::Aes128Gcm16,
                integrity: None,
                prf: Prf::HmacSha256,
                ke: KeyExchange::X25519,
                additional: [None; 7],
            },
            fields: fields(include_str!("../../fixtures/strongswan_x25519.txt")),
        },
        Capture {
            suite: IkeSuite {
                encryption: IkeEncryption::Aes256Gcm16,
                integrity: None,
                prf: Prf::HmacSha384,
                ke: KeyExchange::Ecp256,
                additional: [None; 7],
            },
            fields: fields(include_str!("../../fixtures/strongswan_ecp256.txt")),
        },
    ]
}

fn fields(text: &'static str) -> HashMap<&'static str, Vec<u8>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(" = ").unwrap()).map(|(name, hex)| (name, unhex(hex))).collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "half an octet in {hex}");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

impl Capture {
    /// The octets of a line of the fixture.
    pub(crate) fn field(&self, name: &str) -> &[u8] {
        self.fields.get(name).unwrap_or_else(|| panic!("no line {name}"))
    }

    /// A message, parsed.
    pub(crate) fn message(&self, name: &str) -> Message<'_> {
        Message::parse(self.field(name)).unwrap()
    }

    /// The nonces of IKE_SA_INIT.
    pub(crate) fn nonces(&self) -> Nonces {
        Nonces {
            initiator: self.message("ike_sa_init_request").payloads.nonce().unwrap().clone(),
            responder: self.message("ike_sa_init_response").payloads.nonce().unwrap().clone(),
        }
    }

    /// The SPIs of the IKE SA.
    pub(crate) fn spis(&self) -> IkeSpis {
        let header = self.message("ike_sa_init_response").header;
        IkeSpis { initiator: header.initiator_spi, responder: header.responder_spi }
    }

    /// The keys, derived by us from charon's shared secret.
    pub(crate) fn keys(&self) -> IkeKeys {
        let shared = Secret::new(self.field("shared_secret").to_vec());
        IkeKeys::derive(self.suite, &shared, &self.nonces(), self.spis()).unwrap()
    }

    /// The content of a message with an Encrypted payload.
    pub(crate) fn open(&self, name: &str, sender: Role) -> Payloads {
        let message = self.message(name);
        let opened = self.keys().opener(sender).open(&message.encrypted.unwrap()).unwrap();
        opened.payloads().unwrap()
    }
}
