//! `local` and `remote`: one round of authentication with a pre-shared key.

use super::fields::Fields;
use super::keys::AUTH;
use super::refusal::{Refusal, because};
use super::{identity, value};
use testudo_ike::config::{AuthMethod, Identity};

/// A round of authentication.
pub(super) struct Auth {
    pub(super) id: Option<Identity>,
    pub(super) method: AuthMethod,
}

/// Takes the one section whose name begins with `side`.
pub(super) fn auth(conn: &mut Fields<'_>, side: &'static str) -> Result<Auth, Refusal> {
    let mut rounds = conn.sections(side)?.into_iter();
    let Some((_, first)) = rounds.next() else {
        return Err(Refusal::Missing { path: conn.path(side), expected: "a section with auth = psk" });
    };
    if let Some((name, _)) = rounds.next() {
        let path = conn.path(name);
        let what = "a second round of authentication (RFC 4739)";
        return Err(Refusal::Unsupported { path, found: "a second section".to_owned(), what, expected: "" });
    }
    round(first)
}

fn round(section: Fields<'_>) -> Result<Auth, Refusal> {
    let mut section = section.known(AUTH)?;
    let missing = Refusal::Missing {
        path: section.path("auth"),
        expected: "psk (strongSwan's default, pubkey, is not supported)",
    };
    let method = section.parsed("auth", |text| {
        if text.eq_ignore_ascii_case("psk") {
            return Ok(AuthMethod::Psk);
        }
        Err(because("but this method is not supported; expected psk".to_owned()))
    })?;
    let id = section.parsed("id", identity::parse)?.flatten();
    // With a single round its order says nothing.
    section.parsed("round", value::number32)?;
    section.finish_with(AUTH)?;
    Ok(Auth { id, method: method.ok_or(missing)? })
}
