//! An attacker on the path between two hosts, for the labs. It runs in the namespace of the
//! untrusted network until it is ended.
#![forbid(unsafe_code)]

use clap::Parser;
use std::error::Error;
use testudo_lab::attack::{self, Attack};
use testudo_lab::topology::WIRE_PORTS;

/// Attacks what passes between two interfaces.
#[derive(Parser)]
#[command(name = "testudo-attacker", version)]
struct Arguments {
    /// What it does.
    attack: Attack,
    /// The interface to the host that is heard.
    #[arg(long, value_name = "INTERFACE", default_value = WIRE_PORTS[0])]
    heard: String,
    /// The interface to the other host.
    #[arg(long, value_name = "INTERFACE", default_value = WIRE_PORTS[1])]
    other: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { attack, heard, other } = Arguments::parse();
    match attack::run(attack, &heard, &other)? {}
}
