//! The IKEv2 wire format (RFC 7296 §3): bytes to typed payloads and back.
