//! What stands in the files, merged as strongSwan does: sections of the same name are one, the last
//! value of a key counts, and what a section lacks comes from the sections that it refers to.

use super::At;
use std::collections::{BTreeMap, BTreeSet};

/// References behind references that are followed.
const MAX_DEPTH: usize = 16;

/// A section.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) name: String,
    /// Where it begins, each time.
    pub(super) places: Vec<At>,
    /// Full names of sections whose content it has too.
    pub(super) references: Vec<(String, At)>,
    pub(super) values: Vec<Value>,
    pub(super) sections: Vec<Section>,
    /// The places of `sections`, by name.
    by_name: BTreeMap<String, usize>,
}

/// `name = text`.
#[derive(Debug)]
pub(super) struct Value {
    pub(super) name: String,
    /// None with nothing behind the `=`: then the key is not there, not even in a section that is
    /// referred to.
    pub(super) text: Option<String>,
    pub(super) at: At,
    /// Where the key stood before with another value.
    pub(super) before: Option<At>,
}

impl Section {
    /// The section of that name within, made if it is not there.
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

    /// A key is given.
    pub(super) fn set(&mut self, name: String, text: Option<String>, at: At) {
        match self.values.iter_mut().find(|value| value.name == name) {
            Some(value) => {
                let differs = value.text != text;
                value.before = differs.then_some(value.at);
                (value.text, value.at) = (text, at);
            }
            None => self.values.push(Value { name, text, at, before: None }),
        }
    }

    fn section(&self, name: &str) -> Option<&Section> {
        self.by_name.get(name).and_then(|index| self.sections.get(*index))
    }
}

/// All that stands in the files.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) root: Section,
}

/// What a section has, its own before what it refers to.
pub(super) type Views<'a> = Vec<&'a Section>;

impl Tree {
    /// The section with that path, and those whose content it has too.
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

/// The names of the sections within, each once.
pub(super) fn sections<'a>(views: &Views<'a>) -> Vec<&'a Section> {
    let mut seen = BTreeSet::new();
    let all = views.iter().flat_map(|view| &view.sections);
    all.filter(|section| seen.insert(&section.name)).collect()
}

/// The keys with a value, each once.
pub(super) fn values<'a>(views: &Views<'a>) -> Vec<(&'a Value, &'a str)> {
    let mut seen = BTreeSet::new();
    let all = views.iter().flat_map(|view| &view.values);
    let first = all.filter(|value| seen.insert(&value.name));
    first.filter_map(|value| Some((value, value.text.as_deref()?))).collect()
}
