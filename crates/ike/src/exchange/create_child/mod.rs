//! CREATE_CHILD_SA (RFC 7296 §1.3): further Child SAs, and new keys for those that are there and for the IKE SA. With
//! additional key exchanges it is the first of a series, and the others are IKE_FOLLOWUP_KE (RFC 9370 §2.2.4).
//!
//! Both sides may begin, also both at once. What each does then is §2.8.1 and §2.8.2 (who wins) and §2.25 (what is refused
//! meanwhile); the tests in `tests/scenarios` carry the names of the cases.

mod followup;
mod ike;
mod initiator;
mod keys;
mod replace;
mod responder;

use super::child::NoChild;
use crate::endpoint::Endpoint;
use crate::endpoint::report::IMPORTANT;
use crate::endpoint::send::Request;
use crate::message::{ExchangeType, Payload, Payloads, Protocol};
use crate::output::{Reason, Time};
use crate::sa::{IkeSa, WantedIke, What};

impl Endpoint {
    /// A request of the peer, which may be the first of a series or one of the others.
    pub(crate) fn create_child_request(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        payloads: &Payloads,
    ) -> Result<(), Reason> {
        let judged = match request.exchange {
            ExchangeType::IkeFollowupKe => self.answer_followup(now, sa, payloads),
            _ => self.answer_child_request(now, sa, payloads),
        };
        let answer = judged.unwrap_or_else(|NoChild(notify, why)| {
            self.stats.failed += 1;
            self.log(sa, IMPORTANT, format!("no CHILD_SA: {why}; refused with {}", notify.kind));
            vec![Payload::Notify(notify)]
        });
        self.respond(now, sa, request, answer)
    }

    /// The answer to our request.
    pub(crate) fn create_child_response(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        payloads: &Payloads,
    ) -> Result<(), Reason> {
        if let Some(creating) = sa.creating.take() {
            match creating.what.clone() {
                What::Child { name, spi_in, replaces, tries, series } => {
                    let asked = initiator::Asked { name, spi_in, replaces, tries };
                    match series {
                        None => self.child_response(now, sa, *creating, &asked, payloads)?,
                        Some(series) => {
                            self.child_followup_response(now, sa, *creating, &asked, series, payloads)?;
                        }
                    }
                }
                What::Ike(WantedIke { spi, series: None }) => {
                    self.ike_response(now, sa, *creating, spi, payloads)?;
                }
                What::Ike(WantedIke { spi, series: Some(series) }) => {
                    self.ike_followup_response(now, sa, *creating, spi, series, payloads)?;
                }
            }
        }
        self.next_task(now, sa)
    }
}

/// True if the offer is for an IKE SA.
fn offers_ike(payloads: &Payloads) -> bool {
    let first = payloads.sa().and_then(|sa| sa.proposals.first());
    first.is_some_and(|proposal| proposal.protocol == Protocol::Ike)
}
