//! Address prefixes, the keys of routes and of the filter's tries.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address prefix whose host bits are zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    addr: IpAddr,
    len: u8,
}

impl Prefix {
    /// The prefix of `len` bits that holds `addr`. `None` if an address of the family has fewer
    /// than `len` bits.
    pub fn new(addr: IpAddr, len: u8) -> Option<Self> {
        let host_bits = u32::from(width(addr).checked_sub(len)?);
        let addr = match addr {
            IpAddr::V4(a) => {
                let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(a) & mask))
            }
            IpAddr::V6(a) => {
                let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(a) & mask))
            }
        };
        Some(Self { addr, len })
    }

    /// The prefix that holds only `addr`.
    pub fn host(addr: IpAddr) -> Self {
        Self { addr, len: width(addr) }
    }

    /// The first address.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// Number of leading bits that all addresses of the prefix share.
    pub fn length(&self) -> u8 {
        self.len
    }

    /// True for 0.0.0.0/0 and ::/0.
    pub fn is_default(&self) -> bool {
        self.len == 0
    }

    /// True for a prefix of IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.addr.is_ipv4()
    }

    /// True if `addr` is of the family and inside.
    pub fn contains(&self, addr: IpAddr) -> bool {
        addr.is_ipv4() == self.is_ipv4() && Self::new(addr, self.len) == Some(*self)
    }
}

fn width(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no prefix, expected ADDRESS/LENGTH or ADDRESS")]
pub struct PrefixError {
    found: String,
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// Clears host bits that are not zero. `ip route` refuses them, but a traffic selector may have
    /// them.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let parsed = match text.split_once('/') {
            Some((addr, len)) => addr.parse().ok().zip(len.parse().ok()).and_then(|(a, l)| Self::new(a, l)),
            None => text.parse().ok().map(Self::host),
        };
        parsed.ok_or_else(|| PrefixError { found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect(text)
    }

    #[test]
    fn host_bits_are_cleared() {
        assert_eq!(prefix("10.1.2.3/8").to_string(), "10.0.0.0/8");
        assert_eq!(prefix("10.1.2.3/0").to_string(), "0.0.0.0/0");
        assert_eq!(prefix("10.1.2.3").to_string(), "10.1.2.3/32");
        assert_eq!(prefix("2001:db8::1/32").to_string(), "2001:db8::/32");
        assert_eq!(prefix("2001:db8::1/0").to_string(), "::/0");
        assert_eq!(prefix("::1").to_string(), "::1/128");
    }

    #[test]
    fn malformed_prefixes_are_refused() {
        for text in ["", "/", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0/8", "10.0.0.0/8/8", "x/8"] {
            let error = text.parse::<Prefix>().expect_err(text);
            assert!(error.to_string().contains("expected ADDRESS/LENGTH"), "{error}");
        }
    }

    #[test]
    fn families_do_not_mix() {
        assert!(prefix("0.0.0.0/0").contains("1.2.3.4".parse().unwrap()));
        assert!(!prefix("0.0.0.0/0").contains("::1".parse().unwrap()));
        assert!(!prefix("::/0").contains("1.2.3.4".parse().unwrap()));
        assert!(prefix("2001:db8::/32").contains("2001:db8:ffff::1".parse().unwrap()));
        assert!(!prefix("10.0.0.0/9").contains("10.128.0.0".parse().unwrap()));
    }
}
