//! Messages as trees: sections, key/values and lists, in order.
//!
//! Values may hold secrets: they are wiped when dropped, and `Debug` shows their length only.

use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The octets of a key/value or list item.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Blob(Vec<u8>);

impl Blob {
    /// The octets.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The octets as text, if they are UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<String> for Blob {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&str> for Blob {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} octets>", self.0.len())
    }
}

/// One element of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// `name { ... }`.
    Section(String, Message),
    /// `name = value`.
    Value(String, Blob),
    /// `name = [ value, ... ]`.
    List(String, Vec<Blob>),
}

impl Element {
    /// The element's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Section(name, _) | Self::Value(name, _) | Self::List(name, _) => name,
        }
    }
}

/// A message, or the content of a section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    elements: Vec<Element>,
}

impl Message {
    /// An empty message.
    pub fn new() -> Self {
        Self::default()
    }

    /// The elements in order.
    pub fn elements(&self) -> &[Element] {
        &self.elements
    }

    /// Consumes the message and returns its elements in order.
    pub fn into_elements(self) -> Vec<Element> {
        self.elements
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Appends an element.
    pub fn push(&mut self, element: Element) {
        self.elements.push(element);
    }

    /// Appends `name = value`.
    pub fn add(&mut self, name: &str, value: impl Into<Blob>) {
        self.push(Element::Value(name.to_owned(), value.into()));
    }

    /// Appends `name = value`, the value as text.
    pub fn add_text(&mut self, name: &str, value: impl fmt::Display) {
        self.add(name, value.to_string());
    }

    /// Appends a list.
    pub fn add_list<B: Into<Blob>>(&mut self, name: &str, items: impl IntoIterator<Item = B>) {
        self.push(Element::List(name.to_owned(), items.into_iter().map(Into::into).collect()));
    }

    /// Appends a section.
    pub fn add_section(&mut self, name: &str, content: Message) {
        self.push(Element::Section(name.to_owned(), content));
    }

    /// [`Message::add`] in a chain.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Blob>) -> Self {
        self.add(name, value);
        self
    }

    /// [`Message::add_list`] in a chain.
    #[must_use]
    pub fn with_list<B: Into<Blob>>(mut self, name: &str, items: impl IntoIterator<Item = B>) -> Self {
        self.add_list(name, items);
        self
    }

    /// [`Message::add_section`] in a chain.
    #[must_use]
    pub fn with_section(mut self, name: &str, content: Message) -> Self {
        self.add_section(name, content);
        self
    }

    /// The first value of that name.
    pub fn value(&self, name: &str) -> Option<&Blob> {
        self.elements.iter().find_map(|element| match element {
            Element::Value(found, value) if found == name => Some(value),
            _ => None,
        })
    }

    /// The first value of that name, if it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name).and_then(Blob::text)
    }

    /// The first list of that name.
    pub fn list(&self, name: &str) -> Option<&[Blob]> {
        self.elements.iter().find_map(|element| match element {
            Element::List(found, items) if found == name => Some(items.as_slice()),
            _ => None,
        })
    }

    /// The items of the first list of that name that are text; none if there is no such list.
    pub fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.list(name).unwrap_or_default().iter().filter_map(Blob::text)
    }

    /// The first section of that name.
    pub fn section(&self, name: &str) -> Option<&Message> {
        self.sections().find(|(found, _)| *found == name).map(|(_, content)| content)
    }

    /// All sections in order.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Message)> {
        self.elements.iter().filter_map(|element| match element {
            Element::Section(name, content) => Some((name.as_str(), content)),
            _ => None,
        })
    }
}
