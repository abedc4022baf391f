//! `testudo` as a user runs it: in labs, on files, and against a daemon that answers from a script.

mod check;
mod cluster;
mod external;
mod shut;
mod status;
mod support;
