//! Reads TOML key by key and remembers where each stood, so that every complaint names file, line,
//! key, what was found and what was expected. Knows nothing of what the keys mean.

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

/// One complaint about a configuration file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    file: PathBuf,
    line: usize,
    key: String,
    found: String,
    expected: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, key, found, expected } = self;
        write!(f, "{}:{line}: {key}: found {found}, expected {expected}", file.display())
    }
}

impl std::error::Error for ConfigError {}

/// A file's name and text, to turn offsets into line numbers.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) file: &'a Path,
    pub(crate) text: &'a str,
}

impl Source<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|&b| b == b'\n').count()
    }

    fn error(&self, offset: usize, key: String, found: String, expected: String) -> ConfigError {
        ConfigError { file: self.file.to_owned(), line: self.line(offset), key, found, expected }
    }

    /// Parses the text as TOML.
    pub(crate) fn parse(&self) -> Result<Spanned<DeTable<'_>>, ConfigError> {
        DeTable::parse(self.text).map_err(|e| {
            let offset = e.span().map_or(0, |s| s.start);
            let found = self.text.lines().nth(self.line(offset) - 1).unwrap_or("").trim();
            self.error(
                offset,
                "(syntax)".into(),
                format!("`{found}`"),
                format!("valid TOML ({})", e.message()),
            )
        })
    }
}

/// One table of the file. Keys that nobody asked for are an error at [`Section::finish`].
pub(crate) struct Section<'a> {
    source: Source<'a>,
    name: String,
    offset: usize,
    table: &'a DeTable<'a>,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(crate) fn root(source: Source<'a>, table: &'a Spanned<DeTable<'a>>) -> Self {
        Self { source, name: String::new(), offset: 0, table: table.get_ref(), known: RefCell::default() }
    }

    fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    fn take(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.borrow_mut().push(key);
        self.table.iter().find(|(k, _)| k.get_ref().as_ref() == key).map(|(_, v)| v)
    }

    fn wrong(&self, key: &str, value: &Spanned<DeValue<'_>>, expected: impl Into<String>) -> ConfigError {
        let found = match value.get_ref() {
            DeValue::String(s) => format!("\"{s}\""),
            DeValue::Integer(i) => i.as_str().to_owned(),
            DeValue::Boolean(b) => b.to_string(),
            DeValue::Array(items) => array(items),
            other => kind(other).to_owned(),
        };
        self.source.error(value.span().start, self.path(key), found, expected.into())
    }

    /// The error for a key that is missing.
    pub(crate) fn missing(&self, key: &str, expected: impl Into<String>) -> ConfigError {
        self.source.error(self.offset, self.path(key), "nothing".into(), expected.into())
    }

    /// The error for a key whose value is valid by itself, but not with the rest.
    pub(crate) fn unfit(&self, key: &str, expected: impl Into<String>) -> ConfigError {
        let value = self.table.iter().find(|(k, _)| k.get_ref().as_ref() == key);
        match value {
            Some((_, value)) => self.wrong(key, value, expected),
            None => self.missing(key, expected),
        }
    }

    /// File, line and path of a key: the begin of an error about it.
    pub(crate) fn place(&self, key: &str) -> String {
        let value = self.table.iter().find(|(k, _)| k.get_ref().as_ref() == key);
        let offset = value.map_or(self.offset, |(_, value)| value.span().start);
        format!("{}:{}: {}", self.source.file.display(), self.source.line(offset), self.path(key))
    }

    /// A string turned into `T` by `convert`, which gives `None` for what it does not understand.
    pub(crate) fn string<T>(
        &self,
        key: &'static str,
        expected: &str,
        convert: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.get_ref().as_str().and_then(convert).map(Some).ok_or_else(|| self.wrong(key, value, expected))
    }

    /// An array of strings, each turned into `T` by `convert`.
    pub(crate) fn strings<T>(
        &self,
        key: &'static str,
        expected: &str,
        convert: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<Vec<T>>, ConfigError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let DeValue::Array(array) = value.get_ref() else {
            return Err(self.wrong(key, value, format!("an array of strings: {expected}")));
        };
        let one = |item: &Spanned<DeValue<'_>>| {
            let converted = item.get_ref().as_str().and_then(&convert);
            converted.ok_or_else(|| self.wrong(key, item, expected))
        };
        array.iter().map(one).collect::<Result<_, _>>().map(Some)
    }

    /// An integer within bounds.
    pub(crate) fn integer(&self, key: &'static str, min: u64, max: u64) -> Result<Option<u64>, ConfigError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        within(value, min, max)
            .map(Some)
            .ok_or_else(|| self.wrong(key, value, format!("an integer from {min} to {max}")))
    }

    /// An array of integers within bounds.
    pub(crate) fn integers(
        &self,
        key: &'static str,
        min: u64,
        max: u64,
    ) -> Result<Option<Vec<u64>>, ConfigError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let DeValue::Array(array) = value.get_ref() else {
            return Err(self.wrong(key, value, format!("an array of integers from {min} to {max}")));
        };
        let one = |item| {
            let wrong = || self.wrong(key, item, format!("integers from {min} to {max}"));
            within(item, min, max).ok_or_else(wrong)
        };
        array.iter().map(one).collect::<Result<_, _>>().map(Some)
    }

    /// True or false.
    pub(crate) fn boolean(&self, key: &'static str) -> Result<Option<bool>, ConfigError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.get_ref().as_bool().map(Some).ok_or_else(|| self.wrong(key, value, "true or false"))
    }

    /// A sub-table; empty if it is not there.
    pub(crate) fn section(&self, key: &'static str) -> Result<Option<Section<'a>>, ConfigError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Some(self.child(key.to_owned(), value, table))),
            _ => Err(self.wrong(key, value, format!("a table, [{key}]"))),
        }
    }

    /// An array of tables, `[[key]]`.
    pub(crate) fn sections(&self, key: &'static str) -> Result<Vec<Section<'a>>, ConfigError> {
        let Some(value) = self.take(key) else { return Ok(Vec::new()) };
        let DeValue::Array(array) = value.get_ref() else {
            return Err(self.wrong(key, value, format!("an array of tables, [[{key}]]")));
        };
        let mut sections = Vec::new();
        for (n, item) in array.iter().enumerate() {
            match item.get_ref() {
                DeValue::Table(table) => sections.push(self.child(format!("{key}[{n}]"), item, table)),
                _ => return Err(self.wrong(key, item, format!("an array of tables, [[{key}]]"))),
            }
        }
        Ok(sections)
    }

    fn child(&self, key: String, value: &Spanned<DeValue<'a>>, table: &'a DeTable<'a>) -> Section<'a> {
        let name = self.path(&key);
        Section { source: self.source, name, offset: value.span().start, table, known: RefCell::default() }
    }

    /// Refuses keys that nobody asked for.
    pub(crate) fn finish(self) -> Result<(), ConfigError> {
        let known = self.known.borrow();
        for (key, value) in self.table {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let expected = format!("one of {}", known.join(", "));
                let found = format!("an unknown key holding {}", kind(value.get_ref()));
                return Err(self.source.error(key.span().start, self.path(name), found, expected));
            }
        }
        Ok(())
    }
}

/// An integer, if it is one and lies within the bounds.
fn within(value: &Spanned<DeValue<'_>>, min: u64, max: u64) -> Option<u64> {
    let integer = value.get_ref().as_integer()?;
    let digits = integer.as_str().replace('_', "");
    let number = u64::from_str_radix(&digits, integer.radix()).ok()?;
    (min..=max).contains(&number).then_some(number)
}

/// An array of strings, or of integers, as it stands in the file.
fn array(items: &[Spanned<DeValue<'_>>]) -> String {
    let strings: Option<Vec<&str>> = items.iter().map(|item| item.get_ref().as_str()).collect();
    let integers = || {
        let each = items.iter().map(|item| item.get_ref().as_integer().map(DeInteger::as_str));
        each.collect::<Option<Vec<&str>>>().map(|integers| format!("[{}]", integers.join(", ")))
    };
    let shown = strings.map(|strings| format!("{strings:?}")).or_else(integers);
    shown.unwrap_or_else(|| "an array".to_owned())
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
