use super::super::tree;
use super::*;
use crate::trust::Untrusted;
use std::io;

struct Fake(Vec<(&'static str, &'static str)>);

impl Files for Fake {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let found = self.0.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let within =
            self.0.iter().map(|(name, _)| Path::new(name)).filter(|path| path.parent() == Some(directory));
        Ok(within.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn runs(&self, _: &Path) -> Result<(), Untrusted> {
        Ok(())
    }
}

fn values(parsed: &Parsed, path: &[&str]) -> Vec<(String, String)> {
    let found = tree::values(&parsed.tree.views(path));
    found.into_iter().map(|(value, text)| (value.name.clone(), text.to_owned())).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// As strongSwan's own tests of its settings have it.
#[test]
fn values_are_words_and_strings() {
    let text = "a {\none=1 # comment\ntwo = a   b\t c\nthree = \"x # } \\\"y\\\" \\t\\\nz\" w\nempty =\nfour = v } \
                b { include = 5 }\n";
    let parsed = read(Path::new("/f"), &Fake(vec![("/f", text)]));
    assert_eq!(parsed.troubles, []);
    let a = [("one", "1"), ("two", "a b c"), ("three", "x # } \"y\" \tz w"), ("four", "v")];
    assert_eq!(values(&parsed, &["a"]), pairs(&a));
    assert_eq!(values(&parsed, &["b"]), pairs(&[("include", "5")]));
    let lines: Vec<u32> = parsed.tree.root.sections[0].values.iter().map(|value| value.at.line).collect();
    assert_eq!(lines, [2, 3, 4, 6, 7], "a joined line counts");
}

#[test]
fn a_key_without_value_hides_that_of_a_template() {
    let text = "t {\nx = 1\ny = 2\n}\na : t {\nx =\n}\nb : a, t {\ny = 3\n}\n";
    let parsed = read(Path::new("/f"), &Fake(vec![("/f", text)]));
    assert_eq!(values(&parsed, &["a"]), pairs(&[("y", "2")]));
    assert_eq!(values(&parsed, &["b"]), pairs(&[("y", "3")]));
}

#[test]
fn templates_that_refer_to_each_other_end() {
    let parsed = read(Path::new("/f"), &Fake(vec![("/f", "a : b {\n}\nb : a {\nx = 1\n}\n")]));
    assert_eq!(values(&parsed, &["a"]), pairs(&[("x", "1")]));
}

#[test]
fn files_are_included_in_the_section_that_names_them() {
    let files = Fake(vec![
        ("/d/f", "s {\ninclude sub/*.conf\ninclude \"/d/other\"\ny = 2\n}\ninclude gone\ninclude none.*\n"),
        ("/d/sub/b.conf", "x = b\ninclude more\n"),
        ("/d/sub/a.conf", "x = a\n"),
        ("/d/sub/more", "w = 1\n"),
        ("/d/other", "z = 3\n"),
    ]);
    let parsed = read(Path::new("/d/f"), &files);
    assert_eq!(values(&parsed, &["s"]), pairs(&[("x", "b"), ("w", "1"), ("z", "3"), ("y", "2")]));
    let said: Vec<_> = parsed.troubles.iter().map(|t| (t.at.line, t.text.as_str(), t.fatal)).collect();
    assert_eq!(said, [(6, "include gone: there is no such file", false)]);
}

#[test]
fn a_file_that_includes_itself_ends() {
    let parsed = read(Path::new("/f"), &Fake(vec![("/f", "include f\n")]));
    assert!(parsed.troubles[0].text.contains("more than 10 nested includes"));
}

#[test]
fn syntax_errors_are_reported_with_their_lines() {
    for (text, line, said) in [
        ("a {\nb\n}\n", 3, "found '}' behind b, expected =, { or :"),
        ("a.b = 1\n", 1, "found '.' behind a, expected =, { or :"),
        ("a {\nx = \"y\n}\n", 2, "found the end of the file, expected a closing \""),
        ("a : {\n}\n", 1, "found no name of a section after : or ,"),
        ("\n\"a\" = 1\n", 2, "found '\"', expected the name of a key or section"),
        ("a {\n\n", 3, "found the end of the file, expected } of section a of line 1"),
        ("a : b\n", 2, "found the end of the file, expected {"),
    ] {
        let files = Fake(vec![]);
        let mut reader = Reader { files: &files, sources: Sources::default(), troubles: Vec::new() };
        reader.file(Path::new("/f"), text.as_bytes(), &mut Section::default(), 0);
        let found: Vec<_> = reader.troubles.iter().map(|t| (t.at.line, t.text.as_str(), t.fatal)).collect();
        assert_eq!(found, [(line, said, true)], "{text:?}");
    }
}
