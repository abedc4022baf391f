//! Child SAs with the same selectors, one for each resource (RFC 9611). Here a resource is a worker
//! of the data plane.

use serde::{Deserialize, Serialize};
use testudo_base::spi::Spi;

/// The part of a Child SA in a group with the same selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    /// For all workers without a Child SA of their own: the fallback SA.
    Fallback,
    /// For the worker with this number, beside the fallback SA.
    Worker(u16),
}

impl Part {
    /// The worker of an additional Child SA.
    fn worker(self) -> Option<u16> {
        match self {
            Self::Worker(worker) => Some(worker),
            Self::Fallback => None,
        }
    }
}

/// The Child SAs of an IKE SA that belong to such groups, also those that are being made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resources(Option<Box<Members>>);

/// Boxed, because few IKE SAs have any, and there are very many IKE SAs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Members(Vec<Member>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Member {
    /// The SPI that we chose.
    spi_in: Spi,
    /// `children.<name>`.
    child: String,
    part: Part,
}

impl Resources {
    fn members(&self) -> &[Member] {
        self.0.as_deref().map_or(&[], |members| &members.0)
    }

    fn retain(&mut self, keep: impl Fn(&Member) -> bool) {
        if let Some(members) = &mut self.0 {
            members.0.retain(keep);
        }
        self.0.take_if(|members| members.0.is_empty());
    }

    /// The part of the Child SA with this SPI. `None`: it belongs to no group.
    pub(crate) fn part(&self, spi_in: Spi) -> Option<Part> {
        self.members().iter().find(|member| member.spi_in == spi_in).map(|member| member.part)
    }

    /// The worker of an additional Child SA.
    pub(crate) fn worker(&self, spi_in: Spi) -> Option<u16> {
        self.part(spi_in)?.worker()
    }

    /// Gives the Child SA with this SPI a part.
    pub(crate) fn set(&mut self, spi_in: Spi, child: &str, part: Part) {
        self.forget(spi_in);
        let member = Member { spi_in, child: child.to_owned(), part };
        self.0.get_or_insert_default().0.push(member);
    }

    /// A renewed Child SA stays with its resource, whether the notify comes again or not (RFC 9611
    /// §3).
    pub(crate) fn pass_on(&mut self, old: Spi, new: Spi) {
        if let Some(member) = self.members().iter().find(|member| member.spi_in == old).cloned() {
            self.set(new, &member.child, member.part);
        }
    }

    /// The Child SA with this SPI is gone, or was not made.
    pub(crate) fn forget(&mut self, spi_in: Spi) {
        self.retain(|member| member.spi_in != spi_in);
    }

    /// Forgets all Child SAs that do not exist.
    pub(crate) fn keep(&mut self, exists: impl Fn(Spi) -> bool) {
        self.retain(|member| exists(member.spi_in));
    }

    /// Takes the members of an IKE SA that was renewed.
    pub(crate) fn append(&mut self, old: Self) {
        if let Some(old) = old.0 {
            self.0.get_or_insert_default().0.extend(old.0);
        }
    }

    /// The SPIs of the fallback SAs of this name.
    pub(crate) fn fallbacks<'a>(&'a self, child: &'a str) -> impl Iterator<Item = Spi> + 'a {
        let is_one = move |member: &&Member| member.part == Part::Fallback && member.child == child;
        self.members().iter().filter(is_one).map(|member| member.spi_in)
    }

    /// The number of additional Child SAs of this name.
    pub(crate) fn additional(&self, child: &str) -> usize {
        self.workers(child).count()
    }

    /// The first worker below `workers` with the fewest Child SAs of this name (RFC 9611 §4), and
    /// how many it has.
    pub(crate) fn least_used(&self, child: &str, workers: u16) -> Option<(u16, usize)> {
        let used = |worker: u16| self.workers(child).filter(|used| *used == worker).count();
        (0..workers).map(|worker| (worker, used(worker))).min_by_key(|(_, used)| *used)
    }

    fn workers(&self, child: &str) -> impl Iterator<Item = u16> {
        let of_child = self.members().iter().filter(move |member| member.child == child);
        of_child.filter_map(|member| member.part.worker())
    }
}

#[cfg(test)]
mod tests;
