#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testudo_fuzz::ipsec::ah::target(data));
