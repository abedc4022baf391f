//! Which shards of the tunnels this node carries.

use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_planted::{Plant, planted};

#[inline]
pub(super) fn is_carried(shard: Shard, carried: &ShardSet) -> bool {
    carried.contains(shard) || planted(Plant::ShardNotChecked)
}
