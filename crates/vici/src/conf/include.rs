//! The files that an `include` names: shell patterns, relative to the including file.

use super::Files;
use std::path::{Component, Path, PathBuf};

/// True if it may match several files, or none.
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The matching files, sorted by name.
pub(super) fn find(directory: &Path, pattern: &str, files: &dyn Files) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    for component in Path::new(pattern).components() {
        let name = component.as_os_str().to_string_lossy();
        found = match component {
            Component::Normal(_) if is_pattern(&name) => {
                found.iter().flat_map(|within| fitting(within, &name, files)).collect()
            }
            // An absolute path replaces the path so far.
            component => found.iter().map(|within| within.join(component)).collect(),
        };
    }
    found.retain(|path| exists(path, files));
    found
}

fn exists(path: &Path, files: &dyn Files) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    name.is_some_and(|name| files.list(directory).is_ok_and(|names| names.contains(&name)))
}

fn fitting(directory: &Path, pattern: &str, files: &dyn Files) -> Vec<PathBuf> {
    let place = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let mut names = files.list(place).unwrap_or_default();
    names.sort();
    // Hidden files match only a pattern that starts with a dot.
    let hidden = pattern.starts_with('.');
    let fits = |name: &&String| name.starts_with('.') == hidden && fits(pattern, name);
    names.iter().filter(fits).map(|name| directory.join(name)).collect()
}

/// Matches shell patterns: `*` any text, `?` any character, `[abc]`, `[a-z]` and `[!abc]` one of a
/// set.
fn fits(pattern: &str, name: &str) -> bool {
    let (mut rest, mut name) = (pattern.chars(), name.chars());
    loop {
        match rest.next() {
            None => return name.as_str().is_empty(),
            Some('*') => {
                let behind = rest.as_str();
                let text = name.as_str();
                return text
                    .char_indices()
                    .filter_map(|(at, _)| text.get(at..))
                    .chain([""])
                    .any(|tail| fits(behind, tail));
            }
            Some('?') if name.next().is_some() => {}
            Some('[') => {
                let Some((set, behind)) = rest.as_str().split_once(']') else { return false };
                if !name.next().is_some_and(|c| is_one_of(set, c)) {
                    return false;
                }
                rest = behind.chars();
            }
            Some(c) => {
                if c == '?' || name.next() != Some(c) {
                    return false;
                }
            }
        }
    }
}

fn is_one_of(set: &str, c: char) -> bool {
    let (set, wanted) = match set.strip_prefix(['!', '^']) {
        Some(set) => (set, false),
        None => (set, true),
    };
    let chars: Vec<char> = set.chars().collect();
    let in_range = |range: &[char]| matches!(range, [first, '-', last] if (*first..=*last).contains(&c));
    (chars.contains(&c) || chars.windows(3).any(in_range)) == wanted
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_are_those_of_a_shell() {
        for (pattern, name) in [
            ("*.conf", "a.conf"),
            ("*", "a"),
            ("a?c*", "abc"),
            ("[a-c]x", "bx"),
            ("[!a]x", "bx"),
            ("*a*b", "xaxbab"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("*.conf", "a.conf.bak"), ("?", ""), ("?", "ab"), ("[abc]", "d"), ("[a", "a")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
