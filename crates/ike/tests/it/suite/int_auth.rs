//! IntAuth (RFC 9242 §3.3.2), against the formulas of the RFC written out.

use crate::support::entropy::Script;
use testudo_base::spi::SenderId;
use testudo_ike::config::{IkeEncryption, Integrity, KeyExchange, Prf};
use testudo_ike::message::{
    ExchangeType, Header, IkeSpi, KeMethod, KePayload, Message, MessageBuilder, MessageId, Nonce, Payload,
};
use testudo_ike::suite::{IkeKeys, IkeSpis, IkeSuite, IntAuth, Nonces, Role, Secret, SkOpener};

const SPIS: IkeSpis = IkeSpis { initiator: IkeSpi(0x1111), responder: IkeSpi(0x2222) };

fn suites() -> [IkeSuite; 2] {
    let gcm = IkeSuite {
        encryption: IkeEncryption::Aes256Gcm16,
        integrity: None,
        prf: Prf::HmacSha384,
        ke: KeyExchange::Ecp384,
        additional: [Some(KeyExchange::MlKem768), None, None, None, None, None, None],
    };
    let cbc = IkeSuite {
        encryption: IkeEncryption::Aes128Cbc,
        integrity: Some(Integrity::HmacSha256),
        prf: Prf::HmacSha256,
        ..gcm
    };
    [gcm, cbc]
}

fn nonces() -> Nonces {
    let nonce = |octet| Nonce::new(vec![octet; 32]).unwrap();
    Nonces { initiator: nonce(1), responder: nonce(2) }
}

fn message(sender: Role, id: u32) -> MessageBuilder {
    let header = Header {
        initiator_spi: SPIS.initiator,
        responder_spi: SPIS.responder,
        exchange: ExchangeType::IkeIntermediate,
        from_initiator: sender == Role::Initiator,
        response: sender == Role::Responder,
        message_id: MessageId(id),
    };
    let data = (0..1184_u32).map(|at| at.to_be_bytes()[3]).collect();
    MessageBuilder::new(header).with(Payload::Ke(KePayload { method: KeMethod::MlKem768, data }))
}

/// The octets of A and P by RFC 9242 figure 1: 28 of the header, 4 of SK, 8 of KE, the key; nothing
/// else counts.
fn figure(sender: Role, id: u8) -> Vec<u8> {
    let flags = if sender == Role::Initiator { 0x08 } else { 0x20 };
    let mut octets = vec![0; 28];
    octets[6..8].fill(0x11);
    octets[14..16].fill(0x22);
    octets[16..20].copy_from_slice(&[46, 0x20, 43, flags]);
    octets[23] = id;
    octets[24..28].copy_from_slice(&(28 + 4 + 8 + 1184_u32).to_be_bytes());
    octets.extend([34, 0, 0x04, 0xac]);
    octets.extend([0, 0, 0x04, 0xa8, 0, 36, 0, 0]);
    octets.extend((0..1184_u32).map(|at| at.to_be_bytes()[3]));
    octets
}

/// SK_pi or SK_pr: behind SK_d, SK_a and SK_e of both sides in prf+ (SKEYSEED, Ni | Nr | SPIi |
/// SPIr).
fn identity_key(suite: IkeSuite, skeyseed: &Secret, sender: Role) -> (Secret, Secret) {
    let seed =
        [vec![1; 32], vec![2; 32], 0x1111_u64.to_be_bytes().into(), 0x2222_u64.to_be_bytes().into()].concat();
    let (prf, integrity, cipher) = match suite.encryption {
        IkeEncryption::Aes256Gcm16 => (48, 0, 36),
        _ => (32, 32, 16),
    };
    let before = prf + 2 * integrity + 2 * cipher + if sender == Role::Initiator { 0 } else { prf };
    let stream = suite.prf.plus(skeyseed.expose(), &[&seed], before + prf).unwrap();
    let part = |range: std::ops::Range<usize>| Secret::new(stream.expose()[range].to_vec());
    (part(before..before + prf), part(0..prf))
}

fn opened(opener: &SkOpener, bytes: &[u8]) -> (Vec<u8>, testudo_ike::suite::Opened) {
    let encrypted = Message::parse(bytes).unwrap().encrypted.unwrap();
    (encrypted.head(), opener.open(&encrypted).unwrap())
}

#[test]
fn both_sides_have_the_chains_of_the_rfc_over_two_exchanges() {
    for suite in suites() {
        let (shared, additional) = (Secret::new(vec![7; 48]), Secret::new(vec![8; 32]));
        let mut keys = IkeKeys::derive(suite, &shared, &nonces(), SPIS).unwrap();
        let mut skeyseed = suite.prf.compute(&[[1; 32], [2; 32]].concat(), &[shared.expose()]).unwrap();
        let (mut ours, mut theirs) = (IntAuth::default(), IntAuth::default());
        let mut chains = [vec![], vec![]];
        for id in 1..=2 {
            for (sender, chain) in [Role::Initiator, Role::Responder].into_iter().zip(&mut chains) {
                let message = message(sender, id);
                ours.sent(&keys, sender, &message).unwrap();
                let sealed = keys.sealer(sender, SenderId(1)).seal(&message, &mut Script(vec![9])).unwrap();
                let (head, content) = opened(&keys.opener(sender), &sealed);
                theirs.received(&keys, sender, &head, &content).unwrap();
                let (key, _) = identity_key(suite, &skeyseed, sender);
                let figure = figure(sender, u8::try_from(id).unwrap());
                *chain =
                    suite.prf.compute(key.expose(), &[chain.as_slice(), &figure]).unwrap().expose().to_vec();
            }
            let (_, d) = identity_key(suite, &skeyseed, Role::Initiator);
            let input = [additional.expose(), &[1; 32], &[2; 32]];
            skeyseed = suite.prf.compute(d.expose(), &input).unwrap();
            keys = keys.derive_additional(&additional, &nonces(), SPIS).unwrap();
        }
        let expected = [chains.concat(), vec![0, 0, 0, 3]].concat();
        assert_eq!(ours.octets(MessageId(3)), expected);
        assert_eq!(theirs.octets(MessageId(3)), expected);
    }
}

#[test]
fn without_an_exchange_there_is_no_int_auth() {
    assert_eq!(IntAuth::default().octets(MessageId(1)), Vec::<u8>::new());
}
