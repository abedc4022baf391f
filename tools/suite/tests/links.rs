//! Every relative link in a Markdown file of the repository refers to an existing file, and its
//! anchor to a heading; every page below docs/ is in docs/SUMMARY.md, and so in the book.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Directories whose Markdown belongs to others or is generated.
const SKIPPED: [&str; 4] = ["target", "corpus", "artifacts", "node_modules"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Adds the Markdown files below `dir`.
fn collect(dir: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !name.starts_with('.') && !SKIPPED.contains(&name) {
                collect(&path, found);
            }
        } else if name.ends_with(".md") {
            found.insert(path);
        }
    }
}

/// The links of a page, by line, and its anchors.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut fence: Option<&str> = None;
        let mut repeated: BTreeMap<String, usize> = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let start = line.trim_start();
            match fence {
                Some(mark) if start.starts_with(mark) => fence = None,
                Some(_) => {}
                None if start.starts_with("```") => fence = Some("```"),
                None if start.starts_with("~~~") => fence = Some("~~~"),
                None => {
                    if let Some(heading) = heading(line) {
                        let slug = slug(heading);
                        let count = repeated.entry(slug.clone()).or_default();
                        page.anchors.insert(match *count {
                            0 => slug,
                            again => format!("{slug}-{again}"),
                        });
                        *count += 1;
                    }
                    page.links.extend(links(line).into_iter().map(|link| (number, link)));
                }
            }
        }
        page
    }
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| text.trim())
}

/// The anchor that GitLab, GitHub and mdBook give a heading.
fn slug(heading: &str) -> String {
    let text = without_targets(heading).to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A heading without the targets of its links.
fn without_targets(text: &str) -> String {
    let mut words = text.to_owned();
    while let Some((open, close)) = target_of(&words) {
        words.replace_range(open - 1..=close, "");
    }
    words
}

/// Where the next `](...)` begins, after its `]`, and ends.
fn target_of(text: &str) -> Option<(usize, usize)> {
    let open = text.find("](")? + 1;
    let close = open + text.get(open..)?.find(')')?;
    Some((open, close))
}

/// The targets of the links and pictures in a line. Code has none.
fn links(line: &str) -> Vec<String> {
    let text: Vec<&str> = line.split('`').step_by(2).collect();
    // A link's text may be code: `[`name`](target)`.
    let mut rest = text.join("code");
    let mut found = Vec::new();
    while let Some((open, close)) = target_of(&rest) {
        let target = rest[open + 1..close].split_whitespace().next().unwrap_or_default();
        found.push(target.to_owned());
        rest.drain(..=close);
    }
    if let Some((label, target)) = line.split_once("]: ")
        && label.starts_with('[')
        && !label.contains(' ')
    {
        found.push(target.split_whitespace().next().unwrap_or_default().to_owned());
    }
    found
}

/// `path` without `.` and `..`, whether it exists or not.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

fn pages() -> BTreeMap<PathBuf, Page> {
    let mut files = BTreeSet::new();
    collect(&workspace(), &mut files);
    let read = |file: PathBuf| {
        let page = Page::parse(&fs::read_to_string(&file).unwrap());
        (file, page)
    };
    files.into_iter().map(read).collect()
}

/// Why a link is broken.
fn broken(from: &Path, link: &str, pages: &BTreeMap<PathBuf, Page>) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let to = match file {
        "" => from.to_owned(),
        file => normal(&from.parent().unwrap().join(file)),
    };
    if !to.exists() {
        return Some("no such file".to_owned());
    }
    let anchor = anchor?;
    let known = pages.get(&to).is_some_and(|page| page.anchors.contains(anchor));
    (!known).then(|| format!("no heading has the anchor #{anchor}"))
}

#[test]
fn every_link_leads_somewhere() {
    let (root, pages) = (workspace(), pages());
    let mut wrong = Vec::new();
    let mut followed = 0;
    for (file, page) in &pages {
        for (line, link) in &page.links {
            followed += 1;
            if let Some(why) = broken(file, link, &pages) {
                let file = file.strip_prefix(&root).unwrap().display();
                wrong.push(format!("{file}:{line}: {link}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} links lead nowhere:\n{}", wrong.len(), wrong.join("\n"));
    assert!(followed > 100, "the pages were not understood: {followed} links");
}

#[test]
fn every_page_is_in_the_book() {
    let docs = workspace().join("docs");
    let summary = docs.join("SUMMARY.md");
    let listed = Page::parse(&fs::read_to_string(&summary).unwrap()).links;
    let listed: BTreeSet<PathBuf> = listed.iter().map(|(_, link)| normal(&docs.join(link))).collect();
    let mut files = BTreeSet::new();
    collect(&docs, &mut files);
    files.remove(&summary);
    let missing: Vec<_> = files.difference(&listed).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

#[test]
fn links_are_recognized() {
    for (line, expected) in [
        ("see [a](b.md) and [c](d.md#e)", vec!["b.md", "d.md#e"]),
        ("![picture](p.svg) [`code`](x.md)", vec!["p.svg", "x.md"]),
        ("`[not](a.md)` and [yes](b.md)", vec!["b.md"]),
        ("[label]: target.md", vec!["target.md"]),
        ("an array[1] (no link)", vec![]),
    ] {
        assert_eq!(links(line), expected, "{line}");
    }
}

#[test]
fn headings_have_the_anchors_that_readers_see() {
    let text = "# What fails, and what follows\n## `a.b`: [c](d.md)'s\n```\n# no\n```\n## X\n## X\n#no\n";
    let anchors = Page::parse(text).anchors;
    let expected = ["what-fails-and-what-follows", "ab-cs", "x", "x-1"];
    assert_eq!(anchors, expected.map(str::to_owned).into());
}
