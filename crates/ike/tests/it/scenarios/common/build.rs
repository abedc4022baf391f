//! Configurations for tests.

use std::net::IpAddr;
use testudo_ike::config::{
    Child, Connection, EspEncryption, EspProposal, Identity, IkeEncryption, IkeProposal, KeyExchange,
    LocalAuth, Prf, RemoteAuth, SecretKind, SharedSecret, TsSpec,
};
use testudo_ipsec::sa::{EspAlgorithm, SeparateAlgorithm};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

/// A range such as `10.1.0.0-10.1.255.255`, or a single address.
pub(crate) fn range(text: &str) -> AddrRange {
    let (start, end) = text.split_once('-').unwrap_or((text, text));
    AddrRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap()
}

/// All traffic of a range.
pub(crate) fn ts(text: &str) -> TrafficSelector {
    TrafficSelector::all(range(text))
}

pub(crate) fn fqdn(name: &str) -> Identity {
    Identity::Fqdn(name.into())
}

pub(crate) fn ike_proposal(ke: &[KeyExchange]) -> IkeProposal {
    IkeProposal {
        encryption: vec![IkeEncryption::Aes128Gcm16],
        prf: vec![Prf::HmacSha256],
        ke: ke.to_vec(),
        ..IkeProposal::default()
    }
}

pub(crate) fn esp_proposal(algorithm: EspAlgorithm) -> EspProposal {
    let encryption = match algorithm {
        EspAlgorithm::Aes128Gcm16 => Some(EspEncryption::Aes128Gcm16),
        EspAlgorithm::Aes192Gcm16 => Some(EspEncryption::Aes192Gcm16),
        EspAlgorithm::Aes256Gcm16 => Some(EspEncryption::Aes256Gcm16),
        EspAlgorithm::ChaCha20Poly1305 => Some(EspEncryption::ChaCha20Poly1305),
        EspAlgorithm::Aes128Gmac => Some(EspEncryption::Aes128Gmac),
        EspAlgorithm::Aes192Gmac => Some(EspEncryption::Aes192Gmac),
        EspAlgorithm::Aes256Gmac => Some(EspEncryption::Aes256Gmac),
        EspAlgorithm::Separate(SeparateAlgorithm { cipher, .. }) => Some(EspEncryption::Separate(cipher)),
        EspAlgorithm::Ccm(algorithm) => Some(EspEncryption::Ccm(algorithm)),
        EspAlgorithm::Ah(_) => None,
    };
    let integrity = algorithm.integrity().into_iter().collect();
    let encryption = encryption.into_iter().collect();
    EspProposal { encryption, integrity, esn: vec![true, false], ..EspProposal::default() }
}

pub(crate) fn child(name: &str, local: &str, remote: &str) -> Child {
    Child {
        name: name.into(),
        local_ts: vec![TsSpec::Fixed(ts(local))],
        remote_ts: vec![TsSpec::Fixed(ts(remote))],
        proposals: vec![esp_proposal(EspAlgorithm::Aes128Gcm16)],
        replay_window: 64,
        ..Child::default()
    }
}

/// A connection `site` with a child `net`, from `local` (an address and an identity) to `remote`.
pub(crate) fn connection(local: (&str, &str), remote: (&str, &str)) -> Connection {
    let single = |addr: &str| {
        let addr: IpAddr = addr.parse().unwrap();
        vec![AddrRange::new(addr, addr).unwrap()]
    };
    // The net behind a host: its own letter decides, so that both ends agree.
    let net = |name: &str| {
        let octet = name.bytes().next().unwrap_or_default();
        format!("10.{octet}.0.0-10.{octet}.255.255")
    };
    Connection {
        name: "site".into(),
        local_addrs: single(local.0),
        remote_addrs: single(remote.0),
        proposals: vec![ike_proposal(&[KeyExchange::X25519])],
        local: LocalAuth::psk(Some(fqdn(local.1))),
        remote: RemoteAuth::psk(Some(fqdn(remote.1))),
        children: vec![child("net", &net(local.1), &net(remote.1))],
        ..Connection::default()
    }
}

pub(crate) fn secret(name: &str, key: &[u8], owners: &[&str]) -> SharedSecret {
    let owners = owners.iter().map(|owner| fqdn(owner)).collect();
    SharedSecret { name: name.into(), kind: SecretKind::Ike, owners, secret: key.to_vec() }
}

/// A post-quantum pre-shared key.
pub(crate) fn ppk(name: &str, key: &[u8], ids: &[&str]) -> SharedSecret {
    let mut ppk = secret(name, key, ids);
    ppk.kind = SecretKind::Ppk;
    ppk
}
