//! The values that a node's IKE endpoint draws: SPIs that show their home shard, the node's sender
//! ID, and cookies that any node of the cluster understands.

use crate::hkdf::Hkdf;
use std::net::IpAddr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use testudo_base::siphash::SipKey;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_ike::alloc::{Allocator, CookieSecret, EspSlots, Home};
use testudo_ike::endpoint::Homes;
use testudo_ike::message::IkeSpi;
use testudo_ike::output::Time;
use testudo_ike::suite::Entropy;
use testudo_planted::{Plant, planted};

use testudo_base::shard::ShardSet;

/// Cookie secrets up to this many periods away are accepted, because the nodes' clocks may differ.
const COOKIE_DRIFT: u32 = 2;

/// Values that the member passes to its endpoint's allocator at run time.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    sender: AtomicU32,
    /// Minutes of the time of day minus those of the host's clock.
    minutes: AtomicU32,
    /// The shards in which peers are answered whose first messages only this node gets. Empty where
    /// all nodes get them, and a hash chooses the node.
    answering: Mutex<ShardSet>,
}

impl Shared {
    pub(crate) fn set_sender(&self, sender: SenderId) {
        self.sender.store(sender.0.into(), Relaxed);
    }

    /// Sets the shards in which first messages of peers are answered.
    pub(crate) fn set_answering(&self, shards: ShardSet) {
        *self.answering.lock().unwrap_or_else(PoisonError::into_inner) = shards;
    }

    fn answers_in(&self, hashed: Shard) -> Shard {
        let answering = *self.answering.lock().unwrap_or_else(PoisonError::into_inner);
        answering.pick(hashed).unwrap_or(hashed)
    }

    /// Sets the time of day, in seconds.
    pub(crate) fn set_unix_time(&self, now: Time, seconds: u64) {
        self.minutes.store(((seconds / 60) as u32).wrapping_sub(minutes(now)), Relaxed);
    }
}

fn minutes(now: Time) -> u32 {
    (now.0.as_secs() / 60) as u32
}

/// The allocator of a cluster's node.
pub(crate) struct ClusterAllocator {
    entropy: Box<dyn Entropy + Send>,
    key: SipKey,
    cookies: Hkdf,
    slots: EspSlots,
    shared: Arc<Shared>,
}

impl ClusterAllocator {
    pub(crate) fn new(
        entropy: Box<dyn Entropy + Send>,
        cluster_key: &[u8; 32],
        key: SipKey,
        shared: Arc<Shared>,
    ) -> Self {
        let cookies = Hkdf::extract(b"testudo cluster cookies 1", cluster_key);
        Self { entropy, key, cookies, slots: EspSlots::default(), shared }
    }

    fn secret(&self, version: u32) -> CookieSecret {
        CookieSecret { version, key: *self.cookies.expand(&version.to_be_bytes()) }
    }

    fn version(&self, now: Time) -> u32 {
        self.shared.minutes.load(Relaxed).wrapping_add(minutes(now))
    }
}

/// Derives, from the cluster's key, the key of the hash by which packets without an SPI of ours
/// find their homes.
pub(crate) fn hash_key(cluster_key: &[u8; 32]) -> SipKey {
    SipKey::new(*Hkdf::extract(b"testudo cluster homes 1", cluster_key).expand(&[]))
}

impl Entropy for ClusterAllocator {
    fn fill(&mut self, out: &mut [u8]) {
        self.entropy.fill(out);
    }
}

impl Allocator for ClusterAllocator {
    fn ike_spi(&mut self, home: Home<'_>) -> IkeSpi {
        let shard = match home {
            Home::Responding(initiator) => self.shared.answers_in(self.key.initiator(initiator.to_bytes())),
            Home::Initiating(connection) => self.key.name(connection),
            Home::Renewing(shard) => shard,
        };
        let mut octets = [0; 8];
        self.entropy.fill(&mut octets);
        octets[0] = shard.0;
        // Zero means "none yet" (RFC 7296 §3.1).
        IkeSpi(u64::from_be_bytes(octets).max(1))
    }

    fn esp_spi(&mut self, now: Time, home: Shard) -> Option<Spi> {
        self.slots.allocate(now, home, &mut self.entropy)
    }

    fn claim_esp_spi(&mut self, spi: Spi) {
        self.slots.claim(spi);
    }

    fn release_esp_spi(&mut self, now: Time, spi: Spi) {
        // As if it had rested long enough.
        let long_ago = Time(now.0.saturating_sub(EspSlots::REST));
        self.slots.release(if planted(Plant::SpiReusedAtOnce) { long_ago } else { now }, spi);
    }

    fn sender_id(&self) -> SenderId {
        SenderId(self.shared.sender.load(Relaxed) as u16)
    }

    /// All nodes derive the secret from the cluster's key. So a node that takes a shard over knows
    /// the cookies of the former owner without a message.
    fn cookie_secret(&mut self, now: Time) -> CookieSecret {
        self.secret(self.version(now))
    }

    fn cookie_secret_of(&mut self, now: Time, version: u32) -> Option<CookieSecret> {
        let age = self.version(now).wrapping_sub(version) as i32;
        (age.unsigned_abs() <= COOKIE_DRIFT).then(|| self.secret(version))
    }
}

/// The homes on a node that owns some of the shards.
pub(crate) struct OwnedHomes {
    pub(crate) key: SipKey,
    pub(crate) owned: ShardSet,
}

impl Homes for OwnedHomes {
    fn shard_of(&self, connection: &str) -> Shard {
        self.key.name(connection)
    }

    fn owns(&self, shard: Shard) -> bool {
        self.owned.contains(shard)
    }

    /// Each address of a pool has a home, so that two owners never lease the same address at the
    /// same time.
    fn leases(&self, addr: IpAddr) -> bool {
        self.owned.contains(self.key.pair(addr, addr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    struct Counter(u8);

    impl Entropy for Counter {
        fn fill(&mut self, out: &mut [u8]) {
            for octet in out {
                self.0 = self.0.wrapping_mul(5).wrapping_add(77);
                *octet = self.0;
            }
        }
    }

    fn allocator(octet: u8) -> (ClusterAllocator, Arc<Shared>) {
        let shared = Arc::<Shared>::default();
        let cluster_key = [octet; 32];
        let key = hash_key(&cluster_key);
        let entropy = Box::new(Counter(octet));
        (ClusterAllocator::new(entropy, &cluster_key, key, Arc::clone(&shared)), shared)
    }

    #[test]
    fn spis_show_their_home() {
        let (mut alloc, shared) = allocator(1);
        let key = hash_key(&[1; 32]);
        let peer = IkeSpi(0x1122_3344_5566_7788);
        assert_eq!(alloc.ike_spi(Home::Responding(peer)).shard(), key.initiator(peer.to_bytes()));
        assert_eq!(alloc.ike_spi(Home::Initiating("site")).shard(), key.name("site"));
        assert_eq!(alloc.ike_spi(Home::Renewing(Shard(0))).shard(), Shard(0));
        assert_eq!(alloc.esp_spi(Time::default(), Shard(9)).unwrap().shard(), Shard(9));
        let own: ShardSet = [7, 99].map(Shard).into_iter().collect();
        shared.set_answering(own);
        assert!(
            own.contains(alloc.ike_spi(Home::Responding(peer)).shard()),
            "answered in a shard of its own"
        );
        assert_eq!(alloc.ike_spi(Home::Initiating("site")).shard(), key.name("site"));
        shared.set_sender(SenderId(0x0805));
        assert_eq!(alloc.sender_id(), SenderId(0x0805));
    }

    #[test]
    fn cookies_are_good_on_every_node_for_a_while() {
        let (mut one, first) = allocator(7);
        let (mut other, second) = allocator(7);
        let (mut stranger, third) = allocator(8);
        // The nodes' own clocks have different origins.
        let now = |seconds| Time(Duration::from_secs(seconds));
        first.set_unix_time(now(5), 1_700_000_000);
        second.set_unix_time(now(90_000), 1_700_000_030);
        third.set_unix_time(now(5), 1_700_000_000);
        let secret = one.cookie_secret(now(5));
        let of = |alloc: &mut ClusterAllocator, seconds| {
            alloc.cookie_secret_of(now(seconds), secret.version).map(|secret| secret.key)
        };
        assert_eq!(of(&mut other, 90_000), Some(secret.key));
        assert_eq!(of(&mut other, 90_060), Some(secret.key));
        assert_eq!(of(&mut other, 90_300), None, "too old");
        assert_ne!(of(&mut stranger, 5), Some(secret.key));
    }

    #[test]
    fn an_address_is_leased_by_the_owner_of_its_home() {
        let key = hash_key(&[1; 32]);
        let addr: IpAddr = "10.3.0.9".parse().unwrap();
        let owned: ShardSet = [key.pair(addr, addr)].into_iter().collect();
        let (here, there) =
            (OwnedHomes { key, owned }, OwnedHomes { key, owned: ShardSet::ALL.without(owned) });
        assert!(here.leases(addr) && !there.leases(addr));
        assert_ne!(here.owns(here.shard_of("site")), there.owns(there.shard_of("site")));
    }
}
