//! strongSwan's control protocol (VICI): codec, server sessions without I/O, a small blocking client.
#![forbid(unsafe_code)]
