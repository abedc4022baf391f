//! Prefixes that stay shut although no connection wants them held back, and sources whose packets
//! are dropped for a time.

use super::DataPath;
use super::inherited::{LetGo, Origin};
use crate::clock::time_of_day;
use crate::error::Result;
use crate::policies::Abandoned;
use crate::prefix_map::PrefixMap;
use std::net::IpAddr;
use std::time::Duration;
use testudo_base::prefix::Prefix;
use testudo_fastpath::filter::PrefixUse;
use testudo_vici::shut::Cause;

/// Our own sides that stay held back beside tunnels for everything, before some were let go.
pub(crate) struct OwnSides(PrefixMap<Origin>);

impl DataPath {
    /// Keeps prefixes shut that no connection wants held back any more, until another one claims
    /// them, or an operator lets them go. A connection that is unloaded by mistake must not open
    /// them.
    pub(crate) fn keep_shut(&mut self, abandoned: &Abandoned, cause: Cause) {
        for prefix in &abandoned.local {
            let everything = if prefix.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            tracing::warn!(
                "{prefix} is our side of no tunnel for everything any more: what comes in clear to this host's addresses in it \
                 stays held back until a connection has it on our side again, or until `testudo release {prefix}` beside \
                 another tunnel for everything, and `testudo release {everything}` without one"
            );
        }
        for prefix in &abandoned.remote {
            tracing::warn!(
                "{prefix} is protected by no connection any more: it stays shut until one protects it again, or lets it \
                 pass (mode = pass), or until `testudo release {prefix}`"
            );
        }
        self.guard.keep(abandoned, &Origin { since: time_of_day(), cause });
    }

    /// Drops packets from a source until a time of CLOCK_BOOTTIME.
    pub(crate) fn drop_source(&mut self, source: IpAddr, until: Duration) -> Result<()> {
        self.guard.drop_source(source, until)
    }

    /// Lets packets from a source in again.
    pub(crate) fn accept_source(&mut self, source: IpAddr) -> Result<()> {
        self.guard.accept_source(source)
    }

    /// The prefixes that stay shut, behind this one, with how each is used, and why it is shut.
    pub(crate) fn shut(
        &self,
        behind: Option<Prefix>,
    ) -> impl Iterator<Item = (&Prefix, &PrefixUse, &Origin)> {
        self.guard.barrier().shut(behind)
    }

    /// Our own sides, behind this prefix, that stay held back beside tunnels for everything, with
    /// how each is used beside that, and why it is held back.
    pub(crate) fn own_sides(
        &self,
        behind: Option<Prefix>,
    ) -> impl Iterator<Item = (&Prefix, PrefixUse, &Origin)> {
        self.guard.barrier().own_sides(behind)
    }

    /// True if a prefix stays shut.
    pub(crate) fn is_shut(&self, prefix: &Prefix) -> bool {
        self.guard.barrier().is_shut(prefix)
    }

    /// The widest prefix around this one that stays shut, and opens for nothing inside it.
    pub(crate) fn shut_around(&self, prefix: &Prefix) -> Option<Prefix> {
        self.guard.barrier().shut_around(prefix)
    }

    /// How many prefixes inside this one are held back whether or not it is.
    pub(crate) fn shut_inside(&self, prefix: &Prefix) -> usize {
        self.guard.barrier().shut_inside(prefix)
    }

    /// True if this prefix was our side of tunnels for everything, so that our own addresses in it
    /// stay held back beside others, and if nothing else holds it back.
    pub(crate) fn is_own_side_shut(&self, prefix: &Prefix) -> bool {
        self.guard.barrier().is_own_side_shut(prefix)
    }

    /// True if a tunnel for everything has all of this prefix on our side.
    pub(crate) fn is_selected(&self, prefix: &Prefix) -> bool {
        self.guard.barrier().is_selected(prefix)
    }

    /// Lets our own addresses in a prefix go. They open with the policies that are applied next.
    /// `None`: they do not stay held back.
    pub(crate) fn let_own_side_go(&mut self, prefix: &Prefix) -> Option<OwnSides> {
        self.guard.let_own_side_go(prefix).map(OwnSides)
    }

    /// Takes back what was let go and has not opened.
    pub(crate) fn take_own_side_back(&mut self, OwnSides(before): OwnSides) {
        self.guard.take_own_side_back(before);
    }

    /// Lets a prefix go that stays shut. It opens with the policies that are applied next. `None`:
    /// it does not stay shut.
    pub(crate) fn let_go(&mut self, prefix: &Prefix) -> Option<LetGo> {
        self.guard.let_go(prefix)
    }

    /// Takes back what was let go and has not opened.
    pub(crate) fn take_back(&mut self, gone: LetGo) {
        self.guard.take_back(gone);
    }
}
