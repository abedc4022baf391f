//! A cursor over hostile octets: every read is checked, and every failure has its place.

use super::error::{ParseError, Place};
use super::number::PayloadType;

/// Reads one payload, or one structure within it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
    payload: PayloadType,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, which begin at `offset`, on behalf of `payload`.
    pub(super) fn new(bytes: &'a [u8], offset: usize, payload: PayloadType) -> Self {
        Self { bytes, offset, payload }
    }

    pub(super) fn place(&self) -> Place {
        Place { payload: self.payload, offset: self.offset }
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn take(&mut self, needed: usize, what: &'static str) -> Result<&'a [u8], ParseError> {
        let Some((head, tail)) = self.bytes.split_at_checked(needed) else {
            return Err(ParseError::Truncated { place: self.place(), what, needed, left: self.left() });
        };
        self.bytes = tail;
        self.offset = self.offset.saturating_add(needed);
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], ParseError> {
        let truncated = ParseError::Truncated { place: self.place(), what, needed: N, left: self.left() };
        self.take(N, what)?.try_into().map_err(|_| truncated)
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, ParseError> {
        Ok(u8::from_be_bytes(self.array(what)?))
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, ParseError> {
        Ok(u16::from_be_bytes(self.array(what)?))
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, ParseError> {
        Ok(u32::from_be_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, ParseError> {
        Ok(u64::from_be_bytes(self.array(what)?))
    }

    /// All remaining octets.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        let rest = std::mem::take(&mut self.bytes);
        self.offset = self.offset.saturating_add(rest.len());
        rest
    }

    /// A reader of the next `length` octets, for a structure with a length of its own.
    pub(super) fn sub(&mut self, length: usize, what: &'static str) -> Result<Self, ParseError> {
        let offset = self.offset;
        Ok(Self::new(self.take(length, what)?, offset, self.payload))
    }

    /// The same octets, read on behalf of another payload.
    pub(super) fn on_behalf_of(self, payload: PayloadType) -> Self {
        Self { payload, ..self }
    }

    pub(super) fn end(&self, what: &'static str) -> Result<(), ParseError> {
        if self.is_empty() {
            return Ok(());
        }
        Err(ParseError::Trailing { place: self.place(), what, left: self.left() })
    }
}

/// The error for a field at `place` with a value that is not allowed.
pub(super) fn bad_value(
    place: Place,
    what: &'static str,
    found: impl Into<u64>,
    expected: &'static str,
) -> ParseError {
    ParseError::Value { place, what, found: found.into(), expected }
}
