//! What a migration requires, what was found, and what to do about it.

use serde::Serialize;

/// Why a requirement is not met.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) found: String,
    pub(super) remedy: String,
}

impl Refusal {
    pub(super) fn new(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { found: found.into(), remedy: remedy.into() }
    }
}

/// One of the four requirements, after it has been examined.
#[derive(Debug, Serialize)]
pub(super) struct Requirement {
    pub(super) number: u8,
    pub(super) required: &'static str,
    pub(super) found: String,
    pub(super) ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Requirement {
    pub(super) fn of(number: u8, required: &'static str, examined: Result<String, Refusal>) -> Self {
        match examined {
            Ok(found) => Self { number, required, found, ok: true, remedy: None },
            Err(Refusal { found, remedy }) => {
                Self { number, required, found, ok: false, remedy: Some(remedy) }
            }
        }
    }

    /// Its line.
    pub(super) fn line(&self) -> String {
        let Self { number, required, found, .. } = self;
        match &self.remedy {
            None => format!("{number} {required}: ok, {found}"),
            Some(remedy) => format!("{number} {required}: refused, {found}; {remedy}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_to_do() {
        let met = Requirement::of(1, "platforms authenticated", Ok("a and b".to_owned()));
        assert_eq!(met.line(), "1 platforms authenticated: ok, a and b");
        let unmet = Requirement::of(4, "watch on", Err(Refusal::new("it is off", "turn it on")));
        assert_eq!(unmet.line(), "4 watch on: refused, it is off; turn it on");
        assert!(met.ok && !unmet.ok);
    }
}
