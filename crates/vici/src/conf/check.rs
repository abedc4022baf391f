//! The faults that loading a configuration with swanctl would have.

use super::messages::Maker;
use super::parse::{self, Parsed};
use super::tree::{self, Section, Tree};
use super::{At, Files, Sources, directories};
use crate::message::{Element, Message};
use crate::overlap::SelectorIndex;
use crate::schema::{self, Policy, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use testudo_ike::config::Connection;
use testudo_ike::endpoint::Endpoint;

/// The sections that swanctl reads.
const LOADED: [&str; 4] = ["connections", "secrets", "pools", "authorities"];
/// Most faults reported for one connection, secret, pool or authority.
const MAX_FAULTS: usize = 100;

/// Options of a check.
pub struct Check<'a> {
    /// Access to files.
    pub files: &'a dyn Files,
    /// Which algorithms may be named.
    pub policy: Policy,
    /// Whether certificates and scripts that the configuration names are checked too.
    pub reads_files: bool,
}

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It would be refused, or not be read.
    Fault,
    /// It would be loaded, but may not be what the operator meant.
    Warning,
}

/// A fault or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its file.
    pub file: PathBuf,
    /// Its line; 0 for the whole file.
    pub line: u32,
    /// How serious it is.
    pub severity: Severity,
    /// What was found, and what was expected.
    pub text: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Sorted by file and line; files that the configuration does not name come last.
    pub findings: Vec<Finding>,
    /// Connections that would be loaded.
    pub connections: usize,
    /// Connections that would be refused.
    pub refused: usize,
    /// The names of both. swanctl unloads every loaded connection that has another name.
    pub named: Vec<String>,
    /// Children that would be initiated as soon as they are loaded.
    pub starts: usize,
    /// False if a part could not be read: swanctl would then unload what is missing.
    pub complete: bool,
    /// True if an include names a file that cannot be read: swanctl goes on without it.
    pub lacks_include: bool,
}

impl Report {
    /// True if there are no faults.
    pub fn loads(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Warning)
    }
}

impl Check<'_> {
    /// Checks a `swanctl.conf` and its includes. Nothing is applied.
    pub fn run(&self, path: &Path) -> Report {
        let Parsed { tree, sources, troubles } = parse::read(path, self.files);
        let mut run = Run {
            policy: self.policy,
            sources: &sources,
            maker: Maker {
                tree: &tree,
                files: self.files,
                directory: path.parent().unwrap_or(Path::new("")).to_owned(),
                reads_files: self.reads_files,
                places: BTreeMap::new(),
                left_out: BTreeSet::new(),
                faults: Vec::new(),
                passed_over: Vec::new(),
                decrypted: BTreeSet::new(),
            },
            twins: SelectorIndex::default(),
            report: Report {
                complete: !troubles.iter().any(|trouble| trouble.fatal),
                lacks_include: troubles.iter().any(|trouble| !trouble.fatal),
                ..Report::default()
            },
            findings: Vec::new(),
        };
        for trouble in troubles {
            let severity = if trouble.fatal { Severity::Fault } else { Severity::Warning };
            run.find(trouble.at, severity, trouble.text);
        }
        run.all(&tree);
        run.finish()
    }
}

struct Run<'a> {
    policy: Policy,
    sources: &'a Sources,
    maker: Maker<'a>,
    /// The children checked so far, by their selectors.
    twins: SelectorIndex,
    report: Report,
    findings: Vec<(At, Severity, String)>,
}

impl Run<'_> {
    fn find(&mut self, at: At, severity: Severity, text: String) {
        self.findings.push((at, severity, text));
    }

    fn all(&mut self, tree: &Tree) {
        self.outside(tree);
        let named = |kind: &str| -> Vec<String> {
            tree::sections(&tree.views(&[kind])).iter().map(|section| section.name.clone()).collect()
        };
        self.report.named = named("connections");
        for name in self.report.named.clone() {
            self.connection(&name);
        }
        for name in named("secrets") {
            if let Some(message) = self.maker.secret(&name) {
                self.decoded(message, &format!("secrets.{name}."), schema::shared_secret);
            }
        }
        for name in named("pools") {
            let message = self.maker.pool(&name);
            let (_, refused) = self.decoded(message, "pools.", schema::pool);
            self.stops(refused, &format!("pools.{name}"));
        }
        for name in named("authorities") {
            let before = self.maker.faults.len();
            let message = self.maker.authority(&name);
            self.warn(schema::not_fetched(&message));
            let (_, refused) = self.decoded(message, "authorities.", schema::load_authority);
            self.stops(refused || self.maker.faults.len() > before, &format!("authorities.{name}"));
        }
        self.twice(&tree.root, "");
        self.references(tree, &tree.root);
    }

    /// `swanctl --load-all` loads authorities, then pools, then connections, and nothing of the next
    /// kind if it was refused one.
    fn stops(&mut self, refused: bool, key: &str) {
        if refused {
            self.find(
                self.place_of(key),
                Severity::Fault,
                format!("{key}: swanctl loads no connection after this"),
            );
            self.report.refused += std::mem::take(&mut self.report.connections);
            self.report.starts = 0;
        }
    }

    fn finish(mut self) -> Report {
        for (key, fault) in std::mem::take(&mut self.maker.faults) {
            self.find(self.place_of(&key), Severity::Fault, format!("{key}: {fault}"));
        }
        for (key, why) in std::mem::take(&mut self.maker.passed_over) {
            self.find(self.place_of(&key), Severity::Warning, format!("{key}: {why}"));
        }
        self.findings.sort();
        self.findings.dedup();
        let finding = |(at, severity, text): (At, Severity, String)| Finding {
            file: self.sources.path(at),
            line: at.line,
            severity,
            text,
        };
        let mut findings: Vec<Finding> = self.findings.into_iter().map(finding).collect();
        if self.maker.reads_files {
            let Maker { directory, decrypted, files, .. } = &self.maker;
            findings.extend(directories::look(directory, decrypted, *files));
        }
        Report { findings, ..self.report }
    }

    /// The place of the key, or else of the section that it would belong to.
    fn place_of(&self, key: &str) -> At {
        let mut key = key;
        loop {
            if let Some(at) = self.maker.places.get(key) {
                return *at;
            }
            match key.rsplit_once('.') {
                Some((section, _)) => key = section,
                None => return At::default(),
            }
        }
    }

    fn connection(&mut self, name: &str) {
        let (policy, before) = (self.policy, self.maker.faults.len());
        let message = self.maker.connection(name);
        let mut warnings = schema::without_effect(&message);
        let (connection, faults) =
            self.decoded(message, "connections.", |message| schema::connection(message, policy));
        let faults = faults || self.maker.faults.len() > before;
        let Some(connection) = connection.filter(|found| !faults && self.loads(found)) else {
            self.report.refused += 1;
            return;
        };
        if self.maker.reads_files {
            let files = self.maker.files;
            warnings.extend(schema::scripts_not_run(&connection, |program| files.runs(Path::new(program))));
        }
        self.report.connections += 1;
        self.warn(warnings);
    }

    /// Warns of these, each of which begins with the path of a key.
    fn warn(&mut self, lines: Vec<String>) {
        for line in lines {
            let key = line.split(':').next().unwrap_or_default();
            self.find(self.place_of(key), Severity::Warning, line);
        }
    }

    /// Checks a connection whose keys are each correct. Returns true if the gateway would load it.
    fn loads(&mut self, connection: &Connection) -> bool {
        let path = |child: &str| format!("connections.{}.children.{child}", connection.name);
        for twin in self.twins.load(connection) {
            let path = path(&twin.child);
            self.find(self.place_of(&path), Severity::Warning, format!("{path}: {twin}"));
        }
        for pool in connection.pools.iter().filter(|pool| self.maker.tree.views(&["pools", pool]).is_empty())
        {
            let key = format!("connections.{}.pools", connection.name);
            let text = format!("{key}: there is no pool {pool}, so peers get no address from it");
            self.find(self.place_of(&key), Severity::Warning, text);
        }
        let checked = Endpoint::check_connection(connection);
        if let Err(why) = &checked {
            let key = format!("connections.{}", connection.name);
            self.find(self.place_of(&key), Severity::Fault, format!("{key}: {why}"));
        } else {
            let starts = connection.children.iter().filter(|child| child.start_action.starts());
            self.report.starts += starts.count();
        }
        checked.is_ok()
    }

    /// Decodes a message. After each wrong key the rest is decoded again without it, so that every
    /// wrong key is reported. `above` stands before the message's own names in a path. Returns what
    /// was decoded, and true if anything is wrong.
    fn decoded<T>(
        &mut self,
        mut message: Message,
        above: &str,
        decode: impl Fn(&Message) -> Result<T, Refusal>,
    ) -> (Option<T>, bool) {
        let mut told = BTreeSet::new();
        let mut faults = false;
        for _ in 0..MAX_FAULTS {
            let refusal = match decode(&message) {
                Ok(decoded) => return (Some(decoded), faults),
                Err(refusal) => refusal,
            };
            let path = refusal.path().to_owned();
            if self.maker.left_out.contains(&path) {
                return (None, faults);
            }
            // The key was removed, and its absence or default is wrong too.
            if !told.insert(path.clone()) {
                break;
            }
            faults = true;
            self.find(self.place_of(&path), Severity::Fault, refusal.to_string());
            let key = path.strip_prefix(above).unwrap_or_default();
            match without(&message, &key.split('.').collect::<Vec<_>>()) {
                Some(rest) => message = rest,
                None => break,
            }
        }
        (None, faults)
    }

    /// Reports what swanctl does not read.
    fn outside(&mut self, tree: &Tree) {
        for value in &tree.root.values {
            let text = format!("{}: a key outside of all sections, which is never read", value.name);
            self.find(value.at, Severity::Fault, text);
        }
        let mut referred = BTreeSet::new();
        collect_references(&tree.root, &mut referred);
        for section in &tree.root.sections {
            let name = section.name.as_str();
            if !LOADED.contains(&name) && !referred.contains(name) {
                let text = format!(
                    "{name}: found a section that is never read or referred to, expected connections, secrets, pools or \
                     authorities"
                );
                self.find(section.places.first().copied().unwrap_or_default(), Severity::Fault, text);
            }
        }
    }

    /// Reports sections and keys that occur twice: strongSwan merges them without a warning.
    fn twice(&mut self, section: &Section, path: &str) {
        let full = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for value in &section.values {
            if let Some(before) = value.before {
                let text = format!(
                    "{}: the value of {} has no effect",
                    full(&value.name),
                    self.sources.show(before)
                );
                self.find(value.at, Severity::Warning, text);
            }
        }
        for inner in &section.sections {
            let full = full(&inner.name);
            // Sections at the top level are usually spread over several files.
            if let [first, again, ..] = inner.places.as_slice()
                && !path.is_empty()
            {
                let first = self.sources.show(*first);
                let text = format!("{full}: occurs again, and is merged with {first}");
                self.find(*again, Severity::Warning, text);
            }
            self.twice(inner, &full);
        }
    }

    fn references(&mut self, tree: &Tree, section: &Section) {
        for (reference, at) in &section.references {
            if tree.views(&reference.split('.').collect::<Vec<_>>()).is_empty() {
                let text = format!("{}: refers to {reference}, which is not there", section.name);
                self.find(*at, Severity::Fault, text);
            }
        }
        for inner in &section.sections {
            self.references(tree, inner);
        }
    }
}

/// Collects the first path component of every reference in a section.
fn collect_references<'a>(section: &'a Section, into: &mut BTreeSet<&'a str>) {
    let names = section.references.iter().map(|(name, _)| name.split('.').next().unwrap_or_default());
    into.extend(names);
    section.sections.iter().for_each(|inner| collect_references(inner, into));
}

/// The message without the key or section at that path, or `None` if it does not have it.
fn without(message: &Message, path: &[&str]) -> Option<Message> {
    let (name, within) = path.split_first()?;
    let mut found = false;
    let mut rest = Message::new();
    for element in message.elements() {
        match element {
            Element::Section(section, content) if section == name && !within.is_empty() => {
                found = true;
                rest.add_section(section, without(content, within)?);
            }
            other if other.name() == *name && within.is_empty() => found = true,
            other => rest.push(other.clone()),
        }
    }
    found.then_some(rest)
}

#[cfg(test)]
mod tests;
