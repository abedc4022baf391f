//! `load-shared`: pre-shared keys, post-quantum ones among them. `swanctl` decodes `0x`, `0s` and
//! quotes before it sends the octets.

use super::connection::check_name;
use super::fields::Fields;
use super::identity;
use super::refusal::{Refusal, because, expected};
use crate::message::Message;
use testudo_ike::config::{Identity, SecretKind, SharedSecret};

/// Decodes the argument of `load-shared`.
pub fn shared_secret(message: &Message) -> Result<SharedSecret, Refusal> {
    let id = message.text("id").filter(|id| !id.is_empty());
    if let Some(id) = id {
        check_name(id, "secrets")?;
    }
    let mut section = Fields::new(&id.map_or("secrets".to_owned(), |id| format!("secrets.{id}")), message)?;
    section.text("id")?;
    let kind = section.parsed("type", |text| match text.to_ascii_lowercase().as_str() {
        "ike" => Ok(SecretKind::Ike),
        "ppk" => Ok(SecretKind::Ppk),
        "eap" | "xauth" | "ntlm" => {
            Err(because("but secrets of this type are not supported; expected ike or ppk".to_owned()))
        }
        _ => Err(expected("ike or ppk")),
    })?;
    let kind = kind.ok_or_else(|| Refusal::Missing { path: section.path("type"), expected: "ike or ppk" })?;
    let data = section.blob("data")?.filter(|data| !data.bytes().is_empty());
    let data = data.ok_or_else(|| Refusal::Missing { path: section.path("data"), expected: "the key" })?;
    let owners = section.list("owners", identity::parse)?.unwrap_or_default();
    let path = section.path("owners");
    section.finish()?;
    let named: Vec<Identity> = owners.iter().flatten().cloned().collect();
    if !named.is_empty() && named.len() < owners.len() {
        let why = "which makes it the key of every peer; expected either identities or %any alone".to_owned();
        return Err(Refusal::Bad { path, found: "%any beside other identities".to_owned(), why });
    }
    let name = id.map_or_else(|| name_of_owners(kind, &named), str::to_owned);
    Ok(SharedSecret { name, kind, owners: named, secret: data.bytes().to_vec() })
}

/// The name of a secret that its client has not named: it is made of the owners, so that a later
/// secret of the same owners replaces it.
fn name_of_owners(kind: SecretKind, owners: &[Identity]) -> String {
    let kind = match kind {
        SecretKind::Ike => "ike",
        SecretKind::Ppk => "ppk",
    };
    if owners.is_empty() {
        return format!("{kind}-of-anybody");
    }
    let owners: Vec<_> = owners.iter().map(crate::render::exact_identity).collect();
    format!("{kind}-of-{}", owners.join(","))
}
