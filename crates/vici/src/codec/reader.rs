//! Reads length-prefixed fields from untrusted octets.

use crate::Error;

/// The rest of the input.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A name: one octet of length, then text.
    pub(super) fn name(&mut self, field: &'static str) -> Result<&'a str, Error> {
        let truncated = Error::Truncated { field };
        let Some(len) = self.u8() else { return Err(truncated) };
        let bytes = self.take(usize::from(len)).ok_or(truncated)?;
        std::str::from_utf8(bytes).map_err(|_| Error::NameEncoding { name: bytes.escape_ascii().to_string() })
    }

    /// A value: two octets of length, then any octets.
    pub(super) fn value(&mut self, field: &'static str) -> Result<&'a [u8], Error> {
        let truncated = || Error::Truncated { field };
        let len = self.take(2).and_then(|len| len.try_into().ok()).ok_or_else(truncated)?;
        self.take(usize::from(u16::from_be_bytes(len))).ok_or_else(truncated)
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }
}
