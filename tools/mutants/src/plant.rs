//! Writes a source file anew with all its mutants, each behind a condition.

use crate::error::{Error, Result};
use crate::find::{self, Change, Place};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;

/// The call that is true if a mutant is chosen; its number follows.
pub(crate) const ON: &str = "testudo_base::mutant::on(";
/// The characters of an expression that a label shows.
const SHOWN: usize = 90;

/// A small change of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// Its number, from 1.
    pub(crate) number: u32,
    /// The file, from the root of the workspace.
    pub(crate) file: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// The function.
    pub(crate) function: String,
    /// The change.
    pub(crate) label: String,
}

impl Mutant {
    /// Its name where lines may have moved.
    pub(crate) fn without_line(&self) -> String {
        let Self { file, function, label, .. } = self;
        format!("{file}: {function}: {label}")
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, function, label, .. } = self;
        write!(f, "{file}:{line}: {function}: {label}")
    }
}

/// A file with mutants.
#[derive(Debug)]
pub(crate) struct Planted {
    pub(crate) text: String,
    pub(crate) mutants: Vec<Mutant>,
}

/// Plants all mutants of a file except those that are left out, numbered from `next`. A mutant has
/// the same number whichever others are left out.
pub(crate) fn plant(file: &Path, text: &str, next: &mut u32, left_out: &BTreeSet<u32>) -> Result<Planted> {
    let places = find::places(text).map_err(|error| Error::source(file, &error))?;
    let name = file.display().to_string();
    let mut writer = Writer { name, text, next, left_out, mutants: Vec::new() };
    let text = writer.write(0..text.len(), &places);
    Ok(Planted { text, mutants: writer.mutants })
}

struct Writer<'a> {
    name: String,
    text: &'a str,
    next: &'a mut u32,
    left_out: &'a BTreeSet<u32>,
    mutants: Vec<Mutant>,
}

impl Writer<'_> {
    /// The text of a range, with the places in it.
    fn write(&mut self, range: Range<usize>, places: &[Place]) -> String {
        let mut out = String::new();
        let mut at = range.start;
        let mut rest = places;
        while let Some((place, behind)) = rest.split_first() {
            let within = behind.iter().take_while(|inner| inner.range.start < place.range.end).count();
            let (inner, behind) = behind.split_at(within);
            out.push_str(&self.text[at..place.range.start]);
            let original = self.write(place.range.clone(), inner);
            out.push_str(&self.changed(place, original));
            at = place.range.end;
            rest = behind;
        }
        out.push_str(&self.text[at..range.end]);
        out
    }

    fn changed(&mut self, place: &Place, original: String) -> String {
        match &place.change {
            Change::Expression(others) => {
                let shown = shorten(&self.text[place.range.clone()]);
                let conditions = others.iter().map(|(label, text)| {
                    let condition = self.condition(place, format!("{label} in `{shown}`"));
                    condition.map(|on| format!("if {on} {{ {text} }} else ")).unwrap_or_default()
                });
                let conditions: String = conditions.collect();
                if conditions.is_empty() { original } else { format!("({conditions}{{ {original} }})") }
            }
            Change::Guard => {
                let shown = shorten(&self.text[place.range.clone()]);
                let always = self.condition(place, format!("guard `{shown}` is true"));
                let never = self.condition(place, format!("guard `{shown}` is false"));
                let guard = never.map_or(format!("({original})"), |on| format!("(!{on} && ({original}))"));
                always.map(|on| format!("({on} || {guard})")).unwrap_or(guard)
            }
            Change::Arm => {
                let line = self.text[..place.range.end].lines().next_back().unwrap_or_default();
                let condition = self.condition(place, format!("without the arm `{}`", shorten(line)));
                condition.map(|on| format!(" if !{on}")).unwrap_or_default()
            }
            Change::Return(values) => {
                let returns = values.iter().map(|value| {
                    let condition = self.condition(place, format!("returns {value}"));
                    condition.map(|on| format!(" if {on} {{ return {value}; }}")).unwrap_or_default()
                });
                returns.collect()
            }
        }
    }

    /// The condition of the next mutant; `None` if it is left out.
    fn condition(&mut self, place: &Place, label: String) -> Option<String> {
        let number = *self.next;
        *self.next += 1;
        if self.left_out.contains(&number) {
            return None;
        }
        let Place { line, function, .. } = place;
        let (file, function) = (self.name.clone(), function.clone());
        self.mutants.push(Mutant { number, file, line: *line, function, label });
        Some(format!("::{ON}{number})"))
    }
}

/// An expression on one line.
fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests;
