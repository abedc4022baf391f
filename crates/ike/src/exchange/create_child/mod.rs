//! CREATE_CHILD_SA (RFC 7296 §1.3): further Child SAs, and new keys for those that are there and for the IKE SA. With
//! additional key exchanges it is the first of a series, and the others are IKE_FOLLOWUP_KE (RFC 9370 §2.2.4).
//!
//! Both sides may begin, also both at once. What each does then is §2.8.1 and §2.8.2 (who wins) and §2.25 (what is refused
//! meanwhile); the tests in `tests/it/scenarios` carry the names of the cases.

mod agreement;
mod anew;
mod followup;
mod ike;
mod initiator;
mod keys;
mod replace;
mod responder;

use crate::endpoint::EndpointConfig;
use crate::endpoint::report::FAILURE;
use crate::exchange::child::NoChild;
use crate::exchange::create_child::agreement::{Exchanged, KeyedAnswer};
use crate::exchange::send::Request;
use crate::exchange::session::Session;
use crate::message::{ExchangeType, Payload, Payloads, Protocol};
use crate::output::Reason;
use crate::sa::{WantedIke, What};

impl Session<'_> {
    /// A request of the peer whose key exchange, if it has one, is computed.
    fn judge_creation(
        &mut self,
        request: &Request,
        payloads: &Payloads,
        exchanged: Option<Exchanged>,
    ) -> Result<(), Reason> {
        let judged = match request.exchange {
            ExchangeType::IkeFollowupKe => self.answer_followup(payloads, exchanged),
            _ => self.answer_child_request(payloads, exchanged),
        };
        self.answer_creation(request, judged)
    }

    fn answer_creation(
        &mut self,
        request: &Request,
        judged: Result<Vec<Payload>, NoChild>,
    ) -> Result<(), Reason> {
        let answer = judged.unwrap_or_else(|NoChild(notify, why)| {
            self.env.effects.stats.failed += 1;
            self.log(FAILURE, format!("no CHILD_SA: {why}; refused with {}", notify.kind));
            vec![Payload::Notify(notify)]
        });
        self.respond(request, answer)
    }

    /// Counts what a peer asks for. An SA that is gone still keeps its SPI from others for minutes, and a renewed IKE SA its
    /// memory until the peer deletes it: nobody may live from that faster than it is let go. A peer with all its tunnels is
    /// through at once.
    fn takes_too_many(&mut self) -> bool {
        let EndpointConfig { creation_burst, creation_pace, .. } = self.env.config;
        let due = self.sa.creations_until.max(self.now);
        let too_many = due.since(self.now) >= creation_pace.saturating_mul(creation_burst);
        if !too_many {
            self.sa.creations_until = due.plus(creation_pace);
        }
        too_many
    }

    /// The answer to our request, once its key exchange is computed.
    fn judge_answer(&mut self, answer: KeyedAnswer<'_>) -> Result<(), Reason> {
        if let Some(creating) = self.sa.creating.take() {
            match creating.what.clone() {
                What::Child { name, spi_in, replaces, tries, series } => {
                    let anew = creating.anew;
                    let asked = initiator::Asked { name, spi_in, replaces, tries, anew };
                    match series {
                        None => self.child_response(*creating, &asked, answer)?,
                        Some(series) => {
                            self.child_followup_response(*creating, &asked, series, answer)?;
                        }
                    }
                }
                What::Ike(WantedIke { spi, series: None }) => {
                    self.ike_response(*creating, spi, answer)?;
                }
                What::Ike(WantedIke { spi, series: Some(series) }) => {
                    self.ike_followup_response(*creating, spi, series, answer)?;
                }
            }
        }
        self.next_task()
    }
}

/// True if the offer is for an IKE SA.
fn offers_ike(payloads: &Payloads) -> bool {
    let first = payloads.sa().and_then(|sa| sa.proposals.first());
    first.is_some_and(|proposal| proposal.protocol == Protocol::Ike)
}
