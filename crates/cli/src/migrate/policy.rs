//! Who may migrate what: `/etc/testudo/migration.toml`.

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

const KEYS: [&str; 4] = ["user", "vm", "to", "actions"];
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

/// The rules. What none of them allows is refused.
#[derive(Debug)]
pub(super) struct Policy {
    rules: Vec<Rule>,
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
        Ok(Self::parse(&Source { file, text: &text })?)
    }

    fn parse(source: &Source<'_>) -> Result<Self, KeyError> {
        let document = DeTable::parse(source.text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            source.error(offset, "(syntax)", "something else", format!("valid TOML ({})", error.message()))
        })?;
        let mut rules = Vec::new();
        for (key, value) in document.get_ref() {
            let name = key.get_ref().as_ref();
            if name != "allow" {
                return Err(source.error(key.span().start, name, "an unknown key", "allow"));
            }
            let tables = value.get_ref().as_array();
            let tables = tables.ok_or_else(|| source.wrong(name, value, "an array of tables, [[allow]]"))?;
            for (number, table) in tables.iter().enumerate() {
                rules.push(Rule::parse(source, number, table)?);
            }
        }
        Ok(Self { rules })
    }

    /// The line of the rule that allows it.
    pub(super) fn line_that_allows(&self, request: Request<'_>) -> Option<usize> {
        self.rules.iter().find(|rule| rule.allows(request)).map(|rule| rule.line)
    }
}

impl Rule {
    fn parse(source: &Source<'_>, number: usize, value: &Spanned<DeValue<'_>>) -> Result<Self, KeyError> {
        let path = |key: &str| format!("allow[{number}].{key}");
        let DeValue::Table(table) = value.get_ref() else {
            return Err(source.wrong(&format!("allow[{number}]"), value, "a table, [[allow]]"));
        };
        for (key, _) in table {
            let name = key.get_ref().as_ref();
            if !KEYS.contains(&name) {
                let expected = format!("one of {}", KEYS.join(", "));
                return Err(source.error(key.span().start, &path(name), "an unknown key", expected));
            }
        }
        let take = |key: &str, expected: &str| {
            let found = table.iter().find(|(name, _)| name.get_ref().as_ref() == key);
            let missing = || source.error(value.span().start, &path(key), "nothing", expected);
            found.map(|(_, value)| value).ok_or_else(missing)
        };
        let name = |key: &str, expected: &str| {
            let value = take(key, expected)?;
            let text = value.get_ref().as_str().filter(|text| !text.is_empty());
            text.map(str::to_owned).ok_or_else(|| source.wrong(&path(key), value, expected))
        };
        const TO: &str = "an array of addresses and prefixes";
        const ACTIONS: &str = "an array of \"migrate\" and \"terminate\"";
        Ok(Self {
            line: source.line(value.span().start),
            user: name("user", "the name or number of a user")?,
            vm: name("vm", "the name of a virtual machine, or \"*\"")?,
            to: source.each(&path("to"), take("to", TO)?, TO, |text| text.parse().ok())?,
            actions: source.each(&path("actions"), take("actions", ACTIONS)?, ACTIONS, Action::parse)?,
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

    /// An array of strings, each converted.
    fn each<T>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        expected: &str,
        convert: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, KeyError> {
        let items = value.get_ref().as_array().ok_or_else(|| self.wrong(key, value, expected))?;
        let one = |item: &Spanned<DeValue<'_>>| {
            item.get_ref().as_str().and_then(&convert).ok_or_else(|| self.wrong(key, item, expected))
        };
        items.iter().map(one).collect()
    }
}
