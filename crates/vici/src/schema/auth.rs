//! `local` and `remote`: rounds of authentication, each with a pre-shared key or a signature.

use super::fields::Fields;
use super::keys::AUTH;
use super::refusal::{Refusal, Why, because, expected};
use super::{credential, identity, value};
use testudo_ike::cert::{Hash, Hashes, Schemes, SignatureScheme};
use testudo_ike::config::{AuthMethod, Eku, LocalAuth, MAX_ROUNDS, RemoteAuth, Revocation};

/// Decodes all `local<suffix>`: the first round and the later ones. `peers`: whether the connection
/// has peers at all.
pub(super) fn locals(conn: &mut Fields<'_>, peers: bool) -> Result<(LocalAuth, Vec<LocalAuth>), Refusal> {
    let mut rounds = rounds(conn, "local", peers)?.into_iter();
    let Some(first) = rounds.next() else { return Ok((LocalAuth::psk(None), Vec::new())) };
    Ok((local(first)?, rounds.map(local).collect::<Result<_, _>>()?))
}

/// Decodes all `remote<suffix>` in the same way.
pub(super) fn remotes(conn: &mut Fields<'_>, peers: bool) -> Result<(RemoteAuth, Vec<RemoteAuth>), Refusal> {
    let mut rounds = rounds(conn, "remote", peers)?.into_iter();
    let Some(first) = rounds.next() else { return Ok((RemoteAuth::psk(None), Vec::new())) };
    Ok((remote(first)?, rounds.map(remote).collect::<Result<_, _>>()?))
}

fn local(mut section: Fields<'_>) -> Result<LocalAuth, Refusal> {
    // Concerns the peer's certificates. In `local` it has no effect, as in strongSwan.
    section.parsed("revocation", revocation)?;
    if !section.blobs("cacerts", credential::certificate)?.is_empty() {
        let (path, found) = (section.path("cacerts"), "a certificate".to_owned());
        let what = "a CA for our own certificate: it belongs in remote, or in x509ca/";
        return Err(Refusal::Unsupported { path, found, what, expected: "" });
    }
    if section.parsed("eku", eku)?.is_some() {
        let (path, found) = (section.path("eku"), "a purpose".to_owned());
        let what = "a purpose of our own certificate: it belongs in remote";
        return Err(Refusal::Unsupported { path, found, what, expected: "" });
    }
    if let Some(found) = section.text("ca_id")?.filter(|text| !text.is_empty()) {
        let found = super::refusal::quote(found.as_bytes());
        let what = "a CA for our own certificate: it belongs in remote";
        return Err(Refusal::Unsupported { path: section.path("ca_id"), found, what, expected: "" });
    }
    let local = LocalAuth {
        id: section.parsed("id", identity::parse)?.flatten(),
        method: auth(&mut section)?,
        certs: section.blobs("certs", credential::certificate)?,
        pubkeys: section.blobs("pubkeys", credential::public_key)?,
    };
    section.finish_with(AUTH)?;
    Ok(local)
}

fn remote(mut section: Fields<'_>) -> Result<RemoteAuth, Refusal> {
    let remote = RemoteAuth {
        id: section.parsed("id", identity::pattern)?.flatten(),
        method: auth(&mut section)?,
        certs: section.blobs("certs", credential::certificate)?,
        pubkeys: section.blobs("pubkeys", credential::public_key)?,
        cacerts: section.blobs("cacerts", credential::ca)?,
        ca_id: section.parsed("ca_id", identity::parse)?.flatten(),
        revocation: section.parsed("revocation", revocation)?.unwrap_or_default(),
        eku: section.parsed("eku", eku)?.unwrap_or_default(),
    };
    needs_no_ca(&section, &remote)?;
    section.finish_with(AUTH)?;
    Ok(remote)
}

/// Refuses CAs beside a public key, which leads to no CA: charon would never accept the key.
fn needs_no_ca(section: &Fields<'_>, remote: &RemoteAuth) -> Result<(), Refusal> {
    let key = match remote {
        _ if remote.pubkeys.is_empty() => return Ok(()),
        RemoteAuth { cacerts, .. } if !cacerts.is_empty() => "cacerts",
        RemoteAuth { ca_id: Some(_), .. } => "ca_id",
        _ => return Ok(()),
    };
    let what = "a CA for a public key without a certificate (pubkeys)";
    Err(Refusal::Unsupported { path: section.path(key), found: "a CA".to_owned(), what, expected: "" })
}

/// The sections whose names begin with `side`, sorted by `round`, then in file order, as in charon.
/// Empty only if the connection has no peers.
fn rounds<'a>(conn: &mut Fields<'a>, side: &'static str, peers: bool) -> Result<Vec<Fields<'a>>, Refusal> {
    let sections = conn.sections(side)?;
    if let Some((name, _)) = sections.get(MAX_ROUNDS) {
        let why = format!("expected at most {MAX_ROUNDS} rounds of authentication");
        return Err(Refusal::Bad { path: conn.path(name), found: "a further section".to_owned(), why });
    }
    if sections.is_empty() && peers {
        return Err(Refusal::Missing { path: conn.path(side), expected: "a section" });
    }
    let mut rounds = Vec::new();
    for (_, section) in sections {
        let mut section = section.known(AUTH)?;
        rounds.push((section.parsed("round", value::number32)?.unwrap_or_default(), section));
    }
    rounds.sort_by_key(|(round, _)| *round);
    Ok(rounds.into_iter().map(|(_, section)| section).collect())
}

fn auth(section: &mut Fields<'_>) -> Result<AuthMethod, Refusal> {
    Ok(section.parsed("auth", method)?.unwrap_or(AuthMethod::PUBKEY))
}

fn revocation(text: &str) -> Result<Revocation, Why> {
    match text.to_ascii_lowercase().as_str() {
        "strict" => Ok(Revocation::Strict),
        "ifuri" => Ok(Revocation::IfUri),
        "relaxed" => Ok(Revocation::Relaxed),
        _ => Err(expected("strict, ifuri or relaxed")),
    }
}

fn eku(text: &str) -> Result<Eku, Why> {
    match text.to_ascii_lowercase().as_str() {
        "any" => Ok(Eku::Any),
        "ike" => Ok(Eku::Ike),
        _ => Err(expected("any or ike")),
    }
}

/// `psk`, or `pubkey` and narrower methods: `rsa`, `rsa/pss`, `ecdsa`, `ed25519`, with hash
/// algorithms after hyphens. The hash algorithms apply to the certificates too, unless the text
/// begins with `ike:`.
fn method(text: &str) -> Result<AuthMethod, Why> {
    let text = text.to_ascii_lowercase();
    if text == "psk" {
        return Ok(AuthMethod::Psk);
    }
    let (words, ike_only) = match text.strip_prefix("ike:") {
        Some(words) => (words, true),
        None => (text.as_str(), false),
    };
    let mut words = words.split('-');
    let kind = words.next().unwrap_or_default();
    if kind.starts_with("eap") || kind.starts_with("xauth") {
        return Err(because(
            "but EAP and XAuth are not supported; expected psk, pubkey, rsa, rsa/pss, ecdsa or ed25519"
                .into(),
        ));
    }
    let of_kind: Schemes = SignatureScheme::ALL.into_iter().filter(|scheme| is_of(kind, *scheme)).collect();
    if of_kind.is_empty() {
        let why = "but this method is not supported; expected psk, pubkey, rsa, rsa/pss, ecdsa or ed25519";
        return Err(because(why.to_owned()));
    }
    let mut hashes = Hashes::default();
    for word in words {
        hashes = hashes.with(hash(word)?);
    }
    if hashes.is_empty() {
        return Ok(AuthMethod::Pubkey { schemes: of_kind, chain: Hashes::ALL });
    }
    let schemes: Schemes = of_kind.iter().filter(|scheme| hashes.contains(scheme.hash())).collect();
    if schemes.is_empty() {
        return Err(because("but there is no signature with this key and this hash".to_owned()));
    }
    Ok(AuthMethod::Pubkey { schemes, chain: if ike_only { Hashes::ALL } else { hashes } })
}

fn is_of(kind: &str, scheme: SignatureScheme) -> bool {
    use SignatureScheme::{
        EcdsaSha256, EcdsaSha384, EcdsaSha512, Ed25519, RsaPssSha256, RsaPssSha384, RsaPssSha512,
    };
    let pss = [RsaPssSha256, RsaPssSha384, RsaPssSha512].contains(&scheme);
    let ecdsa = [EcdsaSha256, EcdsaSha384, EcdsaSha512].contains(&scheme);
    match kind {
        "pubkey" => true,
        "rsa" => !ecdsa && scheme != Ed25519,
        "rsa/pss" => pss,
        "ecdsa" => ecdsa,
        "ed25519" => scheme == Ed25519,
        _ => false,
    }
}

fn hash(word: &str) -> Result<Hash, Why> {
    match word {
        "sha256" | "sha2_256" => Ok(Hash::Sha256),
        "sha384" | "sha2_384" => Ok(Hash::Sha384),
        "sha512" | "sha2_512" => Ok(Hash::Sha512),
        "identity" => Ok(Hash::Identity),
        other => {
            let why =
                format!("but {other} is not supported here; expected sha256, sha384, sha512 or identity");
            Err(because(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SignatureScheme::*;

    fn pubkey(text: &str) -> (Vec<SignatureScheme>, Hashes) {
        match method(text).unwrap() {
            AuthMethod::Pubkey { schemes, chain } => (schemes.iter().collect(), chain),
            AuthMethod::Psk => panic!("{text} is no signature"),
        }
    }

    #[test]
    fn words_narrow_the_signatures() {
        assert_eq!(method("psk"), Ok(AuthMethod::Psk));
        assert_eq!(method("pubkey"), Ok(AuthMethod::PUBKEY));
        assert_eq!(pubkey("rsa/pss").0, [RsaPssSha256, RsaPssSha384, RsaPssSha512]);
        assert_eq!(pubkey("ed25519"), (vec![Ed25519], Hashes::ALL));
        let sha384 = Hashes::default().with(Hash::Sha384);
        assert_eq!(pubkey("ecdsa-sha384"), (vec![EcdsaSha384], sha384));
        assert_eq!(pubkey("ike:ecdsa-sha384"), (vec![EcdsaSha384], Hashes::ALL));
        assert_eq!(pubkey("pubkey-sha512").0, [RsaPkcs1Sha512, RsaPssSha512, EcdsaSha512]);
        assert_eq!(
            pubkey("RSA-SHA256-SHA512").0,
            [RsaPkcs1Sha256, RsaPkcs1Sha512, RsaPssSha256, RsaPssSha512]
        );
    }

    #[test]
    fn unsupported_methods_are_refused_by_name() {
        for (text, part) in [
            ("eap", "EAP and XAuth are not"),
            ("eap-mschapv2", "EAP and XAuth are not"),
            ("bliss", "this method"),
            ("ed448", "this method"),
            ("", "this method"),
            ("rsa-2048", "2048 is not"),
            ("rsa-sha1", "sha1 is not"),
            ("ed25519-sha256", "no signature with this key"),
        ] {
            let Why(why) = method(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
