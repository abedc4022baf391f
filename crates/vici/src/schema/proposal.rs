//! Proposals in strongSwan's words: algorithms joined by `-`.

use super::algorithm::{Policy, Protocol, Token, token};
use super::refusal::{Why, because};
use testudo_base::spi::Spi;
use testudo_ike::config::{
    ADDITIONAL_KE, EspEncryption, EspProposal, IkeEncryption, IkeProposal, Integrity, KeyExchange, Prf,
};
use testudo_ike::suite::offer::ChildExchange;
use testudo_ike::suite::{offer, select};
use testudo_ipsec::sa::{Cipher, Mac};

/// The algorithms that a proposal names, each kind in order and without repetitions.
#[derive(Default)]
struct Named {
    encryption: Vec<IkeEncryption>,
    prf: Vec<Prf>,
    integrity: Vec<Integrity>,
    ke: Vec<KeyExchange>,
    additional: [Vec<Option<KeyExchange>>; ADDITIONAL_KE],
    esn: Vec<bool>,
    esp_encryption: Vec<EspEncryption>,
    esp_integrity: Vec<Mac>,
}

impl Named {
    fn parse(text: &str, protocol: Protocol, policy: Policy) -> Result<Self, Why> {
        let mut named = Self::default();
        for word in text.split('-') {
            match token(word, protocol, policy)? {
                Token::Encryption(encryption) => add(&mut named.encryption, encryption),
                Token::Prf(prf) => add(&mut named.prf, prf),
                Token::Integrity(integrity) => add(&mut named.integrity, integrity),
                Token::Ke(ke) => add(&mut named.ke, ke),
                Token::AdditionalKe(place, method) => {
                    named.additional.get_mut(place).into_iter().for_each(|list| add(list, method));
                }
                Token::Esn(esn) => add(&mut named.esn, esn),
                Token::EspEncryption(encryption) => add(&mut named.esp_encryption, encryption),
                Token::EspIntegrity(integrity) => add(&mut named.esp_integrity, integrity),
            }
        }
        if protocol != Protocol::Ah && named.encryption.is_empty() && named.esp_encryption.is_empty() {
            return Err(because("but it names no encryption; expected one such as aes128gcm16".to_owned()));
        }
        Ok(named)
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// One item of `connections.<conn>.proposals`; `default` stands for two proposals.
pub(super) fn ike(text: &str, policy: Policy) -> Result<Vec<IkeProposal>, Why> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(default_ike());
    }
    let named = Named::parse(text, Protocol::Ike, policy)?;
    if !named.esn.is_empty() {
        return Err(because(
            "but sequence numbers are not part of IKE proposals; expected no esn or noesn".to_owned(),
        ));
    }
    if named.ke.is_empty() {
        return Err(because(
            "but it names no key exchange; expected one such as x25519 or ecp256".to_owned(),
        ));
    }
    let aeads = named.encryption.iter().map(|encryption| encryption.is_aead());
    let is_aead = check_integrity(aeads, &named.integrity, "AES-CBC needs")?;
    let implied = named.integrity.iter().map(|integrity| same_hash(*integrity)).collect();
    let prf = [named.prf, implied, DEFAULT_PRF.to_vec()].into_iter().find(|prf| !prf.is_empty());
    let integrity = if is_aead { Vec::new() } else { named.integrity };
    let prf = prf.unwrap_or_default();
    let Named { encryption, ke, additional, .. } = named;
    let proposal = IkeProposal { encryption, integrity, prf, ke, additional };
    // Fails if every choice uses a method twice (RFC 9370 §2.2.1).
    let own = std::slice::from_ref(&proposal);
    select::ike(&offer::ike(own, None), own).map_err(|_| twice())?;
    Ok(vec![proposal])
}

/// True if all ciphers of a proposal are AEADs, false if none is and there is an integrity
/// algorithm. `needs` names the ciphers that need one, for the error.
fn check_integrity<T>(
    mut aeads: impl Iterator<Item = bool>,
    integrity: &[T],
    needs: &str,
) -> Result<bool, Why> {
    let is_aead = aeads.next() == Some(true);
    if aeads.any(|other| other != is_aead) {
        return Err(because(
            "but AEADs and other ciphers cannot stand in one proposal; expected two proposals".to_owned(),
        ));
    }
    if !is_aead && integrity.is_empty() {
        return Err(because(format!("but {needs} an integrity algorithm; expected one such as sha256")));
    }
    Ok(is_aead)
}

fn twice() -> Why {
    because("but no key exchange method can be used twice; expected different ones".to_owned())
}

/// The PRF with the hash of an integrity algorithm, for a proposal that names no PRF.
fn same_hash(integrity: Integrity) -> Prf {
    match integrity {
        Integrity::HmacSha1 => Prf::HmacSha1,
        Integrity::HmacSha256 => Prf::HmacSha256,
        Integrity::HmacSha384 => Prf::HmacSha384,
        Integrity::HmacSha512 => Prf::HmacSha512,
    }
}

/// One item of `connections.<conn>.children.<child>.esp_proposals`; `default` stands for two
/// proposals.
pub(super) fn esp(text: &str, policy: Policy) -> Result<Vec<EspProposal>, Why> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(default_esp());
    }
    let mut named = Named::parse(text, Protocol::Esp, policy)?;
    let aeads = named.esp_encryption.iter().map(|encryption| encryption.is_aead());
    // ESP needs integrity (RFC 8221 §4), above all with NULL encryption.
    let is_aead = check_integrity(aeads, &named.esp_integrity, "AES-CBC and NULL need")?;
    if is_aead {
        // Integrity has no meaning beside an AEAD: strongSwan drops it too.
        named.esp_integrity.clear();
    }
    let encryption = std::mem::take(&mut named.esp_encryption);
    Ok(vec![child(named, encryption)?])
}

/// The common part of ESP and AH.
fn child(named: Named, encryption: Vec<EspEncryption>) -> Result<EspProposal, Why> {
    if named.ke.is_empty() && named.additional.iter().any(|methods| !methods.is_empty()) {
        return Err(because(
            "but it has additional key exchanges without a first one; expected one such as x25519 or ecp256"
                .to_owned(),
        ));
    }
    let Named { esp_integrity: integrity, ke, additional, .. } = named;
    let esn = if named.esn.is_empty() { vec![false] } else { named.esn };
    let proposal = EspProposal { encryption, integrity, ke, additional, esn };
    let own = std::slice::from_ref(&proposal);
    let offer = offer::esp(own, Spi(u32::MAX), ChildExchange::CreateChildSa);
    // Fails if every choice uses a method twice (RFC 9370 §2.2.1).
    select::esp(&offer, own, ChildExchange::CreateChildSa).map_err(|_| twice())?;
    Ok(proposal)
}

/// One item of `connections.<conn>.children.<child>.ah_proposals`.
pub(super) fn ah(text: &str, policy: Policy) -> Result<EspProposal, Why> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(default_ah());
    }
    let named = Named::parse(text, Protocol::Ah, policy)?;
    if !named.esp_encryption.is_empty() {
        return Err(because(
            "but AH encrypts nothing; expected an integrity algorithm such as sha256".to_owned(),
        ));
    }
    if named.esp_integrity.is_empty() {
        return Err(because("but it names no integrity; expected one such as sha256".to_owned()));
    }
    child(named, Vec::new())
}

const DEFAULT_PRF: [Prf; 3] = [Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512];

/// `proposals = default`: the algorithms that RFC 8247 requires or recommends, AEADs first.
pub(super) fn default_ike() -> Vec<IkeProposal> {
    let ke = vec![
        KeyExchange::X25519,
        KeyExchange::Ecp256,
        KeyExchange::Ecp384,
        KeyExchange::Ecp521,
        KeyExchange::Modp3072,
        KeyExchange::Modp4096,
        KeyExchange::Modp2048,
    ];
    let aeads = vec![IkeEncryption::Aes128Gcm16, IkeEncryption::Aes256Gcm16, IkeEncryption::ChaCha20Poly1305];
    vec![
        IkeProposal {
            encryption: aeads,
            prf: DEFAULT_PRF.to_vec(),
            ke: ke.clone(),
            ..IkeProposal::default()
        },
        IkeProposal {
            encryption: vec![IkeEncryption::Aes128Cbc, IkeEncryption::Aes256Cbc],
            integrity: vec![Integrity::HmacSha256, Integrity::HmacSha384, Integrity::HmacSha512],
            prf: DEFAULT_PRF.to_vec(),
            ke,
            ..IkeProposal::default()
        },
    ]
}

/// `esp_proposals = default`: charon's, AEADs first, without HMAC-SHA1, which RFC 8221 §6 is
/// phasing out (MUST-), and without AES-XCBC, which it has for small devices.
pub(super) fn default_esp() -> Vec<EspProposal> {
    let cbc = [Cipher::Aes128Cbc, Cipher::Aes192Cbc, Cipher::Aes256Cbc];
    vec![
        EspProposal {
            encryption: vec![
                EspEncryption::Aes128Gcm16,
                EspEncryption::Aes192Gcm16,
                EspEncryption::Aes256Gcm16,
            ],
            esn: vec![false],
            ..EspProposal::default()
        },
        EspProposal {
            encryption: cbc.map(EspEncryption::Separate).to_vec(),
            integrity: vec![Mac::HmacSha256_128, Mac::HmacSha384_192, Mac::HmacSha512_256],
            esn: vec![false],
            ..EspProposal::default()
        },
    ]
}

/// `ah_proposals = default`.
fn default_ah() -> EspProposal {
    let integrity = vec![Mac::HmacSha256_128, Mac::HmacSha384_192, Mac::HmacSha512_256];
    EspProposal { integrity, esn: vec![false], ..EspProposal::default() }
}
