//! The fuzzer's octets, read as choices and chunks.

/// The rest of the input. Reading never fails: at the end, numbers are zero and chunks empty.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(len.min(self.0.len()));
        self.0 = tail;
        head
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let octets = self.take(N);
        array[..octets.len()].copy_from_slice(octets);
        array
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_be_bytes(self.array())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    /// Octets after a length of two octets.
    pub(crate) fn chunk(&mut self) -> &'a [u8] {
        let len = usize::from(self.u16());
        self.take(len)
    }

    /// A chunk filled up with zeros at the end of the input, so that long packets need no long
    /// input.
    pub(crate) fn padded_chunk(&mut self, most: usize) -> Vec<u8> {
        let len = usize::from(self.u16()).min(most);
        let mut chunk = self.take(len).to_vec();
        chunk.resize(len, 0);
        chunk
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// True if bit `number` is set.
pub(crate) fn bit(flags: u8, number: u8) -> bool {
    flags >> number & 1 == 1
}
