//! `testudo-processors`, a command that strongSwan does not have: how long the host's processors have
//! worked. Whoever asks twice knows how busy they were in between.
//!
//! ```text
//! {} => {
//!     count = <processors>
//!     busy = <milliseconds that they have worked since the start of the host, all together>
//! }
//! ```

use crate::Error;
use crate::answer::number;
use crate::message::Message;
use std::time::Duration;

/// The answer to `testudo-processors`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    /// The processors of the host.
    pub count: u64,
    /// How long they have worked since the start of the host, all together.
    pub busy: Duration,
}

impl Processors {
    /// The answer to `testudo-processors`.
    pub fn to_message(self) -> Message {
        let mut message = Message::new();
        message.add_text("count", self.count);
        message.add_text("busy", self.busy.as_millis());
        message
    }

    /// Reads the answer to `testudo-processors`.
    pub fn from_message(message: &Message) -> Result<Self, Error> {
        let busy = Duration::from_millis(number(message, "busy")?);
        Ok(Self { count: number(message, "count")?, busy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_as_it_was_and_one_that_lacks_something_is_refused() {
        let processors = Processors { count: 64, busy: Duration::from_millis(1_234_567) };
        assert_eq!(Processors::from_message(&processors.to_message()).unwrap(), processors);
        assert!(Processors::from_message(&Message::new().with("busy", "1")).is_err());
        assert!(Processors::from_message(&Message::new().with("count", "1").with("busy", "-1")).is_err());
    }
}
