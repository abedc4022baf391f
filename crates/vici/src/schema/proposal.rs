//! Proposals in strongSwan's words: algorithms joined by `-`.

use super::refusal::{Why, because};
use testudo_ike::config::{EspProposal, IkeEncryption, IkeProposal, KeyExchange, Prf};
use testudo_ipsec::sa::EspAlgorithm;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeySize {
    Aes128,
    Aes256,
}

/// An algorithm by its name in a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Gcm(KeySize),
    Prf(Prf),
    /// HMAC as in `sha256`: with an AEAD it names the PRF of IKE, if nothing else does (strongSwan).
    Integrity(Prf),
    Ke(KeyExchange),
    Esn(bool),
}

const TOKENS: [(&str, Token); 17] = [
    ("aes128gcm16", Token::Gcm(KeySize::Aes128)),
    ("aes128gcm128", Token::Gcm(KeySize::Aes128)),
    ("aes128gcm", Token::Gcm(KeySize::Aes128)),
    ("aes256gcm16", Token::Gcm(KeySize::Aes256)),
    ("aes256gcm128", Token::Gcm(KeySize::Aes256)),
    ("aes256gcm", Token::Gcm(KeySize::Aes256)),
    ("prfsha256", Token::Prf(Prf::HmacSha256)),
    ("prfsha384", Token::Prf(Prf::HmacSha384)),
    ("sha256", Token::Integrity(Prf::HmacSha256)),
    ("sha2_256", Token::Integrity(Prf::HmacSha256)),
    ("sha384", Token::Integrity(Prf::HmacSha384)),
    ("sha2_384", Token::Integrity(Prf::HmacSha384)),
    ("x25519", Token::Ke(KeyExchange::X25519)),
    ("curve25519", Token::Ke(KeyExchange::X25519)),
    ("ecp256", Token::Ke(KeyExchange::Ecp256)),
    ("esn", Token::Esn(true)),
    ("noesn", Token::Esn(false)),
];

const SUPPORTED: &str = "aes128gcm16, aes256gcm16, prfsha256, prfsha384, x25519, ecp256, esn and noesn";

/// What a proposal names, each kind in order and without repetitions.
#[derive(Default)]
struct Named {
    gcm: Vec<KeySize>,
    prf: Vec<Prf>,
    integrity: Vec<Prf>,
    ke: Vec<KeyExchange>,
    esn: Vec<bool>,
}

impl Named {
    fn parse(text: &str) -> Result<Self, Why> {
        let mut named = Self::default();
        for word in text.split('-') {
            let token = TOKENS.iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
            let Some((_, token)) = token else {
                return Err(because(format!(
                    "but algorithm {word:?} is not supported; expected {SUPPORTED}"
                )));
            };
            match *token {
                Token::Gcm(size) => add(&mut named.gcm, size),
                Token::Prf(prf) => add(&mut named.prf, prf),
                Token::Integrity(prf) => add(&mut named.integrity, prf),
                Token::Ke(ke) => add(&mut named.ke, ke),
                Token::Esn(esn) => add(&mut named.esn, esn),
            }
        }
        if named.gcm.is_empty() {
            return Err(because(
                "but it names no encryption; expected aes128gcm16 or aes256gcm16".to_owned(),
            ));
        }
        Ok(named)
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// One item of `connections.<conn>.proposals`.
pub(super) fn ike(text: &str) -> Result<IkeProposal, Why> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(default_ike());
    }
    let named = Named::parse(text)?;
    if !named.esn.is_empty() {
        return Err(because(
            "but sequence numbers are not part of IKE proposals; expected no esn or noesn".to_owned(),
        ));
    }
    if named.ke.is_empty() {
        return Err(because("but it names no key exchange; expected x25519 or ecp256".to_owned()));
    }
    let prf = [named.prf, named.integrity, default_ike().prf].into_iter().find(|prf| !prf.is_empty());
    let encryption = named.gcm.into_iter().map(ike_gcm).collect();
    Ok(IkeProposal { encryption, prf: prf.unwrap_or_default(), ke: named.ke })
}

/// One item of `connections.<conn>.children.<child>.esp_proposals`.
pub(super) fn esp(text: &str) -> Result<EspProposal, Why> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(default_esp());
    }
    // PRF and integrity mean nothing beside an AEAD: strongSwan drops them too.
    let named = Named::parse(text)?;
    let esn = if named.esn.is_empty() { vec![false] } else { named.esn };
    Ok(EspProposal { encryption: named.gcm.into_iter().map(esp_gcm).collect(), ke: named.ke, esn })
}

/// `proposals = default`.
pub(super) fn default_ike() -> IkeProposal {
    IkeProposal {
        encryption: vec![IkeEncryption::Aes128Gcm16, IkeEncryption::Aes256Gcm16],
        prf: vec![Prf::HmacSha256, Prf::HmacSha384],
        ke: vec![KeyExchange::X25519, KeyExchange::Ecp256],
    }
}

/// `esp_proposals = default`.
pub(super) fn default_esp() -> EspProposal {
    EspProposal {
        encryption: vec![EspAlgorithm::Aes128Gcm16, EspAlgorithm::Aes256Gcm16],
        ke: Vec::new(),
        esn: vec![false],
    }
}

fn ike_gcm(size: KeySize) -> IkeEncryption {
    match size {
        KeySize::Aes128 => IkeEncryption::Aes128Gcm16,
        KeySize::Aes256 => IkeEncryption::Aes256Gcm16,
    }
}

fn esp_gcm(size: KeySize) -> EspAlgorithm {
    match size {
        KeySize::Aes128 => EspAlgorithm::Aes128Gcm16,
        KeySize::Aes256 => EspAlgorithm::Aes256Gcm16,
    }
}
