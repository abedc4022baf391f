//! The offer, and the check that the answer is a choice from it.

use crate::support::proposals::{esp_all, esp_large, gcm, ike_all, ike_large, transform};
use testudo_base::spi::Spi;
use testudo_ike::config::{EspEncryption, EspProposal, IkeEncryption, KeyExchange, Prf};
use testudo_ike::message::{
    IkeSpi, Proposal, Protocol, SaPayload, SaSpi, Transform, TransformId, TransformType,
};
use testudo_ike::suite::offer::ChildExchange;
use testudo_ike::suite::{EspSuite, IkeSuite, SuiteError, accept, offer, select};
use testudo_ipsec::sa::{Cipher, EspAlgorithm, Mac};

const OURS: Spi = Spi(0x1000_0001);
const PEERS: Spi = Spi(0x2000_0002);

/// The answer with one thing changed.
fn changed(answer: &SaPayload, change: impl FnOnce(&mut Proposal)) -> SaPayload {
    let mut answer = answer.clone();
    change(&mut answer.proposals[0]);
    answer
}

#[test]
fn an_ike_offer_lists_what_is_configured() {
    let offer = offer::ike(&[ike_all(), ike_large()], None);
    let all = vec![gcm(128), gcm(256), transform(2, 5), transform(2, 6), transform(4, 31), transform(4, 19)];
    let large = vec![gcm(256), transform(2, 6), transform(4, 19)];
    let proposal =
        |number, transforms| Proposal { number, protocol: Protocol::Ike, spi: SaSpi::None, transforms };
    assert_eq!(offer.proposals, [proposal(1, all), proposal(2, large)]);
    let rekeying = offer::ike(&[ike_large()], Some(IkeSpi(7)));
    assert_eq!(rekeying.proposals[0].spi, SaSpi::Ike(IkeSpi(7)));
}

#[test]
fn an_esp_offer_has_key_exchange_only_in_create_child_sa() {
    let transforms = |exchange| offer::esp(&[esp_all()], OURS, exchange).proposals[0].transforms.clone();
    let without = [gcm(128), gcm(256), transform(5, 1), transform(5, 0)];
    assert_eq!(transforms(ChildExchange::IkeAuth), without);
    let with = [gcm(128), gcm(256), transform(4, 31), transform(5, 1), transform(5, 0)];
    assert_eq!(transforms(ChildExchange::CreateChildSa), with);
    let offer = offer::esp(&[esp_all(), esp_large()], OURS, ChildExchange::IkeAuth);
    assert_eq!(offer.proposals.iter().map(|proposal| proposal.number).collect::<Vec<_>>(), [1, 2]);
    assert!(offer.proposals.iter().all(|proposal| proposal.protocol == Protocol::Esp));
    assert!(offer.proposals.iter().all(|proposal| proposal.spi == SaSpi::Child(OURS)));
}

#[test]
fn an_offer_has_at_most_255_proposals() {
    let offer = offer::ike(&vec![ike_large(); 300], None);
    assert_eq!(offer.proposals.len(), 255);
    assert_eq!(offer.proposals[254].number, 255);
}

#[test]
fn the_choice_of_our_own_responder_is_accepted() {
    let (initiator, responder) = ([ike_all()], [ike_large(), ike_all()]);
    for (spi_i, spi_r) in [(None, None), (Some(IkeSpi(1)), Some(IkeSpi(2)))] {
        let offer = offer::ike(&initiator, spi_i);
        let choice = select::ike(&offer, &responder).unwrap();
        assert_eq!(choice.spi, spi_i);
        let suite = IkeSuite {
            encryption: IkeEncryption::Aes256Gcm16,
            integrity: None,
            prf: Prf::HmacSha384,
            ke: KeyExchange::Ecp256,
            additional: [None; 7],
        };
        assert_eq!(choice.suite, suite);
        assert_eq!(accept::ike(&offer, &initiator, &choice.answer(spi_r)), Ok((suite, spi_r)));
    }
    let (initiator, responder) = ([esp_large(), esp_all()], [esp_all()]);
    for (exchange, ke) in
        [(ChildExchange::IkeAuth, None), (ChildExchange::CreateChildSa, Some(KeyExchange::X25519))]
    {
        let offer = offer::esp(&initiator, OURS, exchange);
        let choice = select::esp(&offer, &responder, exchange).unwrap();
        assert_eq!(choice.spi, OURS);
        // In IKE_AUTH the first configured transform that is in the first proposal offered; with a
        // key exchange only the second fits.
        let (algorithm, esn) = match exchange {
            ChildExchange::IkeAuth => (EspAlgorithm::Aes256Gcm16, false),
            ChildExchange::CreateChildSa => (EspAlgorithm::Aes128Gcm16, true),
        };
        let expected = EspSuite { algorithm, esn, ke, additional: [None; 7] };
        assert_eq!(choice.suite, expected);
        assert_eq!(accept::esp(&offer, &initiator, &choice.answer(PEERS)), Ok((expected, PEERS)));
    }
}

#[test]
fn an_esp_offer_names_ciphers_and_macs() {
    let [null, aes256] = [Cipher::Null, Cipher::Aes256Cbc].map(EspEncryption::Separate);
    let proposal = EspProposal {
        encryption: vec![aes256, null],
        integrity: vec![Mac::HmacSha256_128, Mac::HmacSha1_96],
        esn: vec![false],
        ..EspProposal::default()
    };
    let offer = offer::esp(&[proposal], OURS, ChildExchange::IkeAuth);
    let transforms = [
        Transform::cipher(TransformId::ENCR_AES_CBC, 256),
        // It has no key, so no length of it is named.
        Transform::new(TransformType::Encryption, TransformId::ENCR_NULL),
        Transform::new(TransformType::Integrity, TransformId::AUTH_HMAC_SHA2_256_128),
        Transform::new(TransformType::Integrity, TransformId::AUTH_HMAC_SHA1_96),
        Transform::new(TransformType::Esn, TransformId::NO_ESN),
    ];
    assert_eq!(offer.proposals[0].transforms, transforms);
}

/// RFC 8221 §4: encryption without integrity is never agreed on, and integrity beside an AEAD is
/// none.
#[test]
fn ciphers_and_macs_are_chosen_together() {
    let own = EspProposal {
        encryption: vec![EspEncryption::Separate(Cipher::Aes128Cbc)],
        integrity: vec![Mac::HmacSha512_256],
        esn: vec![false],
        ..EspProposal::default()
    };
    let ours = [own, esp_large()];
    let good = offer::esp(&ours[..1], PEERS, ChildExchange::IkeAuth);
    let suite = select::esp(&good, &ours, ChildExchange::IkeAuth).unwrap().suite;
    assert_eq!(suite.algorithm, EspAlgorithm::separate(Cipher::Aes128Cbc, Mac::HmacSha512_256));
    let integrity = |offer: &mut SaPayload, id: Option<TransformId>| {
        let transforms = &mut offer.proposals[0].transforms;
        transforms.retain(|transform| transform.kind != TransformType::Integrity);
        transforms.extend(id.map(|id| Transform::new(TransformType::Integrity, id)));
    };
    let aead = offer::esp(&ours[1..], PEERS, ChildExchange::IkeAuth);
    for (mut offer, id) in [
        (good.clone(), None),
        (good.clone(), Some(TransformId::NONE)),
        (good.clone(), Some(TransformId::AUTH_HMAC_SHA1_96)),
        (aead, Some(TransformId::AUTH_HMAC_SHA2_512_256)),
    ] {
        integrity(&mut offer, id);
        assert!(select::esp(&offer, &ours, ChildExchange::IkeAuth).is_err(), "{offer:?}");
    }
    let choice = select::esp(&good, &ours, ChildExchange::IkeAuth).unwrap();
    for id in [None, Some(TransformId::NONE), Some(TransformId::AUTH_HMAC_SHA1_96)] {
        let mut answer = choice.answer(OURS);
        integrity(&mut answer, id);
        assert!(accept::esp(&good, &ours[..1], &answer).is_err(), "{answer:?}");
    }
}

#[test]
fn an_ike_answer_that_was_not_offered_is_refused() {
    let ours = [ike_large()];
    let offer = offer::ike(&ours, None);
    let answer = select::ike(&offer, &ours).unwrap().answer(None);
    assert!(accept::ike(&offer, &ours, &answer).is_ok());
    let refused = [
        SaPayload { proposals: vec![] },
        SaPayload { proposals: [&answer.proposals[..], &answer.proposals].concat() },
        changed(&answer, |proposal| proposal.number = 2),
        changed(&answer, |proposal| proposal.protocol = Protocol::Esp),
        changed(&answer, |proposal| proposal.spi = SaSpi::Ike(IkeSpi(1))),
        changed(&answer, |proposal| proposal.transforms[0] = gcm(128)),
        changed(&answer, |proposal| proposal.transforms[0].attributes.clear()),
        changed(&answer, |proposal| proposal.transforms[1] = transform(2, 2)),
        changed(&answer, |proposal| proposal.transforms[2] = transform(4, 31)),
        changed(&answer, |proposal| proposal.transforms.truncate(2)),
        changed(&answer, |proposal| proposal.transforms.push(transform(4, 19))),
        changed(&answer, |proposal| proposal.transforms.push(transform(3, 12))),
        changed(&answer, |proposal| proposal.transforms.push(transform(99, 0))),
    ];
    for answer in refused {
        let found = accept::ike(&offer, &ours, &answer);
        assert!(matches!(found, Err(SuiteError::NotOffered(_))), "{answer:?}: {found:?}");
    }
}

#[test]
fn an_answer_of_two_transforms_that_were_both_offered_is_refused() {
    let ours = [ike_all()];
    let offer = offer::ike(&ours, None);
    let answer = SaPayload { proposals: offer.proposals.clone() };
    let expected = SuiteError::NotOffered("it holds two transforms of one type");
    assert_eq!(accept::ike(&offer, &ours, &answer), Err(expected));
}

#[test]
fn an_esp_answer_that_was_not_offered_is_refused() {
    let ours = [esp_large()];
    let offer = offer::esp(&ours, OURS, ChildExchange::IkeAuth);
    let answer = select::esp(&offer, &ours, ChildExchange::IkeAuth).unwrap().answer(PEERS);
    assert!(accept::esp(&offer, &ours, &answer).is_ok());
    let refused = [
        changed(&answer, |proposal| proposal.spi = SaSpi::None),
        changed(&answer, |proposal| proposal.spi = SaSpi::Ike(IkeSpi(1))),
        changed(&answer, |proposal| proposal.spi = SaSpi::Child(Spi(255))),
        changed(&answer, |proposal| proposal.protocol = Protocol::Ah),
        changed(&answer, |proposal| proposal.transforms[1] = transform(5, 1)),
        changed(&answer, |proposal| proposal.transforms.truncate(1)),
        changed(&answer, |proposal| proposal.transforms.push(transform(4, 31))),
    ];
    for answer in refused {
        let found = accept::esp(&offer, &ours, &answer);
        assert!(matches!(found, Err(SuiteError::NotOffered(_))), "{answer:?}: {found:?}");
    }
}

#[test]
fn a_key_exchange_that_was_offered_must_be_answered() {
    let ours = [esp_all()];
    let offer = offer::esp(&ours, OURS, ChildExchange::CreateChildSa);
    let answer = select::esp(&offer, &ours, ChildExchange::CreateChildSa).unwrap().answer(PEERS);
    for none in [vec![], vec![transform(4, 0)]] {
        let without = changed(&answer, |proposal| {
            proposal.transforms.retain(|transform| u8::from(transform.kind) != 4);
            proposal.transforms.extend(none);
        });
        assert!(matches!(accept::esp(&offer, &ours, &without), Err(SuiteError::NotOffered(_))));
    }
}

#[test]
fn none_of_a_type_that_was_not_offered_is_the_same_as_nothing() {
    let ours = [esp_large()];
    let offer = offer::esp(&ours, OURS, ChildExchange::IkeAuth);
    let answer = select::esp(&offer, &ours, ChildExchange::IkeAuth).unwrap().answer(PEERS);
    let with_none = changed(&answer, |proposal| {
        proposal.transforms.extend([transform(3, 0), transform(4, 0)]);
    });
    assert!(accept::esp(&offer, &ours, &with_none).is_ok());
}

/// RFC 7296 §3.3.1, §3.3.3: AH is a protocol of its own, which has no encryption.
#[test]
fn ah_is_offered_and_chosen_without_encryption() {
    let own = EspProposal { integrity: vec![Mac::HmacSha256_128], esn: vec![true], ..EspProposal::default() };
    let offer = offer::esp(std::slice::from_ref(&own), OURS, ChildExchange::IkeAuth);
    assert_eq!(offer.proposals[0].protocol, Protocol::Ah);
    let integrity = Transform::new(TransformType::Integrity, TransformId::AUTH_HMAC_SHA2_256_128);
    assert_eq!(offer.proposals[0].transforms, [integrity, transform(5, 1)]);
    let ours = [esp_large(), own];
    let choice = select::esp(&offer, &ours, ChildExchange::IkeAuth).unwrap();
    assert_eq!(choice.suite.algorithm, EspAlgorithm::Ah(Mac::HmacSha256_128));
    let answer = choice.answer(PEERS);
    let (suite, spi) = accept::esp(&offer, &ours[1..], &answer).unwrap();
    assert_eq!((suite, spi), (choice.suite, PEERS));
    // Nothing of one protocol stands for the other.
    assert!(select::esp(&offer, &ours[..1], ChildExchange::IkeAuth).is_err());
    let mut esp = offer.clone();
    esp.proposals[0].protocol = Protocol::Esp;
    assert!(select::esp(&esp, &ours, ChildExchange::IkeAuth).is_err());
    let mut other = answer.clone();
    other.proposals[0].protocol = Protocol::Esp;
    assert!(accept::esp(&offer, &ours[1..], &other).is_err());
    let mut encrypting = offer;
    encrypting.proposals[0].transforms.push(gcm(128));
    assert!(select::esp(&encrypting, &ours, ChildExchange::IkeAuth).is_err());
}
