//! Takes a section apart key by key, so that no key is ignored.

use super::keys::Key;
use super::refusal::{Refusal, Why, quote};
use crate::message::{Blob, Element, Message};

/// The keys of a section that are not taken yet.
pub(crate) struct Fields<'a> {
    path: String,
    rest: Vec<&'a Element>,
}

impl<'a> Fields<'a> {
    /// All elements of `message`, whose names must differ.
    pub(crate) fn new(path: &str, message: &'a Message) -> Result<Self, Refusal> {
        let rest: Vec<_> = message.elements().iter().collect();
        let mut names: Vec<_> = rest.iter().map(|element| element.name()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair.first() == pair.last()) {
            let name = twice.first().copied().unwrap_or_default();
            return Err(Refusal::Duplicate { path: join(path, name) });
        }
        Ok(Self { path: path.to_owned(), rest })
    }

    /// Refuses a key that is in no row of `keys`. Called first, so that a misspelt key is reported
    /// as unknown, and not as missing.
    pub(crate) fn known(self, keys: &[Key]) -> Result<Self, Refusal> {
        match self.rest.iter().find(|element| !keys.iter().any(|key| key.is(element.name()))) {
            Some(unknown) => Err(Refusal::Unknown { path: self.path(unknown.name()) }),
            None => Ok(self),
        }
    }

    /// The full path of a key of this section.
    pub(crate) fn path(&self, name: &str) -> String {
        join(&self.path, name)
    }

    fn take(&mut self, name: &str) -> Option<&'a Element> {
        let index = self.rest.iter().position(|element| element.name() == name)?;
        Some(self.rest.remove(index))
    }

    fn bad(&self, name: &str, found: String, Why(why): Why) -> Refusal {
        Refusal::Bad { path: self.path(name), found, why }
    }

    fn shape(&self, element: &Element, expected: &str) -> Refusal {
        let found = match element {
            Element::Section(..) => "a section",
            Element::Value(..) => "a single value",
            Element::List(..) => "a list",
        };
        self.bad(element.name(), found.to_owned(), super::refusal::expected(expected))
    }

    /// Takes the octets of `name`.
    pub(crate) fn blob(&mut self, name: &str) -> Result<Option<&'a Blob>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Element::Value(_, value)) => Ok(Some(value)),
            Some(other) => Err(self.shape(other, "a single value")),
        }
    }

    /// Takes the text of `name`.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<&'a str>, Refusal> {
        self.parsed(name, Ok)
    }

    /// Takes the text of `name`, which must be there and not be empty.
    pub(crate) fn required(&mut self, name: &str, expected: &'static str) -> Result<&'a str, Refusal> {
        let missing = Refusal::Missing { path: self.path(name), expected };
        self.text(name)?.filter(|text| !text.is_empty()).ok_or(missing)
    }

    /// Takes and parses the text of `name`.
    pub(crate) fn parsed<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&'a str) -> Result<T, Why>,
    ) -> Result<Option<T>, Refusal> {
        let Some(blob) = self.blob(name)? else { return Ok(None) };
        self.parse_blob(name, blob, parse).map(Some)
    }

    /// Takes the list `name` and parses its items.
    pub(crate) fn list<T>(
        &mut self,
        name: &str,
        mut parse: impl FnMut(&'a str) -> Result<T, Why>,
    ) -> Result<Option<Vec<T>>, Refusal> {
        let items = match self.take(name) {
            None => return Ok(None),
            Some(Element::List(_, items)) => items,
            Some(other) => return Err(self.shape(other, "a list")),
        };
        let parsed = items.iter().map(|item| self.parse_blob(name, item, &mut parse));
        parsed.collect::<Result<_, _>>().map(Some)
    }

    /// Takes the list `name` and parses the octets of its items.
    pub(crate) fn blobs<T>(
        &mut self,
        name: &str,
        mut parse: impl FnMut(&[u8]) -> Result<T, Why>,
    ) -> Result<Vec<T>, Refusal> {
        let items = match self.take(name) {
            None => return Ok(Vec::new()),
            // An empty file.
            Some(Element::Value(_, value)) if value.bytes().is_empty() => return Ok(Vec::new()),
            Some(Element::List(_, items)) => items,
            Some(other) => return Err(self.shape(other, "a list")),
        };
        let numbered = items.iter().enumerate();
        let parsed = numbered.map(|(index, item)| {
            let found = || format!("entry {} of {} octets", index + 1, item.bytes().len());
            parse(item.bytes()).map_err(|why| self.bad(name, found(), why))
        });
        parsed.collect()
    }

    fn parse_blob<T>(
        &self,
        name: &str,
        blob: &'a Blob,
        parse: impl FnOnce(&'a str) -> Result<T, Why>,
    ) -> Result<T, Refusal> {
        let text = blob.text().ok_or_else(|| super::refusal::expected("UTF-8 text"));
        text.and_then(parse).map_err(|why| self.bad(name, quote(blob.bytes()), why))
    }

    /// Takes the section `name`.
    pub(crate) fn section(&mut self, name: &str) -> Result<Option<Fields<'a>>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Element::Section(_, content)) => Fields::new(&self.path(name), content).map(Some),
            Some(other) => Err(self.shape(other, "a section")),
        }
    }

    /// Takes all sections whose names begin with `prefix`.
    pub(crate) fn sections(&mut self, prefix: &str) -> Result<Vec<(&'a str, Fields<'a>)>, Refusal> {
        let mut found = Vec::new();
        let mut rest = Vec::new();
        for element in std::mem::take(&mut self.rest) {
            match element {
                Element::Section(name, content) if name.starts_with(prefix) => {
                    found.push((name.as_str(), Fields::new(&self.path(name), content)?));
                }
                other => rest.push(other),
            }
        }
        self.rest = rest;
        Ok(found)
    }

    /// Refuses the section if anything is left.
    pub(crate) fn finish(self) -> Result<(), Refusal> {
        self.finish_with(&[])
    }

    /// Accepts the remaining keys if strongSwan knows them and they ask for what this gateway does
    /// anyway.
    pub(crate) fn finish_with(self, keys: &[Key]) -> Result<(), Refusal> {
        for element in &self.rest {
            let path = self.path(element.name());
            match keys.iter().find(|key| key.is(element.name())) {
                Some(key) => key.check(path, element)?,
                None => return Err(Refusal::Unknown { path }),
            }
        }
        Ok(())
    }
}

/// Joins a path and a name from a client, with its control characters escaped.
fn join(path: &str, name: &str) -> String {
    let name: String = name
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect();
    if path.is_empty() { name } else { format!("{path}.{name}") }
}
