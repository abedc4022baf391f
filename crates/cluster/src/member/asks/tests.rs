use super::*;
use crate::member::MemberOutput;
use crate::member::samples::{START, id, member};
use testudo_ike::output::{Event, Output};

/// The connections and texts of the warnings since the last call.
fn warnings(core: &mut Core) -> Vec<(Option<String>, String)> {
    let warning = |output| match output {
        MemberOutput::Ike(Output::Event(Event::Log { level, connection, message, .. })) => {
            (level == LogLevel::Warning).then_some((connection, message))
        }
        _ => None,
    };
    core.outputs.drain(..).filter_map(warning).collect()
}

/// The states of several thousand IKE SAs take some turns.
#[test]
fn before_an_owner_initiates_it_reads_the_ike_sas_of_that_shard() {
    let member = &mut member();
    let Member { core, replication, shards, asks, .. } = member;
    let home = asks.home_shard(core, "peer");
    let of = |shard: Shard, number: u64| IkeSpi(u64::from(shard.0) << 56 | number);
    let (other, in_home) = (of(Shard(home.0.wrapping_add(1)), 1), [of(home, 1), of(home, 2)]);
    shards.imports.extend([in_home[0], in_home[1], other]);
    let ask = Ask::Initiate { connection: "peer".into(), child: "net".into() };
    asks.do_for(core, replication, shards, START, id(1), 7, ask);
    assert_eq!(shards.imports.iter().copied().collect::<Vec<_>>(), [other]);
}

/// Nothing else may happen meanwhile that would have it look again.
#[test]
fn an_owner_that_does_not_speak_yet_tries_again_soon_unless_it_loses_its_sas() {
    let member = &mut member();
    let Member { core, replication, shards, asks, .. } = member;
    let names = (0..).map(|number| format!("peer{number}"));
    let mut own = names.filter(|name| core.table.owner(asks.home_shard(core, name)) == Some(core.node));
    let ask = Ask::Initiate { connection: own.next().unwrap(), child: "net".into() };
    assert_eq!(asks.next_timeout(), None);
    asks.asked(core, replication, shards, START, id(2), 7, ask);
    assert_eq!(asks.next_timeout(), Some(START.plus(RETRY_INTERVAL)));
    asks.clear();
    assert_eq!(asks.next_timeout(), None);
    asks.do_what_is_asked(core, replication, shards, START.plus(ASK_TIMEOUT));
    assert_eq!(asks.next_timeout(), None);
}

/// The client at the asking node may be all that ever hears of it there.
#[test]
fn an_initiation_that_cannot_begin_is_logged_by_the_node_that_refuses_it() {
    let member = &mut member();
    let Member { core, replication, shards, asks, .. } = member;
    for (child, what) in [("net", "net"), ("", "the IKE_SA")] {
        let ask = Ask::Initiate { connection: "peer".into(), child: child.into() };
        asks.do_for(core, replication, shards, START, id(2), 7, ask);
        let line = format!("cannot initiate {what} for node 2: no connection is named peer");
        assert_eq!(warnings(core), [(Some("peer".into()), line)]);
    }
    let names = (0..).map(|number| format!("peer{number}"));
    let mut own = names.filter(|name| core.table.owner(asks.home_shard(core, name)) == Some(core.node));
    let own = own.next().unwrap();
    let ask = Ask::Initiate { connection: own.clone(), child: "net".into() };
    asks.asked(core, replication, shards, START, id(2), 7, ask);
    assert_eq!(warnings(core), []);
    asks.do_what_is_asked(core, replication, shards, START.plus(ASK_TIMEOUT));
    let line = format!(
        "cannot initiate net for node 2: node {} must initiate this, and does not speak for its shard yet",
        core.node
    );
    assert_eq!(warnings(core), [(Some(own), line)]);
}
