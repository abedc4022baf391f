//! The libraries that this machine must be able to test.

use proptest::prelude::*;
use std::ops::RangeInclusive;
use std::sync::Once;
use testudo_crypto::Library;

/// Random octets of any of these lengths. A strategy for each octet takes longer than the ciphers.
pub(crate) fn octets(lengths: RangeInclusive<usize>) -> impl Strategy<Value = Vec<u8>> {
    lengths.prop_perturb(|length, mut random| {
        let mut octets = vec![0; length];
        random.fill_bytes(&mut octets);
        octets
    })
}

/// Every library, or a loud failure: a library that is quietly left out is a library that is not
/// tested. Where intel-ipsec-mb cannot be (no x86-64, or left out on purpose), the tests say so in
/// their output.
pub(crate) fn libraries() -> Vec<Library> {
    let mut libraries = Library::ALL.to_vec();
    if let Err(reason) = Library::IpsecMb.available() {
        let excused =
            cfg!(not(target_arch = "x86_64")) || std::env::var("TESTUDO_IPSEC_MB").as_deref() == Ok("no");
        assert!(
            excused,
            "{reason}. On x86-64 both libraries are tested: install libipsec-mb-dev, or set TESTUDO_IPSEC_MB=no to \
             build and test without it."
        );
        static SAID: Once = Once::new();
        SAID.call_once(|| write_stderr(&format!("NOT TESTED: {reason}\n")));
        libraries.retain(|l| *l != Library::IpsecMb);
    }
    libraries
}

/// Past the test harness, which hides the output of tests that pass.
fn write_stderr(line: &str) {
    use std::io::Write;
    std::io::stderr().write_all(line.as_bytes()).expect("stderr takes a line");
}
