//! Real hosts in network namespaces: links, strongSwan peers, web servers, load, capture. For tests and the demo.
#![forbid(unsafe_code)]
