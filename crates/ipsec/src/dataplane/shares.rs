//! Which shares of the tunnels this node carries.

use crate::share::ShareSet;
use crate::spi::Share;
use testudo_planted::{Plant, planted};

#[inline]
pub(super) fn is_carried(share: Share, carried: &ShareSet) -> bool {
    carried.contains(share) || planted(Plant::ShareNotChecked)
}
