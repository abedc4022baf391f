//! The sections and keys of the files, merged as strongSwan does: sections of the same name are
//! one, the last value of a key counts, and a section inherits what it lacks from the sections that
//! it refers to.

use super::At;
use std::collections::{BTreeMap, BTreeSet};

/// Longest chain of references that is followed.
const MAX_DEPTH: usize = 16;

/// A section.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) name: String,
    /// The first octet of the name that is not UTF-8.
    pub(super) stray: Option<u8>,
    /// The places where it begins.
    pub(super) places: Vec<At>,
    /// Full names of the sections that it inherits from.
    pub(super) references: Vec<(String, At)>,
    pub(super) values: Vec<Value>,
    pub(super) sections: Vec<Section>,
    /// Indices into `sections`, by name.
    by_name: BTreeMap<String, usize>,
}

/// `name = text`.
#[derive(Debug)]
pub(super) struct Value {
    pub(super) name: String,
    /// None if nothing stands after the `=`: then the key is unset, and not inherited either.
    pub(super) text: Option<String>,
    pub(super) at: At,
    /// The first octet of name or text that is not UTF-8.
    pub(super) stray: Option<u8>,
    /// The place of an earlier, different value of the key.
    pub(super) before: Option<At>,
}

impl Section {
    /// The section of that name inside this one. Adds it if it is not there.
    #[allow(
        clippy::indexing_slicing,
        reason = "`by_name` knows sections that are there, or the one that is made here"
    )]
    pub(super) fn enter(&mut self, name: String, at: At) -> &mut Section {
        let next = self.sections.len();
        let index = *self.by_name.entry(name.clone()).or_insert(next);
        if index == next {
            self.sections.push(Section { name, ..Section::default() });
        }
        let section = &mut self.sections[index];
        section.places.push(at);
        section
    }

    /// Sets a key.
    pub(super) fn set(&mut self, mut new: Value) {
        match self.values.iter_mut().find(|value| value.name == new.name) {
            Some(value) => {
                new.before = (value.text != new.text).then_some(value.at);
                *value = new;
            }
            None => self.values.push(new),
        }
    }

    fn section(&self, name: &str) -> Option<&Section> {
        self.by_name.get(name).and_then(|index| self.sections.get(*index))
    }
}

/// The content of all files.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) root: Section,
}

/// A section and those that it inherits from; its own content comes first.
pub(super) type Views<'a> = Vec<&'a Section>;

impl Tree {
    /// The section at that path, and those that it inherits from.
    pub(super) fn views(&self, path: &[&str]) -> Views<'_> {
        self.views_within(path, MAX_DEPTH)
    }

    fn views_within(&self, path: &[&str], depth: usize) -> Views<'_> {
        path.iter().fold(vec![&self.root], |within, name| {
            let mut found = Views::new();
            for section in within.iter().filter_map(|section| section.section(name)) {
                self.add(section, depth, &mut found);
            }
            found
        })
    }

    fn add<'a>(&'a self, section: &'a Section, depth: usize, found: &mut Views<'a>) {
        if found.iter().any(|other| std::ptr::eq(*other, section)) {
            return;
        }
        found.push(section);
        let Some(depth) = depth.checked_sub(1) else { return };
        for (reference, _) in &section.references {
            let path: Vec<&str> = reference.split('.').collect();
            for view in self.views_within(&path, depth) {
                if !found.iter().any(|other| std::ptr::eq(*other, view)) {
                    found.push(view);
                }
            }
        }
    }
}

/// The sections inside, each name once.
pub(super) fn sections<'a>(views: &Views<'a>) -> Vec<&'a Section> {
    let mut seen = BTreeSet::new();
    let all = views.iter().flat_map(|view| &view.sections);
    all.filter(|section| seen.insert(&section.name)).collect()
}

/// The keys that have a value, each once.
pub(super) fn values<'a>(views: &Views<'a>) -> Vec<(&'a Value, &'a str)> {
    let mut seen = BTreeSet::new();
    let all = views.iter().flat_map(|view| &view.values);
    let first = all.filter(|value| seen.insert(&value.name));
    first.filter_map(|value| Some((value, value.text.as_deref()?))).collect()
}
