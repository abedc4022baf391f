//! Proposals of a connection and of its children.

use super::*;
use testudo_ike::config::Integrity;

#[test]
fn ike_proposals() {
    let one = |text| with_list("proposals", &[text]).map(|mut conn| conn.proposals.remove(0));
    let ike = one("aes128gcm16-prfsha256-x25519").unwrap();
    assert_eq!(ike.encryption, [IkeEncryption::Aes128Gcm16]);
    assert_eq!((ike.prf.as_slice(), ike.ke.as_slice()), (&[Prf::HmacSha256][..], &[KeyExchange::X25519][..]));
    let ike = one("aes256gcm16-ecp256").unwrap();
    assert_eq!(ike.prf, [Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512], "the default PRFs");
    let ike = one("aes256gcm16-aes128gcm16-aes256gcm16-sha384-ecp256-curve25519").unwrap();
    assert_eq!(ike.encryption, [IkeEncryption::Aes256Gcm16, IkeEncryption::Aes128Gcm16]);
    assert_eq!(ike.prf, [Prf::HmacSha384], "an integrity algorithm beside an AEAD names the PRF");
    assert_eq!(ike.ke, [KeyExchange::Ecp256, KeyExchange::X25519]);
    assert_eq!(one("AES128GCM128-PRFSHA384-X25519").unwrap().prf, [Prf::HmacSha384]);
    let ike = one("aes128-aes256-sha256-sha512-modp2048").unwrap();
    assert_eq!(ike.encryption, [IkeEncryption::Aes128Cbc, IkeEncryption::Aes256Cbc]);
    assert_eq!(ike.integrity, [Integrity::HmacSha256, Integrity::HmacSha512]);
    assert_eq!(ike.prf, [Prf::HmacSha256, Prf::HmacSha512], "the PRF follows from the integrity algorithm");
    let ike = one("aes192-sha384-prfaesxcbc-ecp521").unwrap();
    assert_eq!((ike.prf, ike.ke), (vec![Prf::AesXcbc], vec![KeyExchange::Ecp521]));
    for (text, encryption) in [
        ("aes256ccm16-prfsha512-modp4096", IkeEncryption::Aes256Ccm16),
        ("aes192ccm128-prfsha512-modp4096", IkeEncryption::Aes192Ccm16),
        ("chacha20poly1305-sha512-modp4096", IkeEncryption::ChaCha20Poly1305),
        ("aes192gcm-sha512-modp4096", IkeEncryption::Aes192Gcm16),
    ] {
        let ike = one(text).unwrap();
        assert_eq!((ike.encryption, ike.integrity), (vec![encryption], vec![]), "{text}");
        assert_eq!((ike.prf, ike.ke), (vec![Prf::HmacSha512], vec![KeyExchange::Modp4096]), "{text}");
    }
}

#[test]
fn ike_proposals_that_cannot_be_used_say_why() {
    let why = |text| with_list("proposals", &[text]).unwrap_err();
    for (text, expected) in [
        ("aes128gcm16-prfsha256-x25519-foo", "but algorithm \"foo\" is not supported; expected aes{128,"),
        ("aes128gcm16--x25519", "but algorithm \"\" is not supported; expected aes{128,"),
        ("aes128gcm16-prfsha256", "but it names no key exchange; expected one such as x25519 or ecp256"),
        ("prfsha256-x25519", "but it names no encryption; expected one such as aes128gcm16"),
        ("aes128-aes128gcm16-sha256-x25519", "but AEADs and other ciphers cannot stand in one proposal"),
        ("aes128-prfsha256-x25519", "but AES-CBC needs an integrity algorithm; expected one such as sha256"),
        (
            "aes128gcm16-prfsha256-x25519-esn",
            "but sequence numbers are not part of IKE proposals; expected no esn",
        ),
        ("3des-sha256-modp2048", "but algorithm \"3des\" is refused as weak: blocks of 64 bits"),
        ("aes128-sha1-modp2048", "but algorithm \"sha1\" is refused as weak: its hash"),
        ("des-sha256-modp2048", "but algorithm \"des\" is refused as weak: "),
        ("null-sha256-modp2048", "but algorithm \"null\" is refused as weak: "),
        (
            "aes128ccm8-modp2048",
            "but algorithm \"aes128ccm8\" is refused as weak: its integrity check value is short",
        ),
        (
            "aes256ccm96-modp2048",
            "but algorithm \"aes256ccm96\" is refused as weak: its integrity check value is short",
        ),
        ("aes128gmac-modp2048", "but algorithm \"aes128gmac\" is refused as weak: it protects nothing"),
        ("aes128-sha256-modp768", "but algorithm \"modp768\" is refused as weak: its group is too small"),
        (
            "aes128-sha256-modp1024s160",
            "but algorithm \"modp1024s160\" is refused as weak: the origin of its group",
        ),
        ("aes128-MD5-modp2048", "but algorithm \"MD5\" is refused as weak: its hash"),
        ("aes128-sha256-modp1024", "but algorithm \"modp1024\" is refused as weak: its group is too small"),
        (
            "aes128-sha256-modp2048s256",
            "but algorithm \"modp2048s256\" is refused as weak: the origin of its group",
        ),
        (
            "aes128ccm8-prfsha256-x25519",
            "but algorithm \"aes128ccm8\" is refused as weak: its integrity check",
        ),
    ] {
        let why = why(text);
        let expected = format!("connections.gw.proposals: found {text:?}, {expected}");
        assert!(why.starts_with(&expected), "{why}");
    }
}

#[test]
fn weak_algorithms_of_ike_need_the_legacy_policy() {
    let proposals = |text: &str, policy| {
        let content = Message::new().with_section("local", psk()).with_section("remote", psk());
        let content = content.with_list("proposals", [text]);
        connection(&Message::new().with_section("gw", content), policy).map(|connection| connection.proposals)
    };
    for text in [
        "aes128-sha1-modp2048",
        "aes128gcm16-prfsha1-x25519",
        "aes128-sha256-modp1536",
        "aes256-sha-modp1024",
    ] {
        let why = proposals(text, Policy::Modern).unwrap_err().to_string();
        assert!(why.ends_with("; testudo.toml can allow it with legacy = true"), "{why}");
        assert_eq!(proposals(text, Policy::Legacy).unwrap().len(), 1, "{text}");
    }
    let [legacy] = &proposals("aes128-sha1-modp1024", Policy::Legacy).unwrap()[..] else { panic!() };
    assert_eq!((&legacy.integrity[..], &legacy.prf[..]), (&[Integrity::HmacSha1][..], &[Prf::HmacSha1][..]));
    assert_eq!(proposals("default", Policy::Legacy).unwrap(), proposals("default", Policy::Modern).unwrap());
    let why = proposals("3des-sha1-modp1024", Policy::Legacy).unwrap_err().to_string();
    assert!(why.contains("\"3des\" is refused as weak"), "{why}");
}

#[test]
fn esp_proposals() {
    let one = |text: &str| {
        child(Message::new().with_list("esp_proposals", [text])).map(|mut child| child.proposals.remove(0))
    };
    let esp = one("aes256gcm16").unwrap();
    assert_eq!((&esp.encryption[..], &esp.integrity[..]), (&[EspEncryption::Aes256Gcm16][..], &[][..]));
    assert_eq!((esp.ke.len(), esp.esn), (0, vec![false]));
    let esp = one("aes128gmac-aes192gmac-aes256gmac").unwrap();
    assert_eq!(
        esp.encryption,
        [EspEncryption::Aes128Gmac, EspEncryption::Aes192Gmac, EspEncryption::Aes256Gmac]
    );
    let esp = one("aes128ccm8-aes256ccm96-aes192ccm").unwrap();
    let ccm = |key, icv| EspEncryption::Ccm(CcmAlgorithm { key, icv });
    assert_eq!(
        esp.encryption,
        [
            ccm(AesKey::Aes128, IcvLen::Eight),
            ccm(AesKey::Aes256, IcvLen::Twelve),
            ccm(AesKey::Aes192, IcvLen::Sixteen)
        ]
    );
    let esp = one("aes192gcm128-chacha20poly1305-esn").unwrap();
    assert_eq!(esp.encryption, [EspEncryption::Aes192Gcm16, EspEncryption::ChaCha20Poly1305]);
    let esp = one("aes128gcm-x25519-esn-noesn").unwrap();
    assert_eq!((esp.ke.as_slice(), esp.esn.as_slice()), (&[KeyExchange::X25519][..], &[true, false][..]));
    let default = child(Message::new().with_list("esp_proposals", ["default"])).unwrap().proposals;
    let [aeads, cbc] = default.as_slice() else { panic!("charon's two: {default:?}") };
    assert_eq!((aeads.encryption.len(), aeads.integrity.len(), &aeads.esn[..]), (3, 0, &[false][..]));
    assert_eq!(cbc.encryption[0], EspEncryption::Separate(Cipher::Aes128Cbc));
    assert_eq!(cbc.integrity, [Mac::HmacSha256_128, Mac::HmacSha384_192, Mac::HmacSha512_256]);
    let first =
        child(Message::new().with_list("esp_proposals", ["aes256-sha256", "default"])).unwrap().proposals;
    assert_eq!(first[1..], default[..], "it may stand behind others");
    assert_eq!(one("aes128gcm16-sha256").unwrap().integrity, [], "it means nothing beside an AEAD");
    for (text, expected) in [
        (
            "aes128ccm10",
            "but algorithm \"aes128ccm10\" is not supported; expected aes{128,192,256}gcm16, aes{128,192,256}ccm{8,12,16},",
        ),
        ("aes128gcm12", "but algorithm \"aes128gcm12\" is not supported; expected aes{128,192,256}gcm16, "),
        ("aes128", "but AES-CBC and NULL need an integrity algorithm; expected one such as sha256"),
        ("null", "but AES-CBC and NULL need an integrity algorithm; expected one such as sha256"),
        (
            "aes128gcm16-aes128-sha256",
            "but AEADs and other ciphers cannot stand in one proposal; expected two",
        ),
        ("null-aes256gcm16-sha1", "but AEADs and other ciphers cannot stand in one proposal; expected two"),
        ("sha256", "but it names no encryption; expected one such as aes128gcm16"),
    ] {
        let path = "connections.gw.children.net.esp_proposals";
        let why = one(text).unwrap_err();
        assert!(why.starts_with(&format!("{path}: found {text:?}, {expected}")), "{why}");
    }
    for text in ["des-sha256", "3des-sha1", "blowfish128-sha256", "aes128-md5"] {
        let why = one(text).unwrap_err();
        assert!(why.contains("is refused as weak: "), "{why}");
    }
}

/// Each by the name that strongSwan has for it, without `legacy = true`.
#[test]
fn esp_proposals_with_separate_algorithms() {
    let one = |text: &str| {
        child(Message::new().with_list("esp_proposals", [text])).map(|mut child| child.proposals.remove(0))
    };
    let ciphers = [
        ("null", Cipher::Null),
        ("aes128", Cipher::Aes128Cbc),
        ("aes192", Cipher::Aes192Cbc),
        ("aes256", Cipher::Aes256Cbc),
    ];
    let macs = [
        ("sha1", Mac::HmacSha1_96),
        ("sha256", Mac::HmacSha256_128),
        ("sha384", Mac::HmacSha384_192),
        ("sha512", Mac::HmacSha512_256),
        ("aesxcbc", Mac::AesXcbc96),
        ("aescmac", Mac::AesCmac96),
    ];
    for (cipher_name, cipher) in ciphers {
        for (mac_name, mac) in macs {
            let esp = one(&format!("{cipher_name}-{mac_name}-ecp256-esn")).unwrap();
            assert_eq!(
                (&esp.encryption[..], &esp.integrity[..]),
                (&[EspEncryption::Separate(cipher)][..], &[mac][..])
            );
            assert_eq!((&esp.ke[..], &esp.esn[..]), (&[KeyExchange::Ecp256][..], &[true][..]));
        }
    }
    let esp = one("AES256-aes-sha2_512-SHA").unwrap();
    let [aes256, aes128] = [Cipher::Aes256Cbc, Cipher::Aes128Cbc].map(EspEncryption::Separate);
    assert_eq!(esp.encryption, [aes256, aes128], "in the order of the words");
    assert_eq!(esp.integrity, [Mac::HmacSha512_256, Mac::HmacSha1_96]);
}

/// A child with that for `esp_proposals`.
fn esp_child(text: &str, policy: Policy) -> Result<Child, String> {
    let child = Message::new().with_section("net", Message::new().with_list("esp_proposals", [text]));
    let content = Message::new().with_section("local", psk()).with_section("remote", psk());
    connection(&Message::new().with_section("gw", content.with_section("children", child)), policy)
        .map(|mut connection| connection.children.remove(0))
        .map_err(|refusal| refusal.to_string())
}

/// DES is for nobody, and IKE has none of them.
#[test]
fn weak_algorithms_of_esp_need_the_legacy_policy() {
    let one = |text: &str, policy| esp_child(text, policy).map(|mut child| child.proposals.remove(0));
    for text in ["3des-sha256", "aes128-md5", "3des-md5-esn", "3DES-MD5"] {
        let why = one(text, Policy::Modern).unwrap_err();
        assert!(why.contains("is refused as weak: "), "{why}");
        assert!(why.ends_with("; testudo.toml can allow it with legacy = true"), "{why}");
    }
    let esp = one("3des-md5", Policy::Legacy).unwrap();
    assert_eq!(esp.encryption, [EspEncryption::Separate(Cipher::TripleDesCbc)]);
    assert_eq!(esp.integrity, [Mac::HmacMd5_96]);
    for text in ["des-sha256", "blowfish128-sha256", "aes128-md5_128"] {
        let why = one(text, Policy::Legacy).unwrap_err();
        assert!(why.contains("is refused as weak: ") && !why.contains("legacy"), "{why}");
    }
    assert_eq!(one("default", Policy::Legacy).unwrap(), one("default", Policy::Modern).unwrap());
}

/// Blocks of 64 bits are for some gigabytes, unless told otherwise.
#[test]
fn a_child_with_3des_is_renewed_by_octets() {
    let rekey = |text: &str| esp_child(text, Policy::Legacy).unwrap().lifetime.bytes.rekey;
    assert_eq!((rekey("3des-sha1"), rekey("aes128-sha1")), (1 << 30, 0));
}

#[test]
fn ah_proposals() {
    let all = |ah: &[&str], esp: &[&str]| {
        let lists =
            Message::new().with_list("ah_proposals", ah.to_vec()).with_list("esp_proposals", esp.to_vec());
        child(lists).map(|child| child.proposals)
    };
    let aes = all(&["aesxcbc-aescmac"], &[]).unwrap().remove(0);
    assert!(aes.is_ah() && aes.integrity == [Mac::AesXcbc96, Mac::AesCmac96]);
    let ah = &all(&["sha256-sha1-ecp256-esn"], &[]).unwrap()[..];
    let [ah] = ah else { panic!("{ah:?}") };
    assert!(ah.is_ah());
    assert_eq!(ah.integrity, [Mac::HmacSha256_128, Mac::HmacSha1_96]);
    assert_eq!((&ah.ke[..], &ah.esn[..]), (&[KeyExchange::Ecp256][..], &[true][..]));
    let both: Vec<bool> =
        all(&["default"], &["aes128gcm16"]).unwrap().iter().map(|own| own.is_ah()).collect();
    assert_eq!(both, [true, false]);
    assert!(!all(&[], &[]).unwrap()[0].is_ah(), "ESP unless told");
    for (text, expected) in [
        ("aes128-sha256", "but AH encrypts nothing; expected an integrity algorithm such as sha256"),
        ("null-sha256", "but AH encrypts nothing; expected an integrity algorithm such as sha256"),
        (
            "sha224",
            "but algorithm \"sha224\" is not supported; expected sha1, sha256, sha384, sha512, aesxcbc and aescmac,",
        ),
        ("x25519", "but it names no integrity; expected one such as sha256"),
        ("sha256-ke1_mlkem768", "but it has additional key exchanges without a first one; expected one"),
    ] {
        let why = all(&[text], &[]).unwrap_err();
        let path = "connections.gw.children.net.ah_proposals";
        assert!(why.starts_with(&format!("{path}: found {text:?}, {expected}")), "{why}");
    }
}
