//! The grammar of strongSwan's settings.

use super::include;
use super::tree::{Section, Tree, Value};
use super::{At, Files, Sources};
use std::path::{Path, PathBuf};

/// Deepest nesting of includes, as in strongSwan.
const MAX_INCLUDES: usize = 10;
/// Deepest nesting of sections, far more than a configuration needs.
const MAX_NESTING: usize = 32;

/// A fault of syntax.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) at: At,
    pub(super) text: String,
    /// False if parsing continues.
    pub(super) fatal: bool,
}

/// The result of parsing.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) tree: Tree,
    pub(super) sources: Sources,
    pub(super) troubles: Vec<Trouble>,
}

/// Reads a file and all that it includes.
pub(super) fn read(path: &Path, files: &dyn Files) -> Parsed {
    let mut parsed = Parsed::default();
    let mut reader = Reader { files, sources: Sources::default(), troubles: Vec::new() };
    match files.read(path) {
        Ok(octets) => reader.file(path, &octets, &mut parsed.tree.root, 0),
        Err(error) => {
            let file = reader.sources.add(path.to_owned());
            reader.trouble(At { file, line: 0 }, error.to_string(), true);
        }
    }
    Parsed { sources: reader.sources, troubles: reader.troubles, ..parsed }
}

struct Reader<'a> {
    files: &'a dyn Files,
    sources: Sources,
    troubles: Vec<Trouble>,
}

impl Reader<'_> {
    fn trouble(&mut self, at: At, text: String, fatal: bool) {
        self.troubles.push(Trouble { at, text, fatal });
    }

    fn file(&mut self, path: &Path, octets: &[u8], into: &mut Section, depth: usize) {
        let file = self.sources.add(path.to_owned());
        let at = At { file, line: 1 };
        let (text, strays) = decode(octets);
        let mut text = Text::new(&text, &strays, at);
        if text.skip_byte_order_mark() {
            let why = "found a byte order mark, which no editor shows (octets EF BB BF); swanctl takes it for a part of the \
                       first name, and does not find that section";
            self.trouble(at, why.to_owned(), true);
        }
        let mut context = StatementContext {
            directory: path.parent().unwrap_or(Path::new("")).to_owned(),
            depth,
            nesting: 0,
        };
        if let Err(trouble) = self.statements(&mut text, into, &mut context) {
            self.troubles.push(trouble);
        }
    }

    /// Parses up to the end of the section or file.
    fn statements(
        &mut self,
        text: &mut Text<'_>,
        into: &mut Section,
        context: &mut StatementContext,
    ) -> Result<(), Trouble> {
        loop {
            text.skip_space();
            // Comments may have any encoding.
            text.stray();
            let at = text.at;
            match text.peek() {
                None if context.nesting == 0 => return Ok(()),
                None => {
                    let opened = into.places.last().copied().unwrap_or_default().line;
                    let name = &into.name;
                    return text.fail(format!(
                        "found the end of the file, expected }} of section {name} of line {opened}"
                    ));
                }
                Some('}') if context.nesting == 0 => {
                    return text.fail("found }, which closes no section".to_owned());
                }
                Some('}') => {
                    text.advance();
                    return Ok(());
                }
                Some(c) if !is_of_name(c) => {
                    return text.fail(format!("found {c:?}, expected the name of a key or section"));
                }
                Some(_) => {}
            }
            let name = text.name();
            if name == "include" && text.begins_include() {
                let pattern = text.include_pattern()?;
                self.include(at, &pattern, into, context);
                continue;
            }
            self.statement(text, name, at, into, context)?;
        }
    }

    fn statement(
        &mut self,
        text: &mut Text<'_>,
        name: String,
        at: At,
        into: &mut Section,
        context: &mut StatementContext,
    ) -> Result<(), Trouble> {
        text.skip_space();
        match text.peek() {
            Some('=') => {
                text.advance();
                let value = text.value()?;
                into.set(Value { name, text: value, at, stray: text.stray(), before: None });
                Ok(())
            }
            Some('{' | ':') => {
                let stray = text.stray();
                let references = text.references()?;
                if context.nesting >= MAX_NESTING {
                    return text.fail(format!(
                        "found section {name}, expected at most {MAX_NESTING} levels of sections"
                    ));
                }
                let section = into.enter(name, at);
                section.references.extend(references);
                section.stray = section.stray.or(stray);
                context.nesting += 1;
                self.statements(text, section, context)?;
                context.nesting -= 1;
                Ok(())
            }
            Some(c) => text.fail(format!("found {c:?} behind {name}, expected =, {{ or :")),
            None => text.fail(format!("found the end of the file behind {name}, expected =, {{ or :")),
        }
    }

    /// Parses files into the section that includes them.
    fn include(&mut self, at: At, pattern: &str, into: &mut Section, context: &StatementContext) {
        if context.depth >= MAX_INCLUDES {
            return self.trouble(
                at,
                format!("include {pattern}: more than {MAX_INCLUDES} nested includes"),
                true,
            );
        }
        let found = include::find(&context.directory, pattern, self.files);
        if found.is_empty() && !include::is_pattern(pattern) {
            return self.trouble(at, format!("include {pattern}: there is no such file"), false);
        }
        for path in found {
            match self.files.read(&path) {
                Ok(octets) => self.file(&path, &octets, into, context.depth + 1),
                Err(error) => self.trouble(at, format!("include {}: {error}", path.display()), false),
            }
        }
    }
}

/// The context of a statement.
struct StatementContext {
    /// The directory of the file, which includes are relative to.
    directory: PathBuf,
    /// Number of files that include this file, one inside another.
    depth: usize,
    /// Number of sections of the file around the statement.
    nesting: usize,
}

fn is_of_name(c: char) -> bool {
    !matches!(c, '#' | '{' | '}' | ':' | '.' | ',' | '=' | '"' | '\r' | '\n' | '\t' | ' ')
}

/// Text with replacement characters for what is not UTF-8, and the place and first octet of each.
fn decode(octets: &[u8]) -> (String, Vec<(usize, u8)>) {
    let (mut text, mut strays) = (String::with_capacity(octets.len()), Vec::new());
    for chunk in octets.utf8_chunks() {
        text.push_str(chunk.valid());
        if let Some(first) = chunk.invalid().first() {
            strays.push((text.len(), *first));
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    (text, strays)
}

/// The text that is not parsed yet.
struct Text<'a> {
    rest: &'a str,
    at: At,
    /// Length of the whole text.
    len: usize,
    /// Places and octets that are not UTF-8 and not passed yet.
    strays: &'a [(usize, u8)],
    /// The first such octet that was passed since the last call of [`Text::stray`].
    stray: Option<u8>,
}

impl<'a> Text<'a> {
    fn new(text: &'a str, strays: &'a [(usize, u8)], at: At) -> Self {
        Self { rest: text, at, len: text.len(), strays, stray: None }
    }
}

impl Text<'_> {
    /// True if the text begins with U+FEFF.
    fn skip_byte_order_mark(&mut self) -> bool {
        let rest = self.rest.strip_prefix('\u{feff}');
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// The first octet that is not UTF-8 of what was parsed since the last call.
    fn stray(&mut self) -> Option<u8> {
        self.stray.take()
    }

    fn fail<T>(&self, text: String) -> Result<T, Trouble> {
        Err(Trouble { at: self.at, text, fatal: true })
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn advance(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next()?;
        if let Some(((_, octet), behind)) =
            self.strays.split_first().filter(|((at, _), _)| *at == self.len - self.rest.len())
        {
            self.stray.get_or_insert(*octet);
            self.strays = behind;
        }
        self.rest = chars.as_str();
        if next == '\n' {
            self.at.line = self.at.line.saturating_add(1);
        }
        Some(next)
    }

    /// Takes characters as long as they fit.
    fn take(&mut self, fits: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(c) = self.peek().filter(|c| fits(*c)) {
            taken.push(c);
            self.advance();
        }
        taken
    }

    fn name(&mut self) -> String {
        self.take(is_of_name)
    }

    /// Skips white space, ends of lines and comments.
    fn skip_space(&mut self) {
        while let Some(c) = self.peek() {
            match c {
                '#' => drop(self.take(|c| c != '\n')),
                ' ' | '\t' | '\r' | '\n' => {
                    self.advance();
                }
                _ => return,
            }
        }
    }

    /// Called after the word `include`: true if a file name follows, false if the word is a key.
    fn begins_include(&self) -> bool {
        let behind = self.rest.trim_start_matches([' ', '\t']);
        behind.len() < self.rest.len() && !behind.starts_with('=')
    }

    fn include_pattern(&mut self) -> Result<String, Trouble> {
        self.take(|c| matches!(c, ' ' | '\t'));
        if self.peek() == Some('"') {
            return self.string();
        }
        let mut pattern = String::new();
        while let Some(c) = self.peek().filter(|c| !matches!(c, '#' | '}' | '\n' | '\t' | ' ' | '\r')) {
            self.advance();
            let escaped = self.peek().filter(|next| c == '\\' && matches!(next, '"' | '#' | '}' | ' '));
            pattern.push(escaped.unwrap_or(c));
            if escaped.is_some() {
                self.advance();
            }
        }
        Ok(pattern)
    }

    /// Parses a value up to the end of the line or section: words and strings, joined by one space.
    fn value(&mut self) -> Result<Option<String>, Trouble> {
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                None | Some('#' | '}' | '\n') => break,
                Some(' ' | '\t' | '\r') => {
                    self.advance();
                }
                Some('"') => parts.push(self.string()?),
                Some(_) => {
                    parts.push(self.take(|c| !matches!(c, '#' | '}' | '"' | '\r' | '\n' | '\t' | ' ')));
                }
            }
        }
        Ok(if parts.is_empty() { None } else { Some(parts.join(" ")) })
    }

    /// Parses a quoted string with escapes.
    fn string(&mut self) -> Result<String, Trouble> {
        let begin = self.at;
        self.advance();
        let mut string = String::new();
        loop {
            match self.advance() {
                None => {
                    let text = "found the end of the file, expected a closing \"".to_owned();
                    return Err(Trouble { at: begin, text, fatal: true });
                }
                Some('"') => return Ok(string),
                Some('\r') => {}
                Some('\\') => match self.advance() {
                    Some('n') => string.push('\n'),
                    Some('r') => string.push('\r'),
                    Some('t') => string.push('\t'),
                    // An escaped end of line joins the lines.
                    Some('\n') | None => {}
                    Some('\r') => {
                        self.peek().filter(|c| *c == '\n').and_then(|_| self.advance());
                    }
                    Some(c) => string.push(c),
                },
                Some(c) => string.push(c),
            }
        }
    }

    /// Parses `: name, name {`, or `{` alone.
    fn references(&mut self) -> Result<Vec<(String, At)>, Trouble> {
        let mut references = Vec::new();
        if self.peek() == Some(':') {
            loop {
                self.advance();
                self.skip_space();
                let at = self.at;
                let reference = self.take(|c| c == '.' || is_of_name(c));
                if reference.is_empty() {
                    return self.fail("found no name of a section after : or ,".to_owned());
                }
                references.push((reference, at));
                self.skip_space();
                if self.peek() != Some(',') {
                    break;
                }
            }
        }
        match self.peek() {
            Some('{') => {
                self.advance();
                Ok(references)
            }
            Some(c) => self.fail(format!("found {c:?}, expected {{")),
            None => self.fail("found the end of the file, expected {".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
