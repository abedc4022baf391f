//! The daemon itself: `version`, `stats`, `get-algorithms` and lines of its log.

use crate::control::{Stats, Version};
use crate::message::Message;
use crate::schema::Policy;
use crate::server::LogLine;
use std::time::{Duration, SystemTime};

/// The answer to `version`.
pub fn version(version: &Version) -> Message {
    Message::new()
        .with("daemon", version.daemon.as_str())
        .with("version", version.version.as_str())
        .with("sysname", version.sysname.as_str())
        .with("release", version.release.as_str())
        .with("machine", version.machine.as_str())
}

/// The answer to `stats`. charon's job priorities have no counterpart in this gateway: all workers
/// count as critical, and all queues are empty, because packets never wait in one.
pub fn stats(stats: &Stats) -> Message {
    let priorities = |critical: u32| {
        Message::new()
            .with("critical", critical.to_string())
            .with("high", "0")
            .with("medium", "0")
            .with("low", "0")
    };
    let uptime = Message::new().with("running", elapsed(stats.uptime)).with("since", calendar(stats.since));
    let workers = Message::new()
        .with("total", stats.workers.to_string())
        .with("idle", stats.workers_idle.to_string())
        .with_section("active", priorities(stats.workers.saturating_sub(stats.workers_idle)));
    let ike_sas = Message::new()
        .with("total", stats.ike_sas.to_string())
        .with("half-open", stats.ike_sas_half_open.to_string());
    Message::new()
        .with_section("uptime", uptime)
        .with_section("workers", workers)
        .with_section("queues", priorities(0))
        .with("scheduled", stats.scheduled.to_string())
        .with_section("ikesas", ike_sas)
        .with_list("plugins", stats.plugins.iter().map(String::as_str))
}

/// The answer to `get-algorithms`: the algorithms that proposals may name.
pub fn algorithms(policy: Policy) -> Message {
    let section = |names: &[&str], weak: &[&str]| {
        let mut section = Message::new();
        let weak = if policy == Policy::Legacy { weak } else { &[] };
        for name in names.iter().chain(weak) {
            section.add(name, "testudo");
        }
        section
    };
    let integrity = [
        "HMAC_SHA1_96",
        "HMAC_SHA2_256_128",
        "HMAC_SHA2_384_192",
        "HMAC_SHA2_512_256",
        "AES_XCBC_96",
        "AES_CMAC_96",
    ];
    let prf = ["PRF_HMAC_SHA2_256", "PRF_HMAC_SHA2_384", "PRF_HMAC_SHA2_512", "PRF_AES128_XCBC"];
    let hasher = ["HASH_SHA1", "HASH_SHA2_256", "HASH_SHA2_384", "HASH_SHA2_512"];
    // 5.9.8 has the section `dh` for all methods.
    let ke = [
        "CURVE_25519",
        "ECP_256",
        "ECP_384",
        "ECP_521",
        "MODP_2048",
        "MODP_3072",
        "MODP_4096",
        "ML_KEM_512",
        "ML_KEM_768",
        "ML_KEM_1024",
    ];
    Message::new()
        .with_section("encryption", section(&["AES_CBC", "NULL"], &["3DES_CBC"]))
        .with_section("integrity", section(&integrity, &["HMAC_MD5_96"]))
        .with_section("hasher", section(&hasher, &["HASH_MD5"]))
        .with_section("kdf", section(&["KDF_PRF", "KDF_PRF_PLUS"], &[]))
        .with_section(
            "aead",
            section(
                &[
                    "AES_GCM_16",
                    "AES_CCM_8",
                    "AES_CCM_12",
                    "AES_CCM_16",
                    "CHACHA20_POLY1305",
                    "NULL_AES_GMAC",
                ],
                &[],
            ),
        )
        .with_section("prf", section(&prf, &["PRF_HMAC_SHA1"]))
        .with_section("dh", section(&ke, &["MODP_1024", "MODP_1536"]))
}

/// The event for a line of the log, `log` or `control-log`.
pub fn log_line(line: &LogLine<'_>) -> Message {
    let mut message = Message::new().with("group", "IKE").with("level", line.level.to_string());
    if let Some(connection) = line.connection {
        message.add("ikesa-name", connection);
    }
    if let Some(ike) = line.ike {
        message.add("ikesa-uniqueid", ike.0.to_string());
    }
    let mut text = super::sentence(line.message);
    text.truncate(u16::MAX.into());
    message.with("msg", text)
}

/// A duration like strongSwan's `%V`: in one unit, the largest that gives at least two.
fn elapsed(span: Duration) -> String {
    let seconds = span.as_secs();
    let (value, unit) = match seconds {
        172_801.. => (seconds / 86_400, "day"),
        7_201.. => (seconds / 3_600, "hour"),
        121.. => (seconds / 60, "minute"),
        _ => (seconds, "second"),
    };
    format!("{value} {unit}{}", if value == 1 { "" } else { "s" })
}

/// A time like strongSwan's `%T` in UTC: `Nov 21 20:35:00 UTC 2026`.
fn calendar(moment: SystemTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let month = MONTHS.get(month).copied().unwrap_or_default();
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{month} {day:02} {hour:02}:{minute:02}:{second:02} UTC {year:04}")
}

/// Converts days since 1970-01-01 to year, month from 0 and day from 1 of the Gregorian calendar.
fn civil(mut day: u64) -> (u64, usize, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Skips periods of 400 years, which always have 146097 days, to bound the loops below.
    let mut year = 1970 + day / 146_097 * 400;
    day %= 146_097;
    while day >= if leap(year) { 366 } else { 365 } {
        day -= if leap(year) { 366 } else { 365 };
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 0;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_like_strongswan() {
        let at = |seconds| calendar(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "Jan 01 00:00:00 UTC 1970");
        assert_eq!(at(951_782_399), "Feb 28 23:59:59 UTC 2000");
        assert_eq!(at(951_782_400), "Feb 29 00:00:00 UTC 2000");
        assert_eq!(at(1_795_293_300), "Nov 21 20:35:00 UTC 2026");
        assert_eq!(at(4_107_542_400), "Mar 01 00:00:00 UTC 2100");
    }

    #[test]
    fn spans_have_one_unit() {
        let shown = |seconds| elapsed(Duration::from_secs(seconds));
        assert_eq!(shown(1), "1 second");
        assert_eq!(shown(120), "120 seconds");
        assert_eq!(shown(121), "2 minutes");
        assert_eq!(shown(7201), "2 hours");
        assert_eq!(shown(172_801), "2 days");
    }
}
