//! Two ends with any configurations: they agree on the same algorithms exactly where they have some
//! in common.

use proptest::prelude::*;
use proptest::sample::subsequence;
use testudo_base::spi::Spi;
use testudo_ike::config::{
    EspEncryption, EspProposal, IkeEncryption, IkeProposal, Integrity, KeyExchange, Prf,
};
use testudo_ike::suite::offer::ChildExchange;
use testudo_ike::suite::{accept, offer, select};
use testudo_ipsec::sa::{AesKey, CcmAlgorithm, Cipher, EspAlgorithm, IcvLen, Mac, SeparateAlgorithm};

const AEADS: [EspEncryption; 6] = [
    EspEncryption::Aes128Gcm16,
    EspEncryption::Aes192Gcm16,
    EspEncryption::Aes256Gcm16,
    EspEncryption::ChaCha20Poly1305,
    EspEncryption::Ccm(CcmAlgorithm { key: AesKey::Aes128, icv: IcvLen::Eight }),
    EspEncryption::Ccm(CcmAlgorithm { key: AesKey::Aes256, icv: IcvLen::Sixteen }),
];
const INITIATOR: Spi = Spi(0x1000_0001);
const RESPONDER: Spi = Spi(0x2000_0002);

/// Some of these, in any order.
fn some<T: Clone + std::fmt::Debug + 'static>(
    all: &[T],
    least: usize,
) -> impl Strategy<Value = Vec<T>> + use<T> {
    subsequence(all.to_vec(), least..=all.len()).prop_shuffle()
}

fn ike() -> impl Strategy<Value = Vec<IkeProposal>> {
    let [aeads, others]: [Vec<_>; 2] =
        [true, false].map(|aead| IkeEncryption::ALL.into_iter().filter(|c| c.is_aead() == aead).collect());
    let integrity = [Integrity::HmacSha256, Integrity::HmacSha384, Integrity::HmacSha512];
    let ciphers = prop_oneof![
        some(&aeads, 1).prop_map(|encryption| (encryption, vec![])),
        (some(&others, 1), some(&integrity, 1)),
    ];
    let prf = some(&[Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512, Prf::AesXcbc], 1);
    // Not those of the additional exchanges: no method is used twice.
    let ke = some(&KeyExchange::ALL[..9], 1);
    let proposal = (ciphers, prf, ke, [additional(), additional(), additional()]).prop_map(
        |((encryption, integrity), prf, ke, [first, second, fifth])| {
            let additional = [first, second, vec![], vec![], fifth, vec![], vec![]];
            IkeProposal { encryption, integrity, prf, ke, additional }
        },
    );
    prop::collection::vec(proposal, 1..4)
}

type Additional = [Vec<Option<KeyExchange>>; 7];

/// Few methods, so that they are short.
fn additional() -> impl Strategy<Value = Vec<Option<KeyExchange>>> {
    some(&[None, Some(KeyExchange::MlKem512), Some(KeyExchange::MlKem768)], 0)
}

/// True if some method can be taken for each place, none of them twice (RFC 9370 §2.2.1).
fn agree_on_additional(a: &Additional, b: &Additional) -> bool {
    let choices = |place: usize| -> Vec<Option<KeyExchange>> {
        let [a, b] = [a, b].map(|proposal| match proposal[place].as_slice() {
            [] => vec![None],
            methods => methods.to_vec(),
        });
        a.into_iter().filter(|method| b.contains(method)).collect()
    };
    let mut combinations = vec![vec![]];
    for place in 0..7 {
        let longer = |taken: &Vec<Option<KeyExchange>>, method| [taken.clone(), vec![method]].concat();
        combinations = combinations
            .iter()
            .flat_map(|taken| choices(place).into_iter().map(move |method| longer(taken, method)))
            .collect();
    }
    let distinct = |taken: &Vec<Option<KeyExchange>>| {
        let methods: Vec<_> = taken.iter().flatten().collect();
        (1..methods.len()).all(|at| !methods[..at].contains(&methods[at]))
    };
    combinations.iter().any(distinct)
}

fn esp() -> impl Strategy<Value = Vec<EspProposal>> {
    let aeads = some(&AEADS, 1);
    let separate = some(&Cipher::ALL.map(EspEncryption::Separate), 1);
    let encryption = prop_oneof![aeads.prop_map(|aeads| (aeads, vec![])), (separate, some(&Mac::ALL, 1))];
    let ke = some(&KeyExchange::ALL[..9], 0);
    let proposal = (encryption, ke, [additional(), additional()], some(&[true, false], 1)).prop_map(
        |((encryption, integrity), ke, [first, third], esn)| {
            let additional = [first, vec![], third, vec![], vec![], vec![], vec![]];
            EspProposal { encryption, integrity, ke, additional, esn }
        },
    );
    prop::collection::vec(proposal, 1..4)
}

fn shard<T: PartialEq>(a: &[T], b: &[T]) -> bool {
    a.iter().any(|one| b.contains(one))
}

/// True if any proposal of one goes with any proposal of the other.
fn pair<T>(a: &[T], b: &[T], fit: impl Fn(&T, &T) -> bool) -> bool {
    a.iter().any(|one| b.iter().any(|other| fit(one, other)))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1024) })]

    #[test]
    fn on_an_ike_sa(initiator in ike(), responder in ike()) {
        let common = pair(&initiator, &responder, |a, b| {
            let integrity = a.integrity.is_empty() || shard(&a.integrity, &b.integrity);
            integrity
                && shard(&a.encryption, &b.encryption)
                && shard(&a.prf, &b.prf)
                && shard(&a.ke, &b.ke)
                && agree_on_additional(&a.additional, &b.additional)
        });
        let offer = offer::ike(&initiator, None);
        let choice = select::ike(&offer, &responder);
        prop_assert_eq!(choice.is_ok(), common);
        if let Ok(choice) = choice {
            let accepted = accept::ike(&offer, &initiator, &choice.answer(None));
            prop_assert_eq!(accepted, Ok((choice.suite, None)));
            prop_assert_eq!(choice.suite.integrity.is_none(), choice.suite.encryption.is_aead());
        }
    }

    #[test]
    fn on_a_child_sa(initiator in esp(), responder in esp(), own_exchange in any::<bool>()) {
        let exchange = if own_exchange { ChildExchange::CreateChildSa } else { ChildExchange::IkeAuth };
        let common = pair(&initiator, &responder, |a, b| {
            let none = a.ke.is_empty() && b.ke.is_empty();
            // Without the first exchange there is none that could be added.
            let additional = if none {
                [a, b].iter().all(|p| p.additional.iter().all(|list| list.is_empty() || list.contains(&None)))
            } else {
                agree_on_additional(&a.additional, &b.additional)
            };
            let integrity = a.integrity.is_empty() || shard(&a.integrity, &b.integrity);
            integrity
                && shard(&a.encryption, &b.encryption)
                && shard(&a.esn, &b.esn)
                && (!own_exchange || (none || shard(&a.ke, &b.ke)) && additional)
        });
        let offer = offer::esp(&initiator, INITIATOR, exchange);
        let choice = select::esp(&offer, &responder, exchange);
        prop_assert_eq!(choice.is_ok(), common);
        if let Ok(choice) = choice {
            prop_assert_eq!(choice.spi, INITIATOR);
            let accepted = accept::esp(&offer, &initiator, &choice.answer(RESPONDER));
            prop_assert_eq!(accepted, Ok((choice.suite, RESPONDER)));
            let shards = |own: &EspProposal| match choice.suite.algorithm {
                EspAlgorithm::Separate(SeparateAlgorithm { cipher, mac }) => {
                    own.encryption.contains(&EspEncryption::Separate(cipher)) && own.integrity.contains(&mac)
                }
                _ => own.integrity.is_empty(),
            };
            prop_assert!(initiator.iter().any(shards) && responder.iter().any(shards));
        }
    }
}
