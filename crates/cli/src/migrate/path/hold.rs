//! What both testudods are told of the path, for as long as the migration lasts.
//!
//! A testudod forgets it after a minute unless it is told again. So a command that is killed leaves
//! nothing behind, and `--verify` takes it back at once. TCP connections keep their MSS.

use super::super::vm::Side;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::message::Message;

const COMMAND: &str = "testudo-path-mtu";
/// A testudod is told again after this time.
const PERIOD: Duration = Duration::from_secs(10);
/// How long a testudod may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Meanwhile nobody looks at the migration.
const AGAIN_LIMIT: Duration = Duration::from_secs(2);
/// A testudod takes names of up to 255 octets.
const MAX_NAME: usize = 50;

/// The holder: the same for the command that begins a migration and the one that verifies it.
pub(in crate::migrate) fn holder(name: &str, uuid: &str) -> String {
    let name: String = name.chars().take(MAX_NAME).collect();
    format!("migration of {name} {uuid}")
}

/// What is held at the testudods.
pub(in crate::migrate) struct Hold<'a> {
    holder: String,
    mtu: u16,
    posts: Vec<Post<'a>>,
    told: Vec<Side>,
    latest: Instant,
}

#[derive(Clone, Copy)]
struct Post<'a> {
    side: Side,
    socket: &'a Path,
    /// Its peer's address.
    remote: IpAddr,
}

impl<'a> Hold<'a> {
    pub(in crate::migrate) fn begin(holder: String, mtu: u16) -> Self {
        Self { holder, mtu, posts: Vec::new(), told: Vec::new(), latest: Instant::now() }
    }

    /// Tells a testudod, whose peer has this address.
    pub(in crate::migrate) fn tell(
        &mut self,
        side: Side,
        socket: &'a Path,
        remote: IpAddr,
    ) -> Result<(), Error> {
        let post = Post { side, socket, remote };
        // One that has not answered may have heard it, and is told to forget it too.
        self.posts.push(post);
        post.tell(&self.holder, self.mtu, ANSWER_LIMIT)?;
        self.told.push(side);
        Ok(())
    }

    /// The testudods that have answered.
    pub(in crate::migrate) fn told(&self) -> &[Side] {
        &self.told
    }

    /// Tells them again from time to time.
    pub(in crate::migrate) fn look(&mut self) {
        if self.latest.elapsed() >= PERIOD {
            self.latest = Instant::now();
            for post in &self.posts {
                // One that does not answer now is told again the next time. The connections of the
                // migration have their MSS already.
                let _ = post.tell(&self.holder, self.mtu, AGAIN_LIMIT);
            }
        }
    }

    /// Takes it back, and returns where that has worked.
    pub(in crate::migrate) fn end(self) -> Vec<Side> {
        let taken_back = |post: &Post<'_>| release(post.socket, &self.holder).is_ok();
        self.posts.iter().filter(|post| taken_back(post)).map(|post| post.side).collect()
    }
}

impl Post<'_> {
    fn tell(&self, holder: &str, mtu: u16, limit: Duration) -> Result<(), Error> {
        let mut arguments = Message::new().with("holder", holder).with("remote", self.remote.to_string());
        arguments.add_text("mtu", mtu);
        Client::connect_within(self.socket, limit)?.command(COMMAND, arguments).map(drop)
    }
}

/// Has a testudod forget what this holder has said, if anything.
pub(in crate::migrate) fn release(socket: &Path, holder: &str) -> Result<(), Error> {
    let mut client = Client::connect_within(socket, ANSWER_LIMIT)?;
    client.command(COMMAND, Message::new().with("holder", holder)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::super::scripted;
    use super::*;

    #[test]
    fn a_daemon_is_told_with_the_holders_name() {
        let done = || Some(Message::new().with("success", "yes"));
        let (_dir, socket) = scripted::daemon(COMMAND, vec![done()], |told| {
            let found = ["holder", "remote", "mtu"].map(|key| told.text(key));
            assert_eq!(found, [Some("migration of web1 7"), Some("192.0.2.2"), Some("1400")]);
        });
        let mut hold = Hold::begin(holder("web1", "7"), 1400);
        hold.tell(Side::Source, &socket, IpAddr::from([192, 0, 2, 2])).unwrap();
        assert_eq!(hold.told(), [Side::Source]);
        // The daemon has ended.
        assert_eq!(hold.end(), []);
    }

    #[test]
    fn a_daemon_is_asked_to_forget_by_the_holders_name_alone() {
        let (_dir, socket) =
            scripted::daemon(COMMAND, vec![Some(Message::new().with("success", "yes"))], |told| {
                let found = ["holder", "remote", "mtu"].map(|key| told.text(key));
                assert_eq!(found, [Some("migration of web1 7"), None, None]);
            });
        release(&socket, &holder("web1", "7")).unwrap();
    }

    #[test]
    fn a_name_of_any_length_makes_a_holder() {
        assert!(holder(&"\u{1f422}".repeat(1000), "00000000-0000-0000-0000-000000000000").len() <= 255);
    }
}
