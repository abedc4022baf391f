//! The responder's choice among what a peer offers, foreign and malformed offers included.

use crate::support::proposals::{esp_all, esp_large, gcm, ike_all, ike_large, transform};
use testudo_base::spi::Spi;
use testudo_ike::config::{IkeEncryption, KeyExchange, Prf};
use testudo_ike::message::{Attribute, IkeSpi, Proposal, Protocol, SaPayload, SaSpi, Transform};
use testudo_ike::suite::offer::ChildExchange;
use testudo_ike::suite::{EspChoice, IkeChoice, IkeSuite, SuiteError, select};
use testudo_ipsec::sa::EspAlgorithm;

fn ike(transforms: Vec<Transform>) -> Proposal {
    Proposal { number: 1, protocol: Protocol::Ike, spi: SaSpi::None, transforms }
}

fn esp(transforms: Vec<Transform>) -> Proposal {
    Proposal { number: 1, protocol: Protocol::Esp, spi: SaSpi::Child(Spi(0x1000)), transforms }
}

fn select_ike(proposals: Vec<Proposal>) -> Result<IkeChoice, SuiteError> {
    select::ike(&SaPayload { proposals }, &[ike_all()])
}

fn select_esp(proposals: Vec<Proposal>) -> Result<EspChoice, SuiteError> {
    select::esp(&SaPayload { proposals }, &[esp_all()], ChildExchange::IkeAuth)
}

/// A proposal that every side accepts.
fn good_ike() -> Vec<Transform> {
    vec![gcm(128), transform(2, 5), transform(4, 31)]
}

fn good_esp() -> Vec<Transform> {
    vec![gcm(128), transform(5, 0)]
}

#[test]
fn our_order_decides() {
    let offered = SaPayload {
        proposals: vec![ike(vec![
            gcm(128),
            gcm(256),
            transform(2, 5),
            transform(2, 6),
            transform(4, 31),
            transform(4, 19),
        ])],
    };
    let large = IkeSuite {
        encryption: IkeEncryption::Aes256Gcm16,
        integrity: None,
        prf: Prf::HmacSha384,
        ke: KeyExchange::Ecp256,
        additional: [None; 7],
    };
    assert_eq!(select::ike(&offered, &[ike_large(), ike_all()]).unwrap().suite, large);
    let small = IkeSuite {
        encryption: IkeEncryption::Aes128Gcm16,
        integrity: None,
        prf: Prf::HmacSha256,
        ke: KeyExchange::X25519,
        additional: [None; 7],
    };
    assert_eq!(select::ike(&offered, &[ike_all(), ike_large()]).unwrap().suite, small);
}

#[test]
fn the_answer_repeats_number_and_transforms_of_the_proposal_chosen() {
    let other = Proposal { number: 1, ..ike(vec![transform(1, 12), transform(2, 5), transform(4, 31)]) };
    let chosen = Proposal { number: 2, ..ike(good_ike()) };
    let choice = select_ike(vec![other, chosen.clone()]).unwrap();
    assert_eq!(choice.answer(None).proposals, [chosen]);
}

#[test]
fn an_unknown_attribute_rejects_only_its_transform() {
    let mut strange_attribute = gcm(256);
    strange_attribute.attributes.push(Attribute::Short { kind: 99, value: 1 });
    let mut long_key_length = gcm(256);
    long_key_length.attributes = vec![Attribute::Long { kind: 14, value: vec![1, 0] }];
    let mut no_key_length = gcm(256);
    no_key_length.attributes.clear();
    for strange in [strange_attribute, long_key_length, no_key_length, gcm(192), transform(1, 65_000)] {
        let mut transforms = vec![strange.clone()];
        transforms.extend(good_ike());
        assert!(select_ike(vec![ike(transforms)]).is_ok());
        let alone = ike(vec![strange, transform(2, 5), transform(4, 31)]);
        assert_eq!(select_ike(vec![alone]), Err(SuiteError::NoProposal { offered: 1 }));
    }
}

#[test]
fn an_unknown_transform_type_makes_the_proposal_unacceptable_and_no_more() {
    for kind in [5, 13, 241] {
        let mut transforms = good_ike();
        transforms.push(transform(kind, 0));
        let strange = ike(transforms);
        assert_eq!(select_ike(vec![strange.clone()]), Err(SuiteError::NoProposal { offered: 1 }));
        let good = Proposal { number: 2, ..ike(good_ike()) };
        assert_eq!(select_ike(vec![strange, good.clone()]).unwrap().answer(None).proposals, [good]);
    }
    let mut transforms = good_esp();
    transforms.push(transform(2, 5));
    assert!(select_esp(vec![esp(transforms)]).is_err(), "ESP has no PRF");
}

#[test]
fn a_missing_mandatory_type_makes_the_proposal_unacceptable() {
    for missing in 0..3 {
        let mut transforms = good_ike();
        transforms.remove(missing);
        assert_eq!(select_ike(vec![ike(transforms)]), Err(SuiteError::NoProposal { offered: 1 }));
    }
    for missing in 0..2 {
        let mut transforms = good_esp();
        transforms.remove(missing);
        assert_eq!(select_esp(vec![esp(transforms)]), Err(SuiteError::NoProposal { offered: 1 }));
    }
}

#[test]
fn integrity_beside_an_aead_must_be_none() {
    let with = |integrity: &[u16]| {
        let mut transforms = good_ike();
        transforms.extend(integrity.iter().map(|id| transform(3, *id)));
        select_ike(vec![ike(transforms)])
    };
    assert_eq!(with(&[12]), Err(SuiteError::NoProposal { offered: 1 }));
    for integrity in [&[0][..], &[12, 0]] {
        let answer = with(integrity).unwrap().answer(None);
        let none: Vec<_> = answer.proposals[0].transforms.iter().filter(|t| u8::from(t.kind) == 3).collect();
        assert_eq!(none, [&transform(3, 0)], "one transform of each type that was offered");
    }
    assert!(with(&[]).unwrap().answer(None).proposals[0].transforms.iter().all(|t| u8::from(t.kind) != 3));
}

#[test]
fn the_spi_must_fit_the_protocol() {
    for spi in [SaSpi::Ike(IkeSpi(0)), SaSpi::Child(Spi(0x1000)), SaSpi::Other(vec![1; 3])] {
        let proposal = Proposal { spi, ..ike(good_ike()) };
        assert_eq!(select_ike(vec![proposal]), Err(SuiteError::NoProposal { offered: 1 }));
    }
    let rekeying = Proposal { spi: SaSpi::Ike(IkeSpi(5)), ..ike(good_ike()) };
    assert_eq!(select_ike(vec![rekeying]).unwrap().spi, Some(IkeSpi(5)));
    for spi in [SaSpi::None, SaSpi::Child(Spi(0)), SaSpi::Child(Spi(255)), SaSpi::Ike(IkeSpi(5))] {
        let proposal = Proposal { spi, ..esp(good_esp()) };
        assert_eq!(select_esp(vec![proposal]), Err(SuiteError::NoProposal { offered: 1 }));
    }
    let lowest = Proposal { spi: SaSpi::Child(Spi(256)), ..esp(good_esp()) };
    assert_eq!(select_esp(vec![lowest]).unwrap().spi, Spi(256));
}

#[test]
fn other_protocols_are_passed_over() {
    let ah = Proposal { protocol: Protocol::Ah, ..esp(good_esp()) };
    let unknown = Proposal { protocol: Protocol::Unknown(4), ..esp(good_esp()) };
    assert!(select_esp(vec![ah.clone(), unknown.clone()]).is_err());
    let good = Proposal { number: 3, ..esp(good_esp()) };
    let choice = select_esp(vec![ah, unknown, good]).unwrap();
    assert_eq!(choice.answer(Spi(0x2000)).proposals[0].number, 3);
}

#[test]
fn esn_is_chosen_in_our_order() {
    let offered = || SaPayload { proposals: vec![esp(vec![gcm(128), transform(5, 0), transform(5, 1)])] };
    let choose = |esn: &[bool]| {
        let ours = testudo_ike::config::EspProposal { esn: esn.to_vec(), ..esp_all() };
        select::esp(&offered(), &[ours], ChildExchange::IkeAuth).map(|choice| choice.suite.esn)
    };
    assert_eq!(choose(&[true, false]), Ok(true));
    assert_eq!(choose(&[false, true]), Ok(false));
    assert_eq!(choose(&[false]), Ok(false));
    let only_esn = SaPayload { proposals: vec![esp(vec![gcm(256), transform(5, 1)])] };
    assert!(select::esp(&only_esn, &[esp_large()], ChildExchange::IkeAuth).is_err());
}

#[test]
fn a_key_exchange_offered_in_ike_auth_is_passed_over() {
    let mut transforms = good_esp();
    transforms.insert(1, transform(4, 14));
    let choice = select_esp(vec![esp(transforms)]).unwrap();
    assert_eq!(choice.suite.ke, None);
    assert_eq!(choice.answer(Spi(0x2000)).proposals[0].transforms, good_esp());
}

#[test]
fn a_key_exchange_in_create_child_sa_is_as_configured() {
    let choose = |ke: &[u16], ours| {
        let mut transforms = vec![gcm(256)];
        transforms.extend(ke.iter().map(|id| transform(4, *id)));
        transforms.push(transform(5, 0));
        let offered = SaPayload { proposals: vec![esp(transforms)] };
        let choice = select::esp(&offered, &[ours], ChildExchange::CreateChildSa)?;
        assert_eq!(choice.suite.algorithm, EspAlgorithm::Aes256Gcm16);
        let answered = choice.answer(Spi(0x2000)).proposals[0]
            .transforms
            .iter()
            .filter(|transform| u8::from(transform.kind) == 4)
            .map(|transform| transform.id.0)
            .collect::<Vec<_>>();
        Ok((choice.suite.ke, answered))
    };
    let none = Err(SuiteError::NoProposal { offered: 1 });
    // We want one.
    assert_eq!(choose(&[19, 31], esp_all()), Ok((Some(KeyExchange::X25519), vec![31])));
    assert_eq!(choose(&[0, 31], esp_all()), Ok((Some(KeyExchange::X25519), vec![31])));
    assert_eq!(choose(&[19], esp_all()), none);
    assert_eq!(choose(&[], esp_all()), none);
    // We want none.
    assert_eq!(choose(&[], esp_large()), Ok((None, vec![])));
    assert_eq!(choose(&[31, 0], esp_large()), Ok((None, vec![0])));
    assert_eq!(choose(&[31], esp_large()), none);
}

#[test]
fn nothing_comes_of_nothing() {
    assert_eq!(select_ike(vec![]), Err(SuiteError::NoProposal { offered: 0 }));
    assert_eq!(select_ike(vec![ike(vec![])]), Err(SuiteError::NoProposal { offered: 1 }));
    let offered = SaPayload { proposals: vec![ike(good_ike())] };
    assert_eq!(select::ike(&offered, &[]), Err(SuiteError::NoProposal { offered: 1 }));
}
