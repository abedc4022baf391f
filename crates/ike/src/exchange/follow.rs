//! Following a peer behind a NAT: our messages and ESP go where its own come from (RFC 7296 §2.23).

use crate::environment::report::ORDINARY;
use crate::exchange::child;
use crate::exchange::session::Session;
use crate::output::Path;
use crate::suite::Role;

impl Session<'_> {
    /// Follows a peer behind a NAT to the source of its authentic messages. Not if we are behind
    /// one ourselves and began: then an attacker on the way could lead us anywhere by changing
    /// addresses (RFC 7296 §2.23), and a peer that was found behind its NAT has a fixed address
    /// there. Nor to an address that its connection does not allow.
    pub(crate) fn follow(&mut self, path: Path) {
        let fixed = !self.sa.nat.local || self.sa.role == Role::Responder;
        if self.sa.is_established()
            && self.sa.nat.remote
            && fixed
            && path != self.sa.path
            && self.env.loaded.takes_at(self.sa, path)
        {
            let (from, to) = (self.sa.path.remote, path.remote);
            self.sa.move_to(path);
            self.log(ORDINARY, format!("the peer moved from {from} to {to}"));
            child::move_all(self);
        }
    }
}
