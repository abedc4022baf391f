//! Who may migrate what, and the identities of the hosts: `/etc/testudo/migration.toml`.

use super::caller::Caller;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use testudo_base::prefix::Prefix;
use testudo_vici::trust::{self, Untrusted};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

#[cfg(test)]
mod tests;

const RULE_KEYS: &[&str] = &["user", "vm", "to", "actions"];
/// testudod cuts an identity that is longer.
const MAX_IDENTITY: usize = 512;
const HOST_KEYS: &[&str] = &["address", "identities"];
/// In a rule: every virtual machine.
const ANY: &str = "*";

/// What a caller wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Begin a migration.
    Migrate,
    /// End one that somebody has begun: `--verify`, which may stop, continue and cancel.
    Terminate,
}

impl Action {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Migrate => "migrate",
            Self::Terminate => "terminate",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Migrate, Self::Terminate].into_iter().find(|action| action.name() == text)
    }
}

/// Something that a caller wants to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) caller: &'a Caller,
    pub(super) vm: &'a str,
    pub(super) action: Action,
    /// Where to; a migration that has begun has its destination already.
    pub(super) to: Option<IpAddr>,
}

/// The rules, and the identities of hosts. What no rule allows is refused.
#[derive(Debug)]
pub(super) struct Policy {
    rules: Vec<Rule>,
    hosts: Vec<Host>,
}

/// The identities under which a host may authenticate.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) line: usize,
    address: IpAddr,
    /// One of these, as testudod lists it. Never empty.
    pub(super) identities: Vec<String>,
}

#[derive(Debug)]
struct Rule {
    line: usize,
    user: String,
    vm: String,
    to: Vec<Prefix>,
    actions: Vec<Action>,
}

/// Why there are no rules.
#[derive(Debug, thiserror::Error)]
pub(super) enum PolicyError {
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    #[error("{}: {error}", file.display())]
    Unreadable { file: PathBuf, error: io::Error },
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// A key that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeyError {
    file: PathBuf,
    line: usize,
    key: String,
    found: String,
    expected: String,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, key, found, expected } = self;
        write!(f, "{}:{line}: {key}: found {found}, expected {expected}", file.display())
    }
}

impl std::error::Error for KeyError {}

impl Policy {
    /// Reads the file, which only root may be able to change.
    pub(super) fn read(file: &Path) -> Result<Self, PolicyError> {
        let path = trust::check_file(file)?;
        let unreadable = |error| PolicyError::Unreadable { file: file.to_owned(), error };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Ok(Self::parse(file, &text)?)
    }

    pub(super) fn parse(file: &Path, text: &str) -> Result<Self, KeyError> {
        let source = &Source { file, text };
        let document = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            source.error(offset, "(syntax)", "something else", format!("valid TOML ({})", error.message()))
        })?;
        let mut policy = Self { rules: Vec::new(), hosts: Vec::new() };
        for (key, value) in document.get_ref() {
            match key.get_ref().as_ref() {
                "allow" => {
                    for table in Table::each(source, "allow", value, RULE_KEYS)? {
                        policy.rules.push(Rule::parse(&table)?);
                    }
                }
                "host" => {
                    for table in Table::each(source, "host", value, HOST_KEYS)? {
                        policy.add_host(&table)?;
                    }
                }
                name => return Err(source.error(key.span().start, name, "an unknown key", "allow or host")),
            }
        }
        Ok(policy)
    }

    fn add_host(&mut self, table: &Table<'_>) -> Result<(), KeyError> {
        const ADDRESS: &str = "an IPv4 or IPv6 address that no other [[host]] has";
        const IDENTITIES: &str =
            "an array of identities without '?' and of fewer than 512 octets, at least one";
        let host = Host {
            line: table.line(),
            address: table.text("address", ADDRESS, |text| text.parse().ok())?,
            identities: table.list("identities", IDENTITIES, identity)?,
        };
        if self.host(host.address).is_some() {
            return Err(table.wrong("address", ADDRESS));
        }
        if host.identities.is_empty() {
            return Err(table.wrong("identities", IDENTITIES));
        }
        self.hosts.push(host);
        Ok(())
    }

    /// What it says of the host with this address.
    pub(super) fn host(&self, address: IpAddr) -> Option<&Host> {
        self.hosts.iter().find(|host| host.address == address)
    }

    /// The line of the rule that allows it.
    pub(super) fn line_that_allows(&self, request: Request<'_>) -> Option<usize> {
        self.rules.iter().find(|rule| rule.allows(request)).map(|rule| rule.line)
    }
}

impl Rule {
    fn parse(table: &Table<'_>) -> Result<Self, KeyError> {
        const USER: &str = "the name or number of a user";
        const VM: &str = "the name of a virtual machine, or \"*\"";
        const TO: &str = "an array of addresses and prefixes";
        const ACTIONS: &str = "an array of \"migrate\" and \"terminate\"";
        Ok(Self {
            line: table.line(),
            user: table.text("user", USER, not_empty)?,
            vm: table.text("vm", VM, not_empty)?,
            to: table.list("to", TO, |text| text.parse().ok())?,
            actions: table.list("actions", ACTIONS, Action::parse)?,
        })
    }

    fn allows(&self, request: Request<'_>) -> bool {
        let Request { caller, vm, action, to } = request;
        let user = caller.name.as_ref() == Some(&self.user) || self.user == caller.uid.to_string();
        user && (self.vm == ANY || self.vm == vm)
            && self.actions.contains(&action)
            && to.is_none_or(|to| self.to.iter().any(|prefix| prefix.contains(to)))
    }
}

/// An identity as testudod lists it. It lists `?` for what is not ASCII, and cuts what is longer:
/// several identities would look the same.
fn identity(text: &str) -> Option<String> {
    let is_whole = text.len() < MAX_IDENTITY && text.bytes().all(|octet| octet.is_ascii() && octet != b'?');
    not_empty(text).filter(|_| is_whole)
}

fn not_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// One of the tables of an array, such as `[[allow]]`.
struct Table<'a> {
    source: &'a Source<'a>,
    /// `allow[0]`.
    path: String,
    value: &'a Spanned<DeValue<'a>>,
    keys: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    /// All tables of an array. Keys other than `known` are refused.
    fn each(
        source: &'a Source<'a>,
        name: &str,
        value: &'a Spanned<DeValue<'a>>,
        known: &[&str],
    ) -> Result<Vec<Self>, KeyError> {
        let expected = format!("an array of tables, [[{name}]]");
        let tables = value.get_ref().as_array().ok_or_else(|| source.wrong(name, value, &expected))?;
        let table = |(number, value): (usize, &'a Spanned<DeValue<'a>>)| {
            let path = format!("{name}[{number}]");
            let DeValue::Table(keys) = value.get_ref() else {
                return Err(source.wrong(&path, value, &format!("a table, [[{name}]]")));
            };
            let table = Self { source, path, value, keys };
            table.knows_only(known)?;
            Ok(table)
        };
        tables.iter().enumerate().map(table).collect()
    }

    fn knows_only(&self, known: &[&str]) -> Result<(), KeyError> {
        for (key, _) in self.keys {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let expected = format!("one of {}", known.join(", "));
                let path = format!("{}.{name}", self.path);
                return Err(self.source.error(key.span().start, &path, "an unknown key", expected));
            }
        }
        Ok(())
    }

    fn line(&self) -> usize {
        self.source.line(self.value.span().start)
    }

    fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.keys.iter().find(|(name, _)| name.get_ref().as_ref() == key).map(|(_, value)| value)
    }

    /// The value of a key is not what is expected, or there is none.
    fn wrong(&self, key: &str, expected: &str) -> KeyError {
        let path = format!("{}.{key}", self.path);
        match self.get(key) {
            Some(value) => self.source.wrong(&path, value, expected),
            None => self.source.error(self.value.span().start, &path, "nothing", expected),
        }
    }

    /// A string, converted.
    fn text<T>(&self, key: &str, expected: &str, convert: impl Fn(&str) -> Option<T>) -> Result<T, KeyError> {
        let text = self.get(key).and_then(|value| value.get_ref().as_str());
        text.and_then(convert).ok_or_else(|| self.wrong(key, expected))
    }

    /// An array of strings, each converted.
    fn list<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, KeyError> {
        let items = self.get(key).and_then(|value| value.get_ref().as_array());
        let items = items.ok_or_else(|| self.wrong(key, expected))?;
        let path = format!("{}.{key}", self.path);
        let one = |item: &Spanned<DeValue<'_>>| {
            let text = item.get_ref().as_str();
            text.and_then(&convert).ok_or_else(|| self.source.wrong(&path, item, expected))
        };
        items.iter().map(one).collect()
    }
}

/// The file's name and text, to turn offsets into line numbers.
struct Source<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|octet| *octet == b'\n').count()
    }

    fn error(&self, offset: usize, key: &str, found: &str, expected: impl Into<String>) -> KeyError {
        let (file, line) = (self.file.to_owned(), self.line(offset));
        KeyError { file, line, key: key.to_owned(), found: found.to_owned(), expected: expected.into() }
    }

    fn wrong(&self, key: &str, value: &Spanned<DeValue<'_>>, expected: &str) -> KeyError {
        let found = match value.get_ref() {
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Integer(integer) => integer.as_str().to_owned(),
            DeValue::Float(_) => "a float".to_owned(),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Datetime(_) => "a date".to_owned(),
            DeValue::Array(_) => "an array".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        self.error(value.span().start, key, &found, expected)
    }
}
