//! Bulk ciphers by the burst: intel-ipsec-mb where x86-64 has it, aws-lc-rs everywhere else, chosen at start.
