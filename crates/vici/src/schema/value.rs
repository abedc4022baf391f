//! Scalars: booleans, numbers, times.

use super::refusal::{Why, expected};
use std::net::IpAddr;
use std::time::Duration;

/// `yes`, `no` and their synonyms in strongSwan.
pub(crate) fn boolean(text: &str) -> Result<bool, Why> {
    let is = |words: [&str; 4]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(["yes", "true", "enabled", "1"]) {
        Ok(true)
    } else if is(["no", "false", "disabled", "0"]) {
        Ok(false)
    } else {
        Err(expected("yes or no"))
    }
}

/// Parses decimal digits. A leading 0 is refused, because strongSwan reads it as octal.
fn digits(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|c| c.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

/// A number in decimal.
pub(crate) fn number(text: &str) -> Result<u64, Why> {
    digits(text).ok_or_else(|| expected("a decimal number"))
}

/// An IP address.
pub(crate) fn ip_address(text: &str) -> Result<IpAddr, Why> {
    text.parse().map_err(|_| expected("an IP address"))
}

/// What a path takes: as much as every host of IPv4 has to take, or more.
pub(crate) fn path_mtu(text: &str) -> Result<u16, Why> {
    let octets = digits(text).and_then(|octets| octets.try_into().ok());
    octets.filter(|octets| *octets >= 576).ok_or_else(|| expected("a number of octets from 576 to 65535"))
}

/// The holder of a path's MTU: a name that no other client uses.
pub(crate) fn holder(text: &str) -> Result<&str, Why> {
    let is_name = !text.is_empty() && text.len() <= 255;
    if is_name { Ok(text) } else { Err(expected("a name of up to 255 octets")) }
}

/// A number in decimal that fits in 32 bits.
pub(super) fn number32(text: &str) -> Result<u32, Why> {
    let why = || expected("a decimal number of at most 4294967295");
    digits(text).and_then(|number| number.try_into().ok()).ok_or_else(why)
}

/// A UDP port, never 0.
pub(super) fn udp_port(text: &str) -> Result<u16, Why> {
    let why = || expected("a port from 1 to 65535");
    digits(text).and_then(|port| port.try_into().ok()).filter(|port| *port != 0).ok_or_else(why)
}

/// A number in decimal that may be negative.
pub(crate) fn signed(text: &str) -> Result<i64, Why> {
    let (magnitude, negative) = match text.strip_prefix('-') {
        Some(magnitude) => (magnitude, true),
        None => (text, false),
    };
    let value = digits(magnitude).and_then(|number| i64::try_from(number).ok());
    value.map(|value| if negative { -value } else { value }).ok_or_else(|| expected("a number"))
}

/// A time: seconds, or with a suffix s, m, h or d.
pub(super) fn seconds(text: &str) -> Result<Duration, Why> {
    let why = || expected("a time such as 30s, 5m, 1h or 1d");
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text.get(number.len()..).unwrap_or_default() {
        "" | "s" | "S" => 1,
        "m" | "M" => 60,
        "h" | "H" => 3600,
        "d" | "D" => 86400,
        _ => return Err(why()),
    };
    let seconds = digits(number.trim_end_matches(' ')).and_then(|number| number.checked_mul(factor));
    seconds.map(Duration::from_secs).ok_or_else(why)
}

/// A size in octets, or with a suffix k, m or g of 2^10, 2^20 or 2^30.
pub(super) fn size(text: &str) -> Result<u64, Why> {
    let why = || expected("a size such as 500m or 2g");
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(number.len()..).unwrap_or_default() {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return Err(why()),
    };
    let octets = digits(number.trim_end_matches(' ')).and_then(|number| number.checked_mul(1 << shift));
    octets.ok_or_else(why)
}

/// True for 0 in any form that strongSwan takes: number, time, size, hexadecimal, mark with a mask
/// of 0.
pub(super) fn is_zero(text: &str) -> bool {
    let (value, mask) = text.split_once('/').unwrap_or((text, "0"));
    let zero = |text: &str| {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        !digits.is_empty() && digits.bytes().all(|c| c == b'0')
    };
    let number = value.trim_end_matches(|c: char| "sSmMhHdDkKgG".contains(c)).trim_end_matches(' ');
    zero(number) && value.len() - number.len() <= 2 && zero(mask)
}

/// The name of a user, for the log.
pub(crate) fn user(text: &str) -> Result<&str, Why> {
    const MAX_OCTETS: usize = 64;
    let fits = (1..=MAX_OCTETS).contains(&text.len()) && text.chars().all(|c| !c.is_control());
    fits.then_some(text).ok_or_else(|| expected("a name of 1 to 64 octets without control characters"))
}
