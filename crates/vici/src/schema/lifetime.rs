//! Lifetimes: `rekey_time`, `life_bytes` and the like, with strongSwan's defaults.

use super::fields::Fields;
use super::refusal::{Refusal, Why};
use super::value;
use testudo_ike::config::{CHILD_REKEY_SECONDS, ChildLifetime, IKE_REKEY_SECONDS, IkeLifetime, Lifetime};

/// Default `rekey_bytes` of a child with blocks of 64 bits: one in 2000 such SAs then has two equal
/// blocks.
const SMALL_BLOCKS_REKEY_OCTETS: u64 = 1 << 30;

pub(super) fn ike(section: &mut Fields<'_>) -> Result<IkeLifetime, Refusal> {
    let rekey = section.parsed("rekey_time", seconds)?;
    let reauth = section.parsed("reauth_time", seconds)?;
    let over = section.parsed("over_time", seconds)?;
    let rand = section.parsed("rand_time", seconds)?;
    // The default applies only if neither key is given.
    let rekey = rekey.unwrap_or(if reauth.is_none() { IKE_REKEY_SECONDS } else { 0 });
    Ok(IkeLifetime::with_reauth(rekey, reauth.unwrap_or(0), over, rand))
}

/// `small_blocks`: one of its ciphers has blocks of 64 bits.
pub(super) fn child(section: &mut Fields<'_>, small_blocks: bool) -> Result<ChildLifetime, Refusal> {
    Ok(ChildLifetime {
        time: one(section, "time", CHILD_REKEY_SECONDS, seconds)?,
        bytes: one(section, "bytes", if small_blocks { SMALL_BLOCKS_REKEY_OCTETS } else { 0 }, value::size)?,
        packets: one(section, "packets", 0, value::number)?,
    })
}

fn one(
    section: &mut Fields<'_>,
    measure: &str,
    rekey: u64,
    parse: fn(&str) -> Result<u64, Why>,
) -> Result<Lifetime, Refusal> {
    let rekey = section.parsed(&format!("rekey_{measure}"), parse)?.unwrap_or(rekey);
    let life = section.parsed(&format!("life_{measure}"), parse)?;
    let rand = section.parsed(&format!("rand_{measure}"), parse)?;
    Ok(Lifetime::new(rekey, life, rand))
}

fn seconds(text: &str) -> Result<u64, Why> {
    value::seconds(text).map(|time| time.as_secs())
}
