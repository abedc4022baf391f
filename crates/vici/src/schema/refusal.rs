//! Why a configuration is refused, in words for its author.

/// What is wrong with a key, which is named by its full path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// strongSwan does not know the key either.
    #[error("{path}: unknown key")]
    Unknown {
        /// The key.
        path: String,
    },
    /// strongSwan has it, we do not.
    #[error("{path}: found {found}, but {what} is not supported{}", expectation(.expected))]
    Unsupported {
        /// The key.
        path: String,
        /// Its value.
        found: String,
        /// What the value asks for.
        what: &'static str,
        /// What would be accepted; empty if only leaving the key out would.
        expected: &'static str,
    },
    /// The value makes no sense.
    #[error("{path}: found {found}, {why}")]
    Bad {
        /// The key.
        path: String,
        /// Its value.
        found: String,
        /// What was expected.
        why: String,
    },
    /// The key must be there.
    #[error("{path}: missing, expected {expected}")]
    Missing {
        /// The key.
        path: String,
        /// What was expected.
        expected: &'static str,
    },
    /// The key stands there twice.
    #[error("{path}: given more than once")]
    Duplicate {
        /// The key.
        path: String,
    },
}

impl Refusal {
    /// The key that is wrong, or missing.
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

/// Shows a value from a client: quoted, escaped, not too long.
pub(super) fn quote(value: &[u8]) -> String {
    const MAX_CHARS: usize = 80;
    let text = String::from_utf8_lossy(value);
    let mut shown: String = text.chars().take(MAX_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// What is wrong with a value, apart from where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Why(pub(super) String);

/// What a value should be.
pub(super) fn expected(what: &str) -> Why {
    Why(format!("expected {what}"))
}

/// What is wrong with a value.
pub(super) fn because(what: String) -> Why {
    Why(what)
}
