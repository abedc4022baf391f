//! Negotiation of additional key exchanges (RFC 9370 §2.2.1).

use testudo_base::spi::Spi;
use testudo_ike::config::KeyExchange::{self, Ecp256, MlKem512, MlKem768, MlKem1024, X25519};
use testudo_ike::config::{EspEncryption, EspProposal, IkeEncryption, IkeProposal, Prf};
use testudo_ike::message::{IkeSpi, SaPayload, Transform, TransformId, TransformType};
use testudo_ike::suite::offer::ChildExchange;
use testudo_ike::suite::{SuiteError, accept, offer, select, without_additional};

/// `aes256gcm16-prfsha384-ecp256`.
fn plain() -> IkeProposal {
    IkeProposal {
        encryption: vec![IkeEncryption::Aes256Gcm16],
        prf: vec![Prf::HmacSha384],
        ke: vec![Ecp256],
        ..IkeProposal::default()
    }
}

type Methods<'a> = &'a [Option<KeyExchange>];

/// The same with these additional key exchanges, numbered from 1.
fn with(additional: &[(usize, Methods<'_>)]) -> IkeProposal {
    let mut proposal = plain();
    for (number, methods) in additional {
        proposal.additional[number - 1] = methods.to_vec();
    }
    proposal
}

/// The choice of a responder with `theirs` from an offer of `ours`, accepted by the initiator.
fn agreed(ours: &IkeProposal, theirs: &IkeProposal) -> Result<[Option<KeyExchange>; 7], SuiteError> {
    let [ours, theirs] = [ours, theirs].map(std::slice::from_ref);
    let offer = offer::ike(ours, None);
    let choice = select::ike(&offer, theirs)?;
    let (suite, _) = accept::ike(&offer, ours, &choice.answer(None)).expect("the initiator agrees");
    assert_eq!(suite, choice.suite);
    Ok(suite.additional)
}

fn additional(transforms: &[Transform]) -> Vec<(u8, u16)> {
    let of = |t: &Transform| (u8::from(t.kind), t.id.0);
    transforms.iter().map(of).filter(|(kind, _)| *kind >= 6).collect()
}

const NONE: SuiteError = SuiteError::NoProposal { offered: 1 };

#[test]
fn the_numbers_are_those_of_the_registry() {
    let ours = [with(&[(1, &[Some(MlKem512)]), (2, &[Some(MlKem768), None]), (7, &[Some(MlKem1024)])])];
    let offer = offer::ike(&ours, None);
    assert_eq!(additional(&offer.proposals[0].transforms), [(6, 35), (7, 36), (7, 0), (12, 37)]);
}

#[test]
fn the_example_of_the_rfc() {
    // PQ_KEM_1 to 3; the responder prefers the second and wants no third.
    let (one, two, three) = (Some(MlKem512), Some(MlKem768), Some(MlKem1024));
    let ours = [with(&[(2, &[one, two]), (3, &[one, two]), (5, &[three, None])])];
    let theirs = [with(&[(2, &[two, one]), (3, &[two, one])])];
    assert_eq!(agreed(&ours[0], &theirs[0]), Ok([None, two, one, None, None, None, None]));
    let choice = select::ike(&offer::ike(&ours, None), &theirs).unwrap();
    let answer = additional(&choice.answer(None).proposals[0].transforms);
    assert_eq!(answer, [(7, 36), (8, 35), (10, 0)], "one of each type that was offered");
}

#[test]
fn no_method_is_used_twice_and_a_later_place_may_need_an_earlier_ones_first_choice() {
    let both = with(&[(1, &[Some(MlKem512), Some(MlKem768)]), (2, &[Some(MlKem512)])]);
    let expected = [Some(MlKem768), Some(MlKem512), None, None, None, None, None];
    assert_eq!(agreed(&both, &both), Ok(expected));
    let same = with(&[(1, &[Some(MlKem768)]), (2, &[Some(MlKem768)])]);
    assert_eq!(agreed(&same, &same), Err(NONE));
    let like_the_first = with(&[(1, &[Some(Ecp256)])]);
    assert_eq!(agreed(&like_the_first, &like_the_first), Err(NONE));
}

#[test]
fn none_is_chosen_only_where_both_may_leave_it_out() {
    let wanted = with(&[(1, &[Some(MlKem768)])]);
    let optional = with(&[(1, &[Some(MlKem768), None])]);
    let plain = plain();
    let yes = Ok([Some(MlKem768), None, None, None, None, None, None]);
    for (ours, theirs, expected) in [
        (&wanted, &wanted, yes.clone()),
        (&wanted, &optional, yes.clone()),
        (&optional, &wanted, yes.clone()),
        (&optional, &optional, yes),
        (&optional, &plain, Ok([None; 7])),
        (&plain, &optional, Ok([None; 7])),
        (&plain, &plain, Ok([None; 7])),
        (&wanted, &plain, Err(NONE)),
        (&plain, &wanted, Err(NONE)),
    ] {
        assert_eq!(agreed(ours, theirs), expected, "{ours:?} {theirs:?}");
    }
}

#[test]
fn a_proposal_without_them_is_taken_where_they_are_not_understood() {
    let ours = [with(&[(1, &[Some(MlKem768)])]), plain()];
    let offered = offer::ike(&ours, None);
    let understood = without_additional(&offered);
    assert_eq!(understood.proposals, offered.proposals[1..]);
    let choice = select::ike(&understood, &ours).unwrap();
    assert_eq!(choice.suite.additional, [None; 7]);
    assert_eq!(choice.answer(None).proposals[0].number, 2);
}

#[test]
fn a_rekeyed_ike_sa_has_them_too() {
    let ours = [with(&[(1, &[Some(MlKem768)])])];
    let spi = Some(IkeSpi(7));
    let offer = offer::ike(&ours, spi);
    assert_eq!(additional(&offer.proposals[0].transforms), [(6, 36)]);
    let choice = select::ike(&offer, &ours).unwrap();
    assert_eq!(choice.suite.additional[0], Some(MlKem768));
    assert_eq!(accept::ike(&offer, &ours, &choice.answer(spi)), Ok((choice.suite, spi)));
}

/// `aes128gcm16-ecp256` with these additional key exchanges.
fn esp(ke: &[KeyExchange], methods: [Methods<'_>; 2]) -> EspProposal {
    let [first, second] = methods.map(<[_]>::to_vec);
    let mut proposal = EspProposal { encryption: vec![EspEncryption::Aes128Gcm16], ..EspProposal::default() };
    (proposal.ke, proposal.esn) = (ke.to_vec(), vec![false]);
    (proposal.additional[0], proposal.additional[1]) = (first, second);
    proposal
}

#[test]
fn a_child_sa_has_them_where_it_has_a_key_exchange_of_its_own() {
    let ours = [esp(&[Ecp256], [&[Some(MlKem768)], &[Some(MlKem512), None]])];
    let theirs = [esp(&[Ecp256], [&[Some(MlKem768)], &[]])];
    let offer = offer::esp(&ours, Spi(0x1000), ChildExchange::CreateChildSa);
    assert_eq!(additional(&offer.proposals[0].transforms), [(6, 36), (7, 35), (7, 0)]);
    let choice = select::esp(&offer, &theirs, ChildExchange::CreateChildSa).unwrap();
    assert_eq!(choice.suite.additional[..2], [Some(MlKem768), None]);
    let answer = choice.answer(Spi(0x2000));
    assert_eq!(additional(&answer.proposals[0].transforms), [(6, 36), (7, 0)]);
    assert_eq!(accept::esp(&offer, &ours, &answer), Ok((choice.suite, Spi(0x2000))));
    // RFC 9370 §2.2.4: along with transform type 4.
    let alone = [esp(&[], [&[Some(MlKem768)], &[]])];
    let offer = offer::esp(&alone, Spi(0x1000), ChildExchange::CreateChildSa);
    assert_eq!(select::esp(&offer, &alone, ChildExchange::CreateChildSa), Err(NONE));
    let mut answer = answer.clone();
    answer.proposals[0].transforms.retain(|t| u8::from(t.kind) != 4 && u8::from(t.kind) != 7);
    let why = "it names an additional key exchange and no first one";
    assert_eq!(accept::esp(&offer, &alone, &answer), Err(SuiteError::NotOffered(why)));
}

/// There is no KE payload in IKE_AUTH, so that neither means anything there.
#[test]
fn the_child_sa_of_ike_auth_has_none() {
    let ours = [esp(&[Ecp256], [&[Some(MlKem768)], &[]])];
    let offer = offer::esp(&ours, Spi(0x1000), ChildExchange::IkeAuth);
    assert_eq!(additional(&offer.proposals[0].transforms), []);
    let talkative = offer::esp(&ours, Spi(0x1000), ChildExchange::CreateChildSa);
    for offer in [offer, talkative] {
        let choice = select::esp(&offer, &ours, ChildExchange::IkeAuth).unwrap();
        assert_eq!((choice.suite.ke, choice.suite.additional), (None, [None; 7]));
        assert_eq!(additional(&choice.answer(Spi(0x2000)).proposals[0].transforms), []);
    }
}

/// Wrong answers of a dishonest or broken responder.
#[test]
fn an_initiator_takes_no_answer_that_it_did_not_offer() {
    let methods = [Some(MlKem512), Some(MlKem768)];
    let ours = [with(&[(1, &methods), (2, &methods), (3, &[Some(X25519), None])])];
    let offer = offer::ike(&ours, None);
    let honest = select::ike(&offer, &ours).unwrap().answer(None);
    let judged = |edit: &dyn Fn(&mut Vec<Transform>)| {
        let mut answer: SaPayload = honest.clone();
        edit(&mut answer.proposals[0].transforms);
        accept::ike(&offer, &ours, &answer).map(|(suite, _)| suite.additional)
    };
    let (first, second) = (TransformType::AdditionalKe1, TransformType::AdditionalKe2);
    let third = TransformType::AdditionalKe3;
    let place = |transforms: &[Transform], kind| transforms.iter().position(|t| t.kind == kind).unwrap();
    let set = |kind, id| {
        move |transforms: &mut Vec<Transform>| {
            let at = place(transforms, kind);
            transforms[at] = Transform::new(kind, TransformId(id));
        }
    };
    assert_eq!(judged(&|_| {}), Ok([Some(MlKem512), Some(MlKem768), Some(X25519), None, None, None, None]));
    let twice = SuiteError::NotOffered("it names one method for two key exchanges");
    assert_eq!(judged(&set(second, 35)), Err(twice));
    let strange = SuiteError::NotOffered("it holds a transform that was not offered");
    assert_eq!(judged(&set(first, 37)), Err(strange.clone()));
    assert_eq!(judged(&set(first, 0)), Err(strange));
    let left_out = SuiteError::NotOffered("it leaves out a transform type");
    assert_eq!(judged(&|transforms| transforms.retain(|t| t.kind != first)), Err(left_out));
    let without = Ok([Some(MlKem512), Some(MlKem768), None, None, None, None, None]);
    assert_eq!(judged(&set(third, 0)), without);
    // strongSwan leaves out what it chooses not to do.
    assert_eq!(judged(&|transforms| transforms.retain(|t| t.kind != third)), without);
    let idle = Transform::new(TransformType::AdditionalKe7, TransformId::NONE);
    assert!(judged(&|transforms| transforms.push(idle.clone())).is_ok(), "NONE of what was not offered");
}
