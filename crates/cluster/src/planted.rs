//! Bugs planted on purpose, each behind a cargo feature that is off: the simulator's tests compile them in and must find each one.
//! That shows that its checks bite.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planted {
    /// The cargo feature.
    pub feature: &'static str,
    /// What goes wrong.
    pub what: &'static str,
    /// Which invariant of the design it breaks, 1 to 6; 0: nodes no longer agree, or never come to rest.
    pub breaks: u8,
}

macro_rules! planted {
    ($($feature:literal breaks $breaks:literal: $what:literal,)*) => {
        /// Those of this crate.
        pub const ALL: &[Planted] = &[$(Planted { feature: $feature, what: $what, breaks: $breaks },)*];

        /// True if any is compiled in: nothing that carries traffic may be.
        pub const ANY: bool = cfg!(any($(feature = $feature,)*));
    };
}

planted! {
    "plant-commit-on-self-delivery" breaks 4: "a message counts as stable once it is delivered to its sender",
    "plant-lease-without-majority" breaks 1: "a sender ID is granted once the request for it is delivered to its node",
    "plant-unsorted-view" breaks 0: "each node takes the members of a view in the order that its engine tells them in",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_manifest_name_the_same_features() {
        let manifest = include_str!("../Cargo.toml");
        let features: Vec<&str> = manifest
            .lines()
            .filter_map(|line| line.split_once(" = []"))
            .map(|(name, _)| name)
            .filter(|name| name.starts_with("plant-"))
            .collect();
        let table: Vec<&str> = ALL.iter().map(|planted| planted.feature).collect();
        assert_eq!(features, table);
    }
}
