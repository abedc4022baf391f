//! The keys of an SA from charon's log at its highest level.

use crate::memory::Needle;
use crate::{Error, Result};

/// The words before the octets of a secret in a log of level 4.
const ENDS: [&str; 3] = [" secret", " key", "SKEYSEED"];

/// Every secret in the log, in order: `Sk_d secret`, `encryption initiator key`, ...
pub(crate) fn parse(log: &str) -> Result<Vec<Needle>> {
    let mut lines = log.lines();
    let mut keys = Vec::new();
    while let Some(line) = lines.next() {
        let Some((title, length)) = title(line) else { continue };
        let mut octets = Vec::with_capacity(length);
        while octets.len() < length {
            let more = lines.next().and_then(|line| octets_of(line, length - octets.len()));
            octets.extend(more.ok_or_else(|| Error::unexpected("charon's log", "octets of a key", title))?);
        }
        keys.push(Needle::new(title, octets)?);
    }
    Ok(keys)
}

/// Parses `12[IKE] <lab|1> Sk_d secret => 32 bytes @ 0x7f00bc002f10`.
fn title(line: &str) -> Option<(&str, usize)> {
    let (before, after) = line.split_once(" => ")?;
    let length = after.split_once(" bytes @ ")?.0.parse().ok()?;
    let text = before.split_once("] ").map_or(before, |(_, text)| text);
    let text = text.rsplit_once("> ").map_or(text, |(_, text)| text).trim();
    ENDS.iter().any(|end| text.ends_with(end)).then_some((text, length))
}

/// Parses `12[IKE] <lab|1>   16: 0D 7C ... 3C  .|...<`: 16 octets, or the rest.
fn octets_of(line: &str, left: usize) -> Option<Vec<u8>> {
    let (before, after) = line.split_once(": ")?;
    before.rsplit(' ').next()?.parse::<usize>().ok()?;
    let octets = after.split(' ').take(left.min(16));
    octets.map(|octet| u8::from_str_radix(octet, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
05[IKE] <1> natd_hash => 20 bytes @ 0x7f
05[IKE] <1>    0: 00 11 22 33 44 55 66 77 88 99 AA BB CC DD EE FF  ..\"3DUfw........
05[IKE] <1>   16: 00 11 22 33                                      ..\"3
05[IKE] <lab|1> Sk_ei secret => 20 bytes @ 0x7f00bc002f10
05[IKE] <lab|1>    0: 0D 7C 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 3C  .|.............<
05[IKE] <lab|1>   16: 41 42 43 44                                      ABCD
06[CHD] <lab|1>   using AES_GCM_16 for encryption
06[CHD] <lab|1> encryption initiator key => 16 bytes @ 0x7f
06[CHD] <lab|1>    0: FF 7C 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 3C  .|..: 41 42 43<
";

    #[test]
    fn keys_are_read_and_nothing_else() {
        let keys = parse(LOG).unwrap();
        let shown: Vec<_> = keys.iter().map(|key| (key.name.as_str(), key.octets.len())).collect();
        assert_eq!(shown, [("Sk_ei secret", 20), ("encryption initiator key", 16)]);
        assert_eq!((keys[0].octets[1], &keys[0].octets[16..]), (0x7c, &b"ABCD"[..]));
        assert_eq!(keys[1].octets[0], 0xff);
        let cut = LOG.split_once("41 42").unwrap().0;
        assert!(parse(cut).is_err(), "an end in the middle");
    }
}
