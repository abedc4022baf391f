//! The engine of a node that stands alone: it delivers to itself, in one quorate view.

use super::{Engine, EngineEvent, RingId, View};
use crate::node::NodeId;
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub struct Embedded {
    node: NodeId,
    events: VecDeque<EngineEvent>,
}

impl Embedded {
    /// Its first event is the view that holds this node alone.
    pub fn new(node: NodeId) -> Self {
        let ring = RingId { seq: 1, node: u32::from(node.get()) };
        let view = View { ring, members: vec![node], quorate: true };
        Self { node, events: VecDeque::from([EngineEvent::View(view)]) }
    }
}

impl Engine for Embedded {
    fn multicast(&mut self, message: Vec<u8>) -> Result<(), Vec<u8>> {
        self.events.push_back(EngineEvent::Message { from: self.node, bytes: message });
        Ok(())
    }

    fn next_event(&mut self) -> Option<EngineEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_multicast_comes_back_in_order_after_the_view() {
        let node = NodeId::new(3).unwrap();
        let mut engine = Embedded::new(node);
        engine.multicast(vec![1]).unwrap();
        engine.multicast(vec![2]).unwrap();
        let events: Vec<_> = std::iter::from_fn(|| engine.next_event()).collect();
        assert!(matches!(&events[0], EngineEvent::View(view) if view.quorate && view.members == [node]));
        let message = |bytes| EngineEvent::Message { from: node, bytes };
        assert_eq!(events[1..], [message(vec![1]), message(vec![2])]);
    }
}
