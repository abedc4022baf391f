//! A peer behind a NAT moves: where its messages and its ESP come from is where ours go (RFC 7296
//! §2.23).

use crate::environment::report::ORDINARY;
use crate::exchange::child;
use crate::exchange::session::Session;
use crate::output::Path;
use crate::suite::Role;

impl Session<'_> {
    /// Follows a peer behind a NAT to where its authentic messages come from. Not if we are behind
    /// one ourselves and began: then an attacker on the way could lead us anywhere by changing
    /// addresses (RFC 7296 §2.23). Who is behind a NAT and was found all the same has an address
    /// there that does not change. Nor to where its connection takes no peer.
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
