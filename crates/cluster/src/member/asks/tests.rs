use super::*;
use crate::member::samples::{START, id, member};

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
