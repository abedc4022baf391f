//! Lists of processors as the kernel writes them: `0-3,8`.

use std::collections::BTreeSet;

/// The numbers of a list; text that is no list gives none.
pub(super) fn parse(text: &str) -> BTreeSet<usize> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_numbers_are_read() {
        assert_eq!(parse("0-2,8\n"), [0, 1, 2, 8].into());
        assert_eq!(parse("3"), [3].into());
        assert_eq!(parse("\n"), [].into());
        assert_eq!(parse("all"), [].into());
    }
}
