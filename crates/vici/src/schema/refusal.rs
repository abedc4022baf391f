//! Why a configuration is refused, in words for its author.

/// A fault of a key, with the key's full path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// strongSwan does not know the key either.
    #[error("{path}: unknown key")]
    Unknown {
        /// The key.
        path: String,
    },
    /// strongSwan has this feature and this gateway does not.
    #[error("{path}: found {found}, but {what} is not supported{}", expectation(.expected))]
    Unsupported {
        /// The key.
        path: String,
        /// Its value.
        found: String,
        /// What the value asks for.
        what: &'static str,
        /// The accepted values; empty if only leaving the key out is accepted.
        expected: &'static str,
    },
    /// The value is wrong.
    #[error("{path}: found {found}, {why}")]
    Bad {
        /// The key.
        path: String,
        /// Its value.
        found: String,
        /// What was expected.
        why: String,
    },
    /// A required key is missing.
    #[error("{path}: missing, expected {expected}")]
    Missing {
        /// The key.
        path: String,
        /// What was expected.
        expected: &'static str,
    },
    /// The key occurs twice.
    #[error("{path}: given more than once")]
    Duplicate {
        /// The key.
        path: String,
    },
}

impl Refusal {
    /// The path of the key that is wrong or missing.
    pub fn path(&self) -> &str {
        match self {
            Self::Unknown { path }
            | Self::Unsupported { path, .. }
            | Self::Bad { path, .. }
            | Self::Missing { path, .. }
            | Self::Duplicate { path } => path,
        }
    }
}

fn expectation(expected: &str) -> String {
    if expected.is_empty() { "; leave the key out".to_owned() } else { format!("; expected {expected}") }
}

/// Quotes and escapes a value from a client, and shortens it.
pub(super) fn quote(value: &[u8]) -> String {
    const MAX_CHARS: usize = 80;
    let text = String::from_utf8_lossy(value);
    let mut shown: String = text.chars().take(MAX_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// A fault of a value, without its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Why(pub(super) String);

/// The fault text "expected ...".
pub(super) fn expected(what: &str) -> Why {
    Why(format!("expected {what}"))
}

/// Any other fault text.
pub(super) fn because(what: String) -> Why {
    Why(what)
}
