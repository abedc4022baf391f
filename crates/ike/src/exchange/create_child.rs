//! CREATE_CHILD_SA (RFC 7296 §1.3): each IKE SA has the one child of its IKE_AUTH, and the peer is told so.

use crate::endpoint::Endpoint;
use crate::endpoint::report::ORDINARY;
use crate::endpoint::send::Request;
use crate::message::{Notify, NotifyType, Payload};
use crate::output::{Reason, Time};
use crate::sa::IkeSa;

impl Endpoint {
    /// Refuses another child, or a rekeying, the way of an implementation that has only one (RFC 7296 §4).
    pub(crate) fn create_child_request(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
    ) -> Result<(), Reason> {
        self.log(sa, ORDINARY, "the peer wants another SA or new keys: refused with NO_ADDITIONAL_SAS");
        let notify = Notify::new(NotifyType::NoAdditionalSas, Vec::new());
        self.respond(now, sa, request, vec![Payload::Notify(notify)])?;
        Ok(())
    }
}
