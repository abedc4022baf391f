//! Authentication with certificates: what brings a tunnel up, and what does not, with a reason in
//! the log alone.

mod trust;

use crate::pki::{NOVEMBER_2026, cert, crl, key};
use crate::scenarios::common::build::fqdn;
use crate::scenarios::common::{Weather, World};
use testudo_ike::cert::{Hash, Hashes, Schemes, SignatureScheme};
use testudo_ike::config::{
    AuthMethod, Connection, Eku, Identity, IkeLifetime, LocalAuth, Revocation, SendCert,
};
use testudo_ike::endpoint::InitiateError;
use testudo_ike::message::{IdPayload, Message, NotifyType, Payload};
use testudo_ike::output::UnixTime;

fn dn(text: &str) -> Identity {
    Identity::Dn(text.parse().unwrap())
}

/// Both sides by certificate, of the root and with these files; each is known by the subject of its
/// certificate.
fn pair(files: [&str; 2], edit: impl Fn(usize, &mut Connection)) -> World {
    let mut world = World::pair_with(1, Weather::FAIR, |index, connection| {
        connection.local = LocalAuth::by_certificate(None, vec![cert(files[index])]);
        connection.remote.method = AuthMethod::PUBKEY;
        connection.remote.id = None;
        edit(index, connection);
    });
    for (index, file) in files.into_iter().enumerate() {
        let now = world.now;
        let endpoint = &mut world.hosts[index].endpoint;
        endpoint.set_unix_time(now, NOVEMBER_2026);
        endpoint.credentials_mut().load_certificate(cert("root"), true).unwrap();
        let own = file.split("-by-").next().unwrap();
        let own = if own == file { file.trim_end_matches("-self") } else { own };
        let own = if own == "sun" { "sun-P-256" } else { own };
        endpoint.credentials_mut().load_key(key(own));
    }
    world
}

pub(crate) fn comes_up(world: &mut World) {
    world.initiate(0);
    world.run_secs(2);
    world.assert_tunnel();
}

/// Nothing comes up. The responder's log has `why`, and the initiator learns no more than that it
/// failed.
pub(crate) fn responder_refuses(world: &mut World, why: &str) {
    world.initiate(0);
    world.run_secs(5);
    let reason = world.hosts[0].results()[0].clone().unwrap_err().to_string();
    assert_eq!(
        reason,
        "the peer answered AUTHENTICATION_FAILED (does the peer trust our CA, and does it know our identity?)"
    );
    assert!(world.hosts[1].logged(why), "{why}: {:#?}", world.hosts[1].log());
    world.run_secs(60);
    world.assert_nothing_left();
}

/// The initiator gives the tunnel up, and its own log says why.
pub(crate) fn initiator_refuses(world: &mut World, why: &str) {
    world.initiate(0);
    world.run_secs(5);
    let reason = world.hosts[0].results()[0].clone().unwrap_err().to_string();
    assert!(reason.contains(why), "{why}: {reason}");
    assert!(world.hosts[1].sas().is_empty(), "the responder was told");
    world.run_secs(60);
    world.assert_nothing_left();
}

#[test]
fn every_kind_of_key() {
    for (kind, scheme) in [
        ("rsa", SignatureScheme::RsaPkcs1Sha256),
        ("P-256", SignatureScheme::EcdsaSha256),
        ("P-384", SignatureScheme::EcdsaSha384),
        ("P-521", SignatureScheme::EcdsaSha512),
        ("ed25519", SignatureScheme::Ed25519),
    ] {
        let mut world = pair([&format!("moon-{kind}"), &format!("sun-{kind}")], |_, _| {});
        comes_up(&mut world);
        let line = format!("authentication of 'C=CH, O=Testudo, CN=moon' with {scheme} successful");
        assert!(world.hosts[1].logged(&line), "{:#?}", world.hosts[1].log());
        let sun = world.hosts[0].sas()[0].remote_id.clone().unwrap();
        assert!(sun.matches(&dn("C=CH, O=Testudo, CN=sun")), "{sun}");
    }
}

#[test]
fn pss_where_it_is_asked_for() {
    let pss: Schemes = [SignatureScheme::RsaPssSha384].into_iter().collect();
    let method = AuthMethod::Pubkey { schemes: pss, chain: Hashes::ALL };
    let mut world = pair(["moon-rsa", "sun-rsa"], |_, connection| {
        (connection.local.method, connection.remote.method) = (method, method);
    });
    comes_up(&mut world);
    assert!(world.hosts[0].logged("with RSA_EMSA_PSS_SHA2_384_SALT_48 successful"));
}

#[test]
fn a_shared_key_one_way_and_a_certificate_the_other() {
    for by_key in [0, 1] {
        let mut world = pair(["moon-P-256", "sun-ed25519"], |index, connection| {
            if index == by_key {
                connection.local = LocalAuth::psk(Some(fqdn(["moon", "sun"][index])));
            } else {
                connection.remote.method = AuthMethod::Psk;
            }
        });
        for host in &mut world.hosts {
            host.load_secret(crate::scenarios::common::secret(
                "psk",
                b"a shared key",
                &[["moon", "sun"][by_key]],
            ));
        }
        comes_up(&mut world);
        assert!(world.hosts[1 - by_key].logged("with pre-shared key successful"));
    }
}

#[test]
fn identities_of_each_kind_and_wildcards() {
    let names = [
        (fqdn("sun.example.org"), fqdn("*.example.org")),
        (Identity::Email("sun@example.org".into()), Identity::Email("*@example.org".into())),
        (Identity::Addr("192.0.2.2".parse().unwrap()), Identity::Addr("192.0.2.2".parse().unwrap())),
        (dn("C=CH, O=Testudo, CN=sun"), dn("C=CH, O=Testudo, CN=*")),
    ];
    for (name, pattern) in names {
        for expected in [Some(name.clone()), Some(pattern), None] {
            let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| match index {
                0 => connection.remote.id = expected.clone(),
                _ => connection.local.id = Some(name.clone()),
            });
            comes_up(&mut world);
            assert!(world.hosts[0].sas()[0].remote_id.as_ref().unwrap().matches(&name));
        }
    }
}

#[test]
fn an_identity_that_the_certificate_does_not_confirm() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| match index {
        0 => connection.local.id = Some(fqdn("mars.example.org")),
        _ => connection.remote.id = Some(fqdn("mars.example.org")),
    });
    responder_refuses(
        &mut world,
        "'C=CH, O=Testudo, CN=moon' does not confirm that its owner is mars.example.org",
    );
}

/// Nor is a name the certificate's because both are distinguished names.
#[test]
fn another_name_than_that_of_our_certificate() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        let side = if index == 0 { &mut connection.local.id } else { &mut connection.remote.id };
        *side = Some(dn("C=CH, O=Elsewhere, CN=moon"));
    });
    let why = "does not confirm that its owner is C=CH, O=Elsewhere, CN=moon";
    responder_refuses(&mut world, why);
}

/// Some peers compare names octet by octet: ours is sent as the certificate has it.
#[test]
fn our_name_is_sent_in_the_octets_of_our_certificate() {
    let name = dn("C=CH, O=Testudo, CN=moon");
    let payload = |id: &Identity| IdPayload::from(id);
    let subject = Identity::Dn(cert("moon-P-256").subject().clone());
    assert!(name == subject && payload(&name) != payload(&subject));
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        if index == 0 {
            connection.local.id = Some(name.clone());
        }
    });
    comes_up(&mut world);
    assert_eq!(payload(world.hosts[1].sas()[0].remote_id.as_ref().unwrap()), payload(&subject));
}

#[test]
fn an_identity_that_nobody_configured() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        if index == 1 {
            connection.remote.id = Some(dn("C=CH, O=Elsewhere, CN=*"));
        }
    });
    responder_refuses(&mut world, "no connection is configured for %any...C=CH, O=Testudo, CN=moon");
}

#[test]
fn our_certificate_is_found_by_our_identity() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        connection.local.certs.clear();
        connection.local.id = Some(fqdn(["moon.example.org", "sun.example.org"][index]));
    });
    for (host, name) in world.hosts.iter_mut().zip(["moon-P-256", "sun-P-256"]) {
        host.endpoint.credentials_mut().load_certificate(cert(name), false).unwrap();
    }
    comes_up(&mut world);
}

#[test]
fn chains_are_sent_and_followed() {
    let mut world = pair(["moon-rsa", "sun-by-inter"], |_, _| {});
    world.hosts[1].endpoint.credentials_mut().load_certificate(cert("inter"), true).unwrap();
    comes_up(&mut world);
    // Without the intermediate there is no way from one to the other.
    let mut world = pair(["moon-rsa", "sun-by-inter"], |_, _| {});
    initiator_refuses(&mut world, "no issuer certificate is loaded for 'C=CH, O=Testudo, CN=sun'");
}

/// Behind our certificate we send seven CAs. A peer that trusts none of them, nor the one above,
/// cannot follow the chain.
#[test]
fn seven_cas_are_sent_at_most() {
    let pair_that_trusts = |ca: &str| {
        let mut world = pair(["moon-rsa", "sun-by-link-8"], |_, _| {});
        for link in 1..=8 {
            let credentials = world.hosts[1].endpoint.credentials_mut();
            credentials.load_certificate(cert(&format!("link-{link}")), true).unwrap();
        }
        world.hosts[0].endpoint.credentials_mut().load_certificate(cert(ca), true).unwrap();
        world
    };
    comes_up(&mut pair_that_trusts("link-1"));
    initiator_refuses(
        &mut pair_that_trusts("link-0"),
        "no issuer certificate is loaded for 'C=CH, O=Testudo, CN=link-2', issued by 'C=CH, O=Testudo, CN=link-1'",
    );
}

#[test]
fn a_certificate_for_another_purpose() {
    for (file, eku, is_refused) in [
        ("sun-code", Eku::Any, false),
        ("sun-code", Eku::Ike, true),
        ("sun-code-critical", Eku::Any, true),
        ("sun-ike-critical", Eku::Ike, false),
    ] {
        let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| match index {
            0 => connection.remote.eku = eku,
            _ => connection.local.certs = vec![cert(file)],
        });
        world.hosts[0].endpoint.credentials_mut().load_certificate(cert("purpose"), true).unwrap();
        if is_refused {
            initiator_refuses(
                &mut world,
                "extended key usage of 'C=CH, O=Testudo, CN=sun' is 1.3.6.1.5.5.7.3.3",
            );
        } else {
            comes_up(&mut world);
        }
    }
}

#[test]
fn certificates_that_are_not_acceptable() {
    for (file, intermediates, why) in [
        (
            "sun-by-other",
            &["other"][..],
            "no issuer certificate is loaded for 'C=CH, O=Testudo, CN=sun', issued by 'C=CH, O=Testudo, CN=Other Root'",
        ),
        ("sun-by-plain", &["plain"], "no issuer certificate is loaded"),
        (
            "sun-by-deep",
            &["deep", "inter"],
            "path length of CA 'C=CH, O=Testudo, CN=Intermediate' is exceeded",
        ),
        ("sun-by-narrow", &["narrow"], "name constraints, which is not supported"),
        ("sun-by-useless", &["useless"], "does not allow it to sign certificates"),
    ] {
        let mut world = pair(["moon-P-256", file], |index, connection| {
            if index == 0 {
                // The other side trusts what we do not.
                connection.remote.cacerts = vec![cert("root")];
            }
        });
        for name in intermediates {
            let _ = world.hosts[1].endpoint.credentials_mut().load_certificate(cert(name), false);
        }
        initiator_refuses(&mut world, why);
    }
}

#[test]
fn the_time_of_day_counts() {
    for (time, why) in
        [(UnixTime(1_500_000_000), "not valid before"), (UnixTime(5_000_000_000), "expired at")]
    {
        let mut world = pair(["moon-P-256", "sun-P-256"], |_, _| {});
        let now = world.now;
        world.hosts[1].endpoint.set_unix_time(now, time);
        responder_refuses(&mut world, why);
    }
}

#[test]
fn the_clock_goes_on_between_two_looks_at_it() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |_, _| {});
    let now = world.now;
    // Two seconds before the certificates end.
    world.hosts[1].endpoint.set_unix_time(now, UnixTime(4_102_444_798));
    world.run_secs(10);
    responder_refuses(&mut world, "expired at 2100-01-01T00:00:00Z, now it is 2100-01-01T00:00:08Z");
}

#[test]
fn revoked_certificates() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |_, _| {});
    world.hosts[0].endpoint.credentials_mut().load_crl(crl("revoked.crl"));
    initiator_refuses(&mut world, "certificate 'C=CH, O=Testudo, CN=sun' was revoked at");
}

#[test]
fn strict_revocation_needs_a_list_that_counts() {
    for (list, why) in [
        (None, Some("no CRL of 'C=CH, O=Testudo, CN=Root' is loaded")),
        (Some("old.crl"), Some("the CRL of 'C=CH, O=Testudo, CN=Root' was current until")),
        (Some("empty.crl"), None),
    ] {
        let mut world = pair(["moon-P-256", "sun-P-256"], |_, connection| {
            connection.remote.revocation = Revocation::Strict;
        });
        for host in &mut world.hosts {
            if let Some(list) = list {
                host.endpoint.credentials_mut().load_crl(crl(list));
            }
        }
        match why {
            Some(why) => responder_refuses(&mut world, why),
            None => comes_up(&mut world),
        }
    }
}

#[test]
fn without_its_private_key_a_certificate_proves_nothing() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |_, _| {});
    let id = key("moon-P-256").key_id();
    world.hosts[0].endpoint.credentials_mut().unload_key(&id);
    let now = world.now;
    let error = world.hosts[0].endpoint.initiate(now, Some("site"), "net").unwrap_err();
    assert_eq!(error, InitiateError::NoPrivateKey("site".into()));
    // A responder finds that out only when asked.
    let mut world = pair(["moon-P-256", "sun-P-256"], |_, _| {});
    let id = key("sun-P-256").key_id();
    world.hosts[1].endpoint.credentials_mut().unload_key(&id);
    responder_refuses(
        &mut world,
        "no certificate with its private key is loaded for 'C=CH, O=Testudo, CN=sun'",
    );
}

#[test]
fn a_signature_that_is_not_allowed() {
    let ecdsa: Schemes = [SignatureScheme::EcdsaSha256].into_iter().collect();
    let mut world = pair(["moon-rsa", "sun-P-256"], |index, connection| {
        if index == 1 {
            connection.remote.method = AuthMethod::Pubkey { schemes: ecdsa, chain: Hashes::ALL };
        }
    });
    responder_refuses(&mut world, "signs by RSA_EMSA_PKCS1_SHA2_256, which is not allowed here");
    let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
        if index == 1 {
            let chain = Hashes::default().with(Hash::Sha512);
            connection.remote.method = AuthMethod::Pubkey { schemes: Schemes::ALL, chain };
        }
    });
    responder_refuses(&mut world, "is signed by ECDSA_WITH_SHA256_DER, which is not allowed here");
}

#[test]
fn certificates_are_sent_as_the_connection_says() {
    // Without requests no certificates are sent, and both know the other's certificate.
    for (policy, known, asks) in [
        (SendCert::IfAsked, true, false),
        (SendCert::Never, true, true),
        (SendCert::Always, false, false),
        (SendCert::IfAsked, false, true),
    ] {
        let mut world = pair(["moon-P-256", "sun-P-256"], |_, connection| {
            connection.send_cert = policy;
            connection.send_certreq = asks;
        });
        if known {
            for (host, name) in world.hosts.iter_mut().zip(["sun-P-256", "moon-P-256"]) {
                host.endpoint.credentials_mut().load_certificate(cert(name), false).unwrap();
            }
        }
        comes_up(&mut world);
    }
    let mut world = pair(["moon-P-256", "sun-P-256"], |_, connection| connection.send_cert = SendCert::Never);
    responder_refuses(&mut world, "has sent no certificate, and no certificate of that peer is loaded");
}

#[test]
fn both_sides_say_what_they_can_hash_and_what_cas_they_trust() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |_, _| {});
    world.initiate(0);
    world.run_secs(1);
    let [request, response] = [0, 1].map(|host| world.hosts[host].sent[0].1.clone());
    for bytes in [&request, &response] {
        let message = Message::parse(bytes).unwrap();
        let hashes = message.payloads.notify(NotifyType::SignatureHashAlgorithms).unwrap();
        assert_eq!(hashes.data, [0, 2, 0, 3, 0, 4, 0, 5]);
    }
    let response = Message::parse(&response).unwrap();
    let asked = response.payloads.iter().find_map(|payload| match payload {
        Payload::CertificateRequest(asked) => Some(asked),
        _ => None,
    });
    assert_eq!(asked.unwrap().data, cert("root").key().info_id());
    let request = Message::parse(&request).unwrap();
    assert!(!request.payloads.iter().any(|payload| matches!(payload, Payload::CertificateRequest(_))));
}

#[test]
fn a_successor_goes_on_with_what_it_is_given() {
    let mut world = pair(["moon-P-256", "sun-P-256"], |_, _| {});
    world.initiate(0);
    // The responder changes between IKE_SA_INIT and IKE_AUTH: the peer's hash algorithms are in the
    // state.
    world.run_until(|world| world.hosts[1].sas().len() == 1);
    let now = world.now;
    world.hosts[1].take_over(now);
    world.run_secs(2);
    world.assert_tunnel();
}

/// A CA that is trusted no more: new keys do not put off the end of what it has vouched for.
#[test]
fn an_ike_sa_does_not_outlive_its_ca_by_new_keys() {
    for trusted in [false, true] {
        let mut world = pair(["moon-P-256", "sun-P-256"], |index, connection| {
            let rekey = if index == 0 { 200 } else { 1000 };
            connection.lifetime = IkeLifetime::new(rekey, Some(100), Some(0));
        });
        comes_up(&mut world);
        if !trusted {
            world.hosts[1].endpoint.credentials_mut().unload_certificate(&cert("root"));
        }
        world.run_secs(950);
        world.assert_tunnel();
        world.run_secs(350);
        let left = [0, 1].map(|host| world.hosts[host].sas().len());
        assert_eq!(left, if trusted { [1, 1] } else { [0, 0] }, "{:#?}", world.hosts[1].log());
    }
}
