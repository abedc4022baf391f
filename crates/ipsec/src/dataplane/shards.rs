//! Which shards of the tunnels this node carries.

use crate::shard::ShardSet;
use crate::spi::Shard;
use testudo_planted::{Plant, planted};

#[inline]
pub(super) fn is_carried(shard: Shard, carried: &ShardSet) -> bool {
    carried.contains(shard) || planted(Plant::ShardNotChecked)
}
