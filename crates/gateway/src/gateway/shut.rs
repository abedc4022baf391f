//! Prefixes that stay shut although no connection asks for it: their list, and the release of one.

use super::Gateway;
use crate::datapath::DataPath;
use crate::error::{Error, Result};
use crate::prefix::exact;
use std::collections::BTreeSet;
use testudo_base::prefix::Prefix;
use testudo_fastpath::filter::PrefixUse;
use testudo_ike::output::{ChildSaId, LogLevel};
use testudo_ipsec::selector::AddrRange;
use testudo_vici::shut::{ClearFrom, MAX_PREFIXES_PER_PAGE, Release, Released, ShutPage, ShutPrefix};

/// Connections that an answer names: all of them may protect the same prefix.
const MAX_NAMED_CONNECTIONS: usize = 4;

impl Gateway {
    /// The first page of the shut prefixes behind a range, our own sides among them.
    pub(crate) fn shut_page(&self, behind: Option<AddrRange>) -> ShutPage {
        let behind = behind.and_then(|range| exact(&range));
        let enough = MAX_PREFIXES_PER_PAGE + 1;
        let shut = self.data.shut(behind).map(|(prefix, usage, origin)| (*prefix, false, *usage, origin));
        let own = self.data.own_sides(behind).map(|(prefix, usage, origin)| (*prefix, true, usage, origin));
        let mut listed: Vec<_> = shut.take(enough).chain(own.take(enough)).collect();
        listed.sort_by_key(|(prefix, ..)| *prefix);
        let more = listed.len() > MAX_PREFIXES_PER_PAGE;
        listed.truncate(MAX_PREFIXES_PER_PAGE);
        let rows = listed.into_iter().map(|(prefix, own_side, usage, origin)| ShutPrefix {
            prefix: prefix.to_string(),
            own_side,
            cause: origin.cause.clone(),
            since: origin.since.to_string(),
            from: clear_from(&usage),
            protected_by: self.protectors(&prefix, own_side),
        });
        ShutPage { clustered: self.node.is_some(), more, prefixes: rows.collect() }
    }

    /// Lets the clear traffic of a prefix pass that stays shut, and nothing else. This holds for
    /// this node alone: each node of a cluster has shut prefixes of its own.
    pub(crate) fn release_prefix(&mut self, request: &Release) -> Result<Released> {
        let (first, last) = (request.prefix.start(), request.prefix.end());
        let prefix = exact(&request.prefix).ok_or(Error::NoPrefix { first, last })?;
        self.may_be_released(&prefix)?;
        let inside = self.data.shut_inside(&prefix) as u64;
        if !request.check {
            self.open(prefix, request.by.as_deref())?;
        }
        Ok(Released { clustered: self.node.is_some(), inside })
    }

    fn may_be_released(&self, prefix: &Prefix) -> Result<()> {
        if self.data.is_own_side_shut(prefix) {
            return match self.data.is_selected(prefix) {
                true => Err(Error::Selected(*prefix)),
                false => Ok(()),
            };
        }
        let mut protectors = self.connections_holding(prefix);
        protectors.extend(self.policies.sa_holding(prefix).map(|child| self.described(child)));
        if !protectors.is_empty() {
            return Err(Error::Protected { prefix: *prefix, protectors });
        }
        let around = self.data.shut_around(prefix);
        match (self.data.is_shut(prefix), around) {
            (true, None) => Ok(()),
            (_, Some(around)) => Err(Error::Enclosed { prefix: *prefix, around }),
            (false, None) => Err(Error::NotShut(*prefix)),
        }
    }

    fn open(&mut self, prefix: Prefix, by: Option<&str>) -> Result<()> {
        if self.data.is_own_side_shut(&prefix) {
            return self.open_own_side(prefix, by);
        }
        let Some(gone) = self.data.let_go(&prefix) else { return Err(Error::NoLongerShut(prefix)) };
        let line = format!(
            "{prefix} is released: its clear traffic passes from now on, as {} has asked for. It had been shut since {}: {}",
            asker(by),
            gone.origin.since,
            gone.origin.cause
        );
        self.open_what_was_let_go(prefix, line, |data| data.take_back(gone))
    }

    /// Opens the addresses of this host in a prefix that a former tunnel for everything had on our
    /// side, beside another such tunnel.
    fn open_own_side(&mut self, prefix: Prefix, by: Option<&str>) -> Result<()> {
        let Some(before) = self.data.let_own_side_go(&prefix) else {
            return Err(Error::NoLongerShut(prefix));
        };
        let line = format!(
            "{prefix} is released: what comes in clear to this host's addresses in it passes from now on, as {} has asked for",
            asker(by)
        );
        self.open_what_was_let_go(prefix, line, |data| data.take_own_side_back(before))
    }

    /// Applies the policies without what was let go, and logs that. `take_back` undoes it if they
    /// cannot be applied.
    fn open_what_was_let_go(
        &mut self,
        prefix: Prefix,
        line: String,
        take_back: impl FnOnce(&mut DataPath),
    ) -> Result<()> {
        self.protection_changed = true;
        let opened = self.apply_policies();
        match &opened {
            Ok(()) => self.log(None, None, LogLevel::Warning, line),
            Err(_) => {
                take_back(&mut self.data);
                self.protection_changed = true;
            }
        }
        self.settle();
        opened.map_err(|error| Error::NotOpened { prefix, source: Box::new(error) })
    }

    /// The connections and SAs because of which a prefix that is shut cannot be released: those that
    /// protect all of it. The tunnels for everything beside which our own side stays held back do
    /// not count for that, unless they have it on our side.
    fn protectors(&self, prefix: &Prefix, own_side: bool) -> Vec<String> {
        if own_side && self.data.is_own_side_shut(prefix) {
            let selected = self.data.is_selected(prefix);
            return selected.then(|| "a Child SA for everything".to_owned()).into_iter().collect();
        }
        let mut protectors = self.connections_holding(prefix);
        protectors.extend(self.policies.is_held_by_sas(prefix).then(|| "a Child SA".to_owned()));
        protectors
    }

    fn connections_holding(&self, prefix: &Prefix) -> Vec<String> {
        let names: BTreeSet<&str> =
            self.policies.connections_holding(prefix).take(MAX_NAMED_CONNECTIONS).collect();
        names.into_iter().map(|name| format!("connection {name}")).collect()
    }

    fn described(&self, child: ChildSaId) -> String {
        let ike = self.endpoint.ike_of(child).and_then(|ike| self.endpoint.names_of(ike));
        match ike.as_ref().and_then(|names| names.connection()) {
            Some(name) => format!("a Child SA of connection {name}"),
            None => "a Child SA of another node".to_owned(),
        }
    }
}

/// Who has asked for a release, for the log.
pub(super) fn asker(by: Option<&str>) -> String {
    by.map_or_else(|| "an operator".to_owned(), |user| format!("user {user}"))
}

fn clear_from(usage: &PrefixUse) -> ClearFrom {
    match (usage.judge_from, usage.refuse_from) {
        (true, _) => ClearFrom::Judged,
        (false, true) => ClearFrom::Dropped,
        (false, false) => ClearFrom::Passed,
    }
}
