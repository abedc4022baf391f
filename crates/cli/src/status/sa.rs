//! Tunnels, from `list-sa` events.

use crate::answer::{number, optional, text};
use serde::Serialize;
use testudo_vici::Error;
use testudo_vici::message::Message;

/// An IKE SA.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct IkeSa {
    pub(super) connection: String,
    pub(super) id: u64,
    pub(super) state: String,
    pub(super) local: Endpoint,
    pub(super) remote: Endpoint,
    pub(super) initiator: bool,
    /// Algorithms joined by `/`.
    pub(super) suite: String,
    /// Seconds since it was established.
    pub(super) established: Option<u64>,
    pub(super) children: Vec<ChildSa>,
}

/// One end of an IKE SA.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Endpoint {
    pub(super) address: String,
    pub(super) port: u64,
    pub(super) identity: String,
}

/// A Child SA.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct ChildSa {
    pub(super) name: String,
    pub(super) id: u64,
    pub(super) state: String,
    pub(super) cipher: String,
    pub(super) esn: bool,
    pub(super) udp: bool,
    /// Seconds since it was installed.
    pub(super) installed: u64,
    pub(super) inbound: Direction,
    pub(super) outbound: Direction,
    pub(super) local_ts: Vec<String>,
    pub(super) remote_ts: Vec<String>,
}

/// One direction of a Child SA.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Direction {
    pub(super) spi: String,
    pub(super) bytes: u64,
    pub(super) packets: u64,
    /// Seconds since the last packet.
    pub(super) idle: Option<u64>,
}

/// Reads all events. An IKE SA with very many children comes in several.
pub(super) fn read_all(events: &[Message]) -> Result<Vec<IkeSa>, Error> {
    let mut sas: Vec<IkeSa> = Vec::new();
    for (connection, content) in events.iter().flat_map(Message::sections) {
        let sa = IkeSa::read(connection, content)?;
        match sas.last_mut() {
            Some(last) if last.id == sa.id => last.children.extend(sa.children),
            _ => sas.push(sa),
        }
    }
    Ok(sas)
}

impl IkeSa {
    fn read(connection: &str, message: &Message) -> Result<Self, Error> {
        let children = message.section("child-sas").into_iter().flat_map(Message::sections);
        Ok(Self {
            connection: connection.to_owned(),
            id: number(message, "uniqueid")?,
            state: text(message, "state")?,
            local: Endpoint::read(message, "local")?,
            remote: Endpoint::read(message, "remote")?,
            initiator: message.text("initiator") == Some("yes"),
            suite: suite(message),
            established: optional(message, "established")?,
            children: children.map(|(_, child)| ChildSa::read(child)).collect::<Result<_, _>>()?,
        })
    }
}

impl Endpoint {
    fn read(message: &Message, side: &str) -> Result<Self, Error> {
        Ok(Self {
            address: text(message, &format!("{side}-host"))?,
            port: number(message, &format!("{side}-port"))?,
            identity: text(message, &format!("{side}-id"))?,
        })
    }
}

impl ChildSa {
    fn read(message: &Message) -> Result<Self, Error> {
        Ok(Self {
            name: text(message, "name")?,
            id: number(message, "uniqueid")?,
            state: text(message, "state")?,
            cipher: suite(message),
            esn: message.text("esn") == Some("1"),
            udp: message.text("encap") == Some("yes"),
            installed: number(message, "install-time")?,
            inbound: Direction::read(message, "in")?,
            outbound: Direction::read(message, "out")?,
            local_ts: message.texts("local-ts").map(str::to_owned).collect(),
            remote_ts: message.texts("remote-ts").map(str::to_owned).collect(),
        })
    }
}

impl Direction {
    fn read(message: &Message, direction: &str) -> Result<Self, Error> {
        Ok(Self {
            spi: text(message, &format!("spi-{direction}"))?,
            bytes: number(message, &format!("bytes-{direction}"))?,
            packets: number(message, &format!("packets-{direction}"))?,
            idle: optional(message, &format!("use-{direction}"))?,
        })
    }
}

/// `AES_GCM_16-128`.
fn cipher(message: &Message) -> Option<String> {
    let name = message.text("encr-alg")?;
    Some(match message.text("encr-keysize") {
        Some(bits) => format!("{name}-{bits}"),
        None => name.to_owned(),
    })
}

/// `AES_GCM_16-128/PRF_HMAC_SHA2_256/CURVE_25519/KE1_ML_KEM_768`, as far as negotiated. An AEAD has
/// no integrity algorithm. A Child SA has no PRF, and key exchanges only if CREATE_CHILD_SA had
/// some.
fn suite(message: &Message) -> String {
    let rest = ["integ-alg", "prf-alg", "dh-group"]
        .into_iter()
        .filter_map(|key| message.text(key).map(str::to_owned));
    let additional = (1..=7).filter_map(|number| {
        message.text(&format!("ake{number}")).map(|method| format!("KE{number}_{method}"))
    });
    cipher(message).into_iter().chain(rest).chain(additional).collect::<Vec<_>>().join("/")
}
