//! Two ends with any configurations: they agree on the same algorithms exactly where they have some in common.

use proptest::prelude::*;
use proptest::sample::subsequence;
use testudo_ike::config::{EspProposal, IkeEncryption, IkeProposal, KeyExchange, Prf};
use testudo_ike::suite::offer::ChildExchange;
use testudo_ike::suite::{accept, offer, select};
use testudo_ipsec::sa::EspAlgorithm;
use testudo_ipsec::spi::Spi;

const INITIATOR: Spi = Spi(0x1000_0001);
const RESPONDER: Spi = Spi(0x2000_0002);

/// Some of these, in any order.
fn some<T: Clone + std::fmt::Debug + 'static>(
    all: &[T],
    least: usize,
) -> impl Strategy<Value = Vec<T>> + use<T> {
    subsequence(all.to_vec(), least..=all.len()).prop_shuffle()
}

fn ke(least: usize) -> impl Strategy<Value = Vec<KeyExchange>> {
    some(&[KeyExchange::X25519, KeyExchange::Ecp256], least)
}

fn ike() -> impl Strategy<Value = Vec<IkeProposal>> {
    let encryption = some(&[IkeEncryption::Aes128Gcm16, IkeEncryption::Aes256Gcm16], 1);
    let proposal = (encryption, some(&[Prf::HmacSha256, Prf::HmacSha384], 1), ke(1))
        .prop_map(|(encryption, prf, ke)| IkeProposal { encryption, prf, ke });
    prop::collection::vec(proposal, 1..4)
}

fn esp() -> impl Strategy<Value = Vec<EspProposal>> {
    let encryption = some(&[EspAlgorithm::Aes128Gcm16, EspAlgorithm::Aes256Gcm16], 1);
    let proposal = (encryption, ke(0), some(&[true, false], 1))
        .prop_map(|(encryption, ke, esn)| EspProposal { encryption, ke, esn });
    prop::collection::vec(proposal, 1..4)
}

fn share<T: PartialEq>(a: &[T], b: &[T]) -> bool {
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
            share(&a.encryption, &b.encryption) && share(&a.prf, &b.prf) && share(&a.ke, &b.ke)
        });
        let offer = offer::ike(&initiator, None);
        let choice = select::ike(&offer, &responder);
        prop_assert_eq!(choice.is_ok(), common);
        if let Ok(choice) = choice {
            let accepted = accept::ike(&offer, &initiator, &choice.answer(None));
            prop_assert_eq!(accepted, Ok((choice.suite, None)));
        }
    }

    #[test]
    fn on_a_child_sa(initiator in esp(), responder in esp(), own_exchange in any::<bool>()) {
        let exchange = if own_exchange { ChildExchange::CreateChildSa } else { ChildExchange::IkeAuth };
        let common = pair(&initiator, &responder, |a, b| {
            let both_none = a.ke.is_empty() && b.ke.is_empty();
            share(&a.encryption, &b.encryption)
                && share(&a.esn, &b.esn)
                && (!own_exchange || both_none || share(&a.ke, &b.ke))
        });
        let offer = offer::esp(&initiator, INITIATOR, exchange);
        let choice = select::esp(&offer, &responder, exchange);
        prop_assert_eq!(choice.is_ok(), common);
        if let Ok(choice) = choice {
            prop_assert_eq!(choice.spi, INITIATOR);
            let accepted = accept::esp(&offer, &initiator, &choice.answer(RESPONDER));
            prop_assert_eq!(accepted, Ok((choice.suite, RESPONDER)));
        }
    }
}
