//! The mark of testudod's own packets.

/// `SO_MARK` of sockets whose packets the kernel does not lead into the TUN, whatever is protected:
/// testudod's own, and the one by which `testudo migrate` tries the way in clear.
pub const MARK: u32 = 0x7e57;
