//! CREATE_CHILD_SA (RFC 7296 §1.3): further Child SAs, and new keys for those that are there and for the IKE SA.
//!
//! Both sides may begin, also both at once. What each does then is §2.8.1 and §2.8.2 (who wins) and §2.25 (what is refused
//! meanwhile); the tests in `tests/scenarios` carry the names of the cases.

mod ike;
mod initiator;
mod keys;
mod replace;
mod responder;

use super::child::NoChild;
use crate::endpoint::Endpoint;
use crate::endpoint::report::IMPORTANT;
use crate::endpoint::send::Request;
use crate::message::{Payload, Payloads, Protocol};
use crate::output::{Reason, Time};
use crate::sa::{IkeSa, What};

impl Endpoint {
    /// A request of the peer.
    pub(crate) fn create_child_request(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        payloads: &Payloads,
    ) -> Result<(), Reason> {
        let judged = self.answer_child_request(now, sa, payloads);
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
                What::Child { name, spi_in, replaces, tries } => {
                    let asked = initiator::Asked { name, spi_in, replaces, tries };
                    self.child_response(now, sa, *creating, &asked, payloads)?;
                }
                What::Ike(spi) => self.ike_response(now, sa, *creating, spi, payloads)?,
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
