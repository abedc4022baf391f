//! A command that derives from another: it replaces that one, and nothing later.

use super::*;

impl Cluster {
    /// The last command that set the piece, and its digest.
    fn last(&self, number: u32) -> Option<(String, u64)> {
        let last = self.members[&id(number)].last_command(&connection("a"))?;
        Some((String::from_utf8(last.octets.to_vec()).unwrap(), last.digest))
    }

    /// An operator has a node add something to the piece.
    fn add(&mut self, number: u32, job: u64, what: &str) {
        let (text, of) = self.last(number).unwrap();
        assert!(self.give(number, job, Effect::Replace { name: connection("a"), of }, &(text + what)));
    }

    fn set(&mut self, number: u32, job: u64, octets: &str) {
        assert!(self.give(number, job, Effect::Set(connection("a")), octets));
    }

    fn assert_all(&self, expected: &str) {
        (1..=3).for_each(|number| assert_eq!(self.pieces(number), [expected], "node {number}"));
    }
}

#[test]
fn a_replacement_derives_from_commands_that_are_under_way() {
    let mut cluster = three();
    cluster.set(1, 1, "a1");
    cluster.add(1, 2, "+x");
    cluster.add(1, 3, "+y");
    assert_eq!(cluster.pieces(1), [""; 0], "nothing is delivered yet");
    cluster.settle();
    cluster.assert_all("a1+x+y");
    assert_eq!(cluster.configured, [1, 2, 3].map(|job| (id(1), job)));
    assert_eq!((cluster.asked(1), cluster.outdated.clone()), (vec![], vec![]));
    // Nodes 2 and 3 continue from the same command.
    cluster.add(3, 4, "+z");
    cluster.settle();
    cluster.assert_all("a1+x+y+z");
    cluster.set(1, 5, "a2");
    assert_eq!(cluster.last(1).unwrap().0, "a2");
    assert!(cluster.give(1, 6, Effect::Unset(connection("a")), "-"));
    assert_eq!(cluster.last(1), None);
    assert_eq!(cluster.last(2).unwrap().0, "a1+x+y+z");
}

#[test]
fn a_replacement_does_not_undo_a_load_that_another_node_has_delivered_before() {
    let mut cluster = three();
    cluster.set(1, 1, "a1");
    cluster.settle();
    (1..=3).for_each(|number| drop(cluster.asked(number)));
    // Node 1 is first in the order.
    cluster.set(1, 2, "a2");
    cluster.add(2, 3, "+x");
    cluster.add(2, 4, "+y");
    cluster.settle();
    cluster.assert_all("a2");
    assert_eq!(cluster.outdated, [(id(2), 3), (id(2), 4)]);
    assert_eq!(cluster.configured, [(id(1), 1), (id(1), 2)]);
    // Node 2 has carried both out, and goes back to what all have.
    assert_eq!(cluster.asked(2).last().map(String::as_str), Some("a2"));
    assert_eq!((cluster.asked(1), cluster.asked(3)), (vec![], vec!["a2".into()]));
    // A load that comes after a replacement wins, as over any other command.
    cluster.add(1, 5, "+x");
    cluster.set(2, 6, "a3");
    cluster.settle();
    cluster.assert_all("a3");
    assert_eq!(cluster.configured[2..], [(id(1), 5), (id(2), 6)]);
    // Nothing is left to be replaced.
    assert!(cluster.give(1, 7, Effect::Unset(connection("a")), "-"));
    cluster.add(2, 8, "+x");
    cluster.settle();
    assert!((1..=3).all(|number| cluster.pieces(number).is_empty()));
    assert_eq!(cluster.outdated.last(), Some(&(id(2), 8)));
    assert_eq!(cluster.asked(2).last().map(String::as_str), Some("no a"));
}

/// A node that joins may have received the piece from before or after the replacement.
#[test]
fn a_replacement_waits_until_all_nodes_are_up_to_date() {
    let mut cluster = three();
    cluster.set(1, 1, "a1");
    cluster.settle();
    cluster.has_node_3_join();
    cluster.add(1, 2, "+x");
    cluster.settle();
    cluster.assert_all("a1");
    assert_eq!(cluster.outdated, [(id(1), 2)]);
    assert_eq!(cluster.asked(1), ["a1"]);
    cluster.add(1, 3, "+x");
    cluster.settle();
    cluster.assert_all("a1+x");
    assert_eq!(cluster.asked(3).last().map(String::as_str), Some("a1+x"));
}

/// Without a view, and beside a node that does not know of replacements, it is a load.
#[test]
fn a_replacement_that_others_cannot_judge_is_a_load() {
    let mut cluster = Cluster::new();
    cluster.speaks.insert(id(3), REPLACEMENTS - 1);
    (1..=3).for_each(|number| cluster.start(number));
    assert!(!cluster.give(1, 1, Effect::Set(connection("a")), "a1"));
    let (text, of) = cluster.last(1).unwrap();
    assert!(!cluster.give(1, 2, Effect::Replace { name: connection("a"), of }, &(text + "+x")));
    cluster.view(&[1, 2, 3]);
    cluster.assert_all("a1+x");
    cluster.set(1, 3, "a2");
    cluster.add(2, 4, "+y");
    cluster.settle();
    cluster.assert_all("a1+x+y");
    assert_eq!((cluster.configured.len(), cluster.outdated.len()), (2, 0));
}

/// Commands under way count for the names that they name, or for credentials.
#[test]
fn the_last_command_of_a_piece_is_none_of_another_piece() {
    let mut cluster = three();
    cluster.set(1, 1, "a1");
    cluster.give(1, 2, Effect::Set(secret("a")), "s1");
    cluster.settle();
    let last = |cluster: &Cluster, name: PieceName| {
        let last = cluster.members[&id(1)].last_command(&name)?;
        Some(String::from_utf8(last.octets.to_vec()).unwrap())
    };
    cluster.give(1, 3, Effect::Set(connection("b")), "b1");
    assert_eq!(last(&cluster, connection("b")).as_deref(), Some("b1"));
    assert_eq!(last(&cluster, connection("a")).as_deref(), Some("a1"));
    assert_eq!(last(&cluster, connection("c")), None);
    cluster.give(1, 4, Effect::Unset(connection("b")), "-");
    assert_eq!(last(&cluster, connection("b")), None);
    assert_eq!(last(&cluster, connection("a")).as_deref(), Some("a1"));
    assert_eq!(last(&cluster, secret("a")).as_deref(), Some("s1"));
    cluster.give(1, 5, Effect::ClearCredentials, "clear");
    assert_eq!(last(&cluster, secret("a")), None);
    assert_eq!(last(&cluster, connection("a")).as_deref(), Some("a1"));
}
