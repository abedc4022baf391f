//! A whole cluster in virtual time: the same `ike`, `ipsec` and `cluster` code that the gateway
//! runs, a network and an engine with every known kind of fault, and checks of the invariants after
//! every step.
//!
//! Everything follows from one seed: no clock, no thread, no order that depends on addresses. A
//! seed that fails once always fails.
#![forbid(unsafe_code)]

pub mod checks;
pub mod clock;
pub mod config;
pub mod engine;
pub mod faults;
pub mod host;
pub mod lone;
pub mod network;
pub mod node;
pub mod peer;
pub mod plane;
pub mod probe;
pub mod random;
pub mod runner;
pub mod scenario;
pub mod trace;
pub mod world;

use node::Node;
use scenario::Scenario;
use world::{Outcome, World};

/// Runs a cluster.
pub fn cluster(scenario: Scenario) -> Outcome {
    world_of(scenario).run()
}

/// The same, in which nothing fails but the nodes of this order, one after another.
pub fn dying(scenario: Scenario, order: &[usize]) -> Outcome {
    world_of(scenario).run_to_last(order)
}

fn world_of(scenario: Scenario) -> World {
    let make = std::rc::Rc::new(|scenario: &Scenario, birth: &world::Birth| {
        Box::new(Node::new(scenario, birth)) as Box<dyn host::Host>
    });
    World::new(scenario, make)
}
