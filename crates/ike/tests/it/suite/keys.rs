//! Derivation where no published vector reaches: rekeyed IKE SAs, Child SAs with a key exchange of
//! their own, all suites.
//!
//! Expected values come from Python's `hmac`, an independent implementation, with the formulas of
//! RFC 7296 §2.13 to §2.18 written out: Ni is the octets 0 to 31, Nr 32 to 63, g^ir 64 to 95, g^ir
//! (new) 96 to 127; SPIi is 0x0102030405060708, SPIr 0x1112131415161718. A rekeyed IKE SA has the
//! same nonces and SPIs, and g^ir (new). Additional key exchanges (RFC 9370 §2.2.4) give the octets
//! 128 to 159 and 160 to 191.

use crate::support::no_entropy::NoEntropy;
use testudo_base::spi::SenderId;
use testudo_ike::config::{IkeEncryption, KeyExchange, Prf};
use testudo_ike::message::{
    ExchangeType, Header, IdPayload, IdType, IkeSpi, MessageBuilder, MessageId, Nonce,
};
use testudo_ike::suite::{IkeKeys, IkeSpis, IkeSuite, Nonces, Role, Secret, SignedOctets, SuiteError};
use testudo_ipsec::sa::{Cipher, EspAlgorithm, Mac};

const SMALL: IkeSuite = IkeSuite {
    encryption: IkeEncryption::Aes128Gcm16,
    integrity: None,
    prf: Prf::HmacSha256,
    ke: KeyExchange::X25519,
    additional: [None; 7],
};
const LARGE: IkeSuite = IkeSuite {
    encryption: IkeEncryption::Aes256Gcm16,
    integrity: None,
    prf: Prf::HmacSha384,
    ke: KeyExchange::Ecp256,
    additional: [None; 7],
};

/// SK_d, SK_ei, SK_er, SK_pi, SK_pr.
const KEYS_SMALL: [&str; 5] = [
    "0c26341d77313c227236f4aebf29182f0629dbe10e8ac56347f067a8defc22d5",
    "8748594d3353b3e04121026ebf49d4a4907e2ae4",
    "eb2a9831832397da89af6f7968b67ce3c70fad27",
    "3ae0bbb34ee581341bbfd3303ab1d48166dde54604d0286bd75427665fbbb117",
    "f4d9f877d73606ca959fbdb34f746d24f8939191f8d3af60fc816d7edfca54ae",
];
const KEYS_SMALL_TO_LARGE: [&str; 5] = [
    "02891c8ac2fae89deec50971424bb9a6e2fb89d92a1a31310232b2e5a69def9d1e1bf0a22d00b8213ff3c373d8f331b4",
    "874b62a524fce2b78b77f50e2abd0cab86994ba391502bd08c60c69b005dfe671925eb1c",
    "1abb4b01148055f1793d12c7c958145bbf4a8c9fbedabdd7cc4d9ab40ffaf7ffbe61b0f8",
    "3ecd1c28ff31e297a2a95ee3520414a650760562471f0d65e4d913d76671cd4b7ee69c4e7cc79ec9a8235870ffe776bf",
    "be0ce9f6183abf049c1c165f7c1141dcbb08ec10f7a3d51799942bfc5a15d01b95cbf790383578f3138108a1a6645e3b",
];
const KEYS_LARGE: [&str; 5] = [
    "f9c95d9b71b9dce3036c0503f9050ba5454e4edf4f211c4735678a36ea2be382c147db63d0742bb7a7067418d1c1b1e8",
    "4dbc5ff5d633d9435a9da5dd51708f53d3133823f576f79c3c61000539df644e7deb9371",
    "4a3123e1f4d1d5e1896275933263d5620fc46f6e602270808d032d50e873c2b0d1c1d551",
    "e8bfa97595ce8f3bc2ebcd52c7395e271a197bb7931ce6b8c10ba334c0ab80b252843c3f8ef403856f00eb7211eb7286",
    "516bf1f96b091ea5f889ea06d2fa3dccdc3530090c94690c35563d484e929fa757e6380389abbf256c7ba297f6399891",
];
const KEYS_LARGE_TO_SMALL: [&str; 5] = [
    "ae64ccb7164631d6fdecec0838f7b3599357d6682da9cf094cad50b82126bb67",
    "30cbc2676dbc02bc75c75f494923300356f7fa4a",
    "1115dadaf1295104ff52e9f9e129888b8b6908b0",
    "2fdd17b6fe0666a9fd6da605a404465af3684bf3a39f859527854824dcb41e7b",
    "7b47cce873ec5c91a4049485a15ba107e560d5c6ccd0d26a83c63a8c16f34487",
];

/// With two additional key exchanges.
const KEYS_SMALL_TO_LARGE_ADDITIONAL: [&str; 5] = [
    "cda1105f1aab9026cb6207f3004012a5b0336eb85fe3564f47d05db2d9bbaf8314df1666ff8091648a4c46213846159c",
    "8436a8ccdc78ffab16ddf6e689800656bb42b22311db3cbda6c471f7ebbd95d67dc3d0ff",
    "c9134701815611bcdde9a5695a33bdaea2f3c36d63bc1bc1e37dde3841931b21aa4bc57a",
    "cdb9233b0b30bc215cf402064c12f3638a69c7b3ad1dd0a13c12bcf907c8e22e887192e9cd062fe44d2d9351a443dbcc",
    "aec6246ebc18507577afe3e6eb6412623bdd0d9dd6ff3c2012e24ba002b73403b1e409c5d115b4cc95a0e0e8a03ae9ae",
];
const KEYS_LARGE_TO_SMALL_ADDITIONAL: [&str; 5] = [
    "b50e465d583a1d09d66b52802b69faf3518ef0673a110310fabae0e4c06acfb8",
    "0b7c21c783e53f783494a3bea22d84eecee4308a",
    "7173629097a6e75bb2c94859d5f4256cf77f47cc",
    "eb3800de2d1b5bffa13782cf078a439d6e7aa055c610873001f73ad8da9f2177",
    "0f2c2315099ab7ad148bae314a8f4ee20d3b103369122f2d7ba70e9b783d5d5e",
];

/// SK_d, SK_pi and SK_pr as prf (PPK, ... | 0x01) of those above, the PPK being "a PPK" (RFC 8784
/// §3); the others as they are.
const KEYS_SMALL_WITH_PPK: [&str; 5] = [
    "d08598e9cbdb0e8935820760dc329fb6f8188931272bbcf80f80aebd9e4bc7fe",
    "8748594d3353b3e04121026ebf49d4a4907e2ae4",
    "eb2a9831832397da89af6f7968b67ce3c70fad27",
    "9410e9433bfe55b9272c906f89a6cba2a654feb093267ee9b1778db80b00edf3",
    "bceb7b645839968c7796069ea49ad5bc1adf3c22f394061d893e89bba443a465",
];
const KEYS_LARGE_WITH_PPK: [&str; 5] = [
    "5d5daa90760041b4f8a34a172cb2d9af405bb961ac04ec6d60b2be0fe6d323453978f38138e9b79271b151afa38062ce",
    "4dbc5ff5d633d9435a9da5dd51708f53d3133823f576f79c3c61000539df644e7deb9371",
    "4a3123e1f4d1d5e1896275933263d5620fc46f6e602270808d032d50e873c2b0d1c1d551",
    "382e515a175f3ddbaafbd91eb4a66643d1da332aadc0f4a1ba428f4d82d0e6511e9757b63cd0f01d9d29ccb66558311c",
    "ac8121a6e3a10c8feaf0af9233f689ceec0936a8e420a6a388bb588973f2dfcb84c6327a7ec94304d66114970ba451f2",
];

/// KEYMAT under KEYS_SMALL for AES-256 and under KEYS_LARGE for AES-128: without and with g^ir
/// (new), and with two additional key exchanges.
const CHILD_SMALL: [&str; 3] = [
    "2b9b2f8d7f6469c5053114fe8b9f093e4c8d1156c64f995b9b6455e3a98772fa1f7a4aac
     e2fe2358d4a4ce9eeb031a0a46eb7d740081ef5fef0f164d899155a8e69520c0e5aac2f4",
    "33a6210f4949332abe27eee8617d547ad3f83f20ec53e6087680462b176168332b3ed749
     067e6ae365f2950ff8841e86b8c54fa3f0fbc78424423d21725b7cbf706b461057e4db94",
    "8c6fb91841dffb036e3e8a6e98b64d259471aa25d9cb8b217e714a0789b4e5a5a11e6d61
     ee7e6836e6164f9d8a731c009759d9dcdc928972917f5143a00bdf76a236fb1cc2c2b952",
];
const CHILD_LARGE: [&str; 3] = [
    "0fd573e1eb9469a433d43e232da18785c1fce462
     7870ecf346f09c21c63287edfa809e6fa5b5fc39",
    "a4a3b0c9afa9a3a7977cec5d6ff41511b5d0bd46
     301efdc446526b26159ae27551c04f30fe4623de",
    "231954f6a153439f161cb2096abb198a82fcaf18
     1912e560ddd9fb30a4dc2d2e0117b8a7dfc648f0",
];

fn unhex(hex: &str) -> Vec<u8> {
    let hex: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    hex.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn octets(from: u8) -> Vec<u8> {
    (from..from + 32).collect()
}

/// The secrets of the first key exchanges of CREATE_CHILD_SA and IKE_FOLLOWUP_KE.
fn shared(exchanges: usize) -> Vec<Secret> {
    [96, 128, 160].into_iter().take(exchanges).map(|from| Secret::new(octets(from))).collect()
}

fn nonces() -> Nonces {
    Nonces { initiator: Nonce::new(octets(0)).unwrap(), responder: Nonce::new(octets(32)).unwrap() }
}

fn spis() -> IkeSpis {
    IkeSpis { initiator: IkeSpi(0x0102_0304_0506_0708), responder: IkeSpi(0x1112_1314_1516_1718) }
}

fn derive(suite: IkeSuite) -> IkeKeys {
    IkeKeys::derive(suite, &Secret::new(octets(64)), &nonces(), spis()).unwrap()
}

/// Keys with these values, as stored: the only way to see all of them.
fn stored(suite: IkeSuite, keys: [&str; 5]) -> Vec<u8> {
    let mut stored = postcard::to_allocvec(&suite).unwrap();
    let [d, rest @ ..] = keys;
    // All but SK_d in one; with an AEAD SK_ai and SK_ar are empty.
    for key in [d, &rest.concat()] {
        stored.extend(postcard::to_allocvec(&unhex(key)).unwrap());
    }
    stored
}

#[test]
fn the_keys_of_an_ike_sa() {
    for (suite, keys) in [(SMALL, KEYS_SMALL), (LARGE, KEYS_LARGE)] {
        assert_eq!(postcard::to_allocvec(&derive(suite)).unwrap(), stored(suite, keys));
    }
}

#[test]
fn the_keys_of_a_rekeyed_ike_sa() {
    let cases = [
        (SMALL, LARGE, 1, KEYS_SMALL_TO_LARGE),
        (LARGE, SMALL, 1, KEYS_LARGE_TO_SMALL),
        (SMALL, LARGE, 3, KEYS_SMALL_TO_LARGE_ADDITIONAL),
        (LARGE, SMALL, 3, KEYS_LARGE_TO_SMALL_ADDITIONAL),
    ];
    for (old, new, exchanges, keys) in cases {
        let rekeyed = derive(old).derive_rekeyed(new, &shared(exchanges), &nonces(), spis()).unwrap();
        assert_eq!(postcard::to_allocvec(&rekeyed).unwrap(), stored(new, keys));
    }
    let none = derive(SMALL).derive_rekeyed(SMALL, &[], &nonces(), spis());
    assert_eq!(none, Err(SuiteError::NoKeyExchange));
}

#[test]
fn the_keys_with_a_ppk() {
    for (suite, keys) in [(SMALL, KEYS_SMALL_WITH_PPK), (LARGE, KEYS_LARGE_WITH_PPK)] {
        let mixed = derive(suite).with_ppk(b"a PPK").unwrap();
        assert_eq!(postcard::to_allocvec(&mixed).unwrap(), stored(suite, keys));
    }
}

#[test]
fn the_keys_of_a_child_sa() {
    // First all keys of one direction, of which the cipher's comes before the MAC's (RFC 7296
    // §2.17).
    let null = EspAlgorithm::separate(Cipher::Null, Mac::HmacSha1_96);
    let cbc = EspAlgorithm::separate(Cipher::Aes128Cbc, Mac::HmacSha1_96);
    let cases = [
        (SMALL, EspAlgorithm::Aes256Gcm16, CHILD_SMALL, 36),
        (LARGE, EspAlgorithm::Aes128Gcm16, CHILD_LARGE, 20),
        (LARGE, null, CHILD_LARGE, 20),
        (SMALL, cbc, CHILD_SMALL, 36),
    ];
    for (suite, algorithm, keymat, length) in cases {
        for (exchanges, keymat) in [0, 1, 3].into_iter().zip(keymat) {
            let keys = derive(suite).child(algorithm, &shared(exchanges), &nonces()).unwrap();
            let keymat = unhex(keymat);
            assert_eq!(keys.from_initiator.0, keymat[..length]);
            assert_eq!(keys.from_responder.0, keymat[length..]);
        }
    }
}

#[test]
fn keys_that_are_forgotten_authenticate_and_seal_nothing() {
    for suite in [SMALL, LARGE] {
        let mut keys = derive(suite);
        let child = keys.child(EspAlgorithm::Aes128Gcm16, &[], &nonces()).unwrap();
        keys.forget_all_but_root();
        let id = IdPayload::new(IdType::KeyId, b"who".to_vec());
        let nonces = nonces();
        let octets =
            SignedOctets { message: b"message", peer_nonce: &nonces.initiator, id: &id, int_auth: b"" };
        let short = |error| matches!(error, SuiteError::KeyLength { found: 0, .. });
        assert!(keys.psk_auth(Role::Initiator, b"psk", &octets).is_err_and(short));
        assert!(keys.with_ppk(b"a PPK").is_err_and(short));
        let mut sealer = keys.sealer(Role::Responder, SenderId(1));
        let header = Header {
            initiator_spi: spis().initiator,
            responder_spi: spis().responder,
            exchange: ExchangeType::Informational,
            from_initiator: false,
            response: false,
            message_id: MessageId(7),
        };
        assert!(sealer.seal(&MessageBuilder::new(header), &mut NoEntropy).is_err_and(short));
        // The root stays.
        assert_eq!(keys.child(EspAlgorithm::Aes128Gcm16, &[], &nonces).unwrap(), child);
    }
}

#[test]
fn stored_keys_come_back_the_same() {
    for suite in [SMALL, LARGE] {
        let keys = derive(suite);
        let restored: IkeKeys = postcard::from_bytes(&postcard::to_allocvec(&keys).unwrap()).unwrap();
        assert_eq!(restored, keys);
        assert_eq!(restored.suite(), suite);
    }
}
