//! IPv4 options: only their framing is checked; they have no effect here.

use crate::Error;

const END: u8 = 0;
const NOP: u8 = 1;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;
/// The bit of an option's type that copies it into every fragment (RFC 791 §3.1).
const COPIED: u8 = 0x80;

/// Octets of options that a header has room for.
pub(super) const MAX_LEN: usize = 40;

/// An option with its type and length octets, and the rest.
pub(crate) type Split<'a> = (&'a [u8], &'a [u8]);

/// The next option. `None` at the end of the list.
fn next(options: &[u8]) -> Result<Option<Split<'_>>, Error> {
    let len = match options {
        [] | [END, ..] => return Ok(None),
        [NOP, ..] => 1,
        [_, len, ..] if *len >= 2 => usize::from(*len),
        _ => return Err(Error::Options),
    };
    options.split_at_checked(len).map(Some).ok_or(Error::Options)
}

/// Splits valid options into the first one and the rest. `None` at the end of the list.
pub(crate) fn split(options: &[u8]) -> Option<Split<'_>> {
    next(options).ok().flatten()
}

/// True if a source route names further hops: the packet's destination is not its last (RFC 791
/// §3.1). The options must be valid.
pub(crate) fn is_routed_on(mut options: &[u8]) -> bool {
    while let Some((option, rest)) = split(options) {
        if let [LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, len, pointer, ..] = option
            && pointer <= len
        {
            return true;
        }
        options = rest;
    }
    false
}

/// Checks that each option ends inside the header.
pub(super) fn check(mut options: &[u8]) -> Result<(), Error> {
    while let Some((_, rest)) = next(options)? {
        options = rest;
    }
    Ok(())
}

/// Writes the options that later fragments repeat, padded to words; returns their octets. The
/// options must be valid.
#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "`next` gives one octet at least"))]
pub(super) fn copied(mut options: &[u8], out: &mut [u8; MAX_LEN]) -> usize {
    let mut len = 0;
    while let Ok(Some((option, rest))) = next(options) {
        if option[0] & COPIED != 0
            && let Some(place) = out.get_mut(len..len + option.len())
        {
            place.copy_from_slice(option);
            len += option.len();
        }
        options = rest;
    }
    len.next_multiple_of(4)
}
