//! Connections as an operator configures them, in the words of `swanctl.conf`.

mod change;
mod hosts;
mod identity;
mod lifetime;
mod pool;
mod proposal;
mod rounds;
mod secret;

pub use change::{ChildChange, Difference, IkeChange};
pub use hosts::{HostName, HostNames, Hosts};
pub use identity::Identity;
pub use lifetime::{ChildLifetime, IkeLifetime, Lifetime};
pub use pool::Pool;
pub use proposal::{
    ADDITIONAL_KE, EspEncryption, EspProposal, IkeEncryption, IkeProposal, Integrity, KeyExchange, Prf,
};
pub use rounds::{FurtherRounds, MAX_ROUNDS};
pub use secret::{SecretKind, SharedSecret};

use crate::cert::{Certificate, Hashes, RawKey, Schemes};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;
use testudo_ipsec::sa::HeaderCopy;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

/// A `connections.<name>` section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Name of the section.
    pub name: String,
    /// `local_addrs` without the names. With them: [`Connection::local_hosts`].
    pub local_addrs: Vec<AddrRange>,
    /// `remote_addrs` without the names. With them: [`Connection::remote_hosts`].
    pub remote_addrs: Vec<AddrRange>,
    /// DNS names in `local_addrs` and `remote_addrs`.
    pub names: HostNames,
    /// `local_port`, default 500.
    pub local_port: u16,
    /// `remote_port`, default 500.
    pub remote_port: u16,
    /// `proposals`, in order of preference; never empty.
    pub proposals: Vec<IkeProposal>,
    /// `encap`: force UDP encapsulation by faking NAT detection.
    pub encap: bool,
    /// `fragmentation`.
    pub fragmentation: Fragmentation,
    /// `childless`.
    pub childless: Childless,
    /// `dpd_delay`; zero turns active liveness checks off.
    pub dpd_delay: Duration,
    /// `send_cert`.
    pub send_cert: SendCert,
    /// `send_certreq`: the peer is asked for certificates.
    pub send_certreq: bool,
    /// `ppk_id` and `ppk_required`.
    pub ppk: PpkPolicy,
    /// `keyingtries`: attempts at initiation before giving up; 0 means for ever.
    pub keyingtries: u32,
    /// `unique`.
    pub unique: Unique,
    /// `vips`: virtual addresses to ask the peer for; an unspecified one for any of its family.
    pub vips: Vec<IpAddr>,
    /// `vips_within`: what of virtual addresses the peer may give. Empty: what belongs to nobody
    /// that we know of.
    pub vips_within: Vec<AddrRange>,
    /// `pools`: names of the pools whose addresses the peer may get.
    pub pools: Vec<String>,
    /// `rekey_time`, `over_time`, `rand_time`.
    pub lifetime: IkeLifetime,
    /// The `local` section.
    pub local: LocalAuth,
    /// The `remote` section.
    pub remote: RemoteAuth,
    /// Further sections of either kind.
    pub rounds: FurtherRounds,
    /// The `children` sections.
    pub children: Vec<Child>,
}

impl Connection {
    /// False for one that has `pass` and `drop` children alone: it makes no IKE SA and answers
    /// none, and need not say how anybody authenticates.
    pub fn has_peers(&self) -> bool {
        self.children.is_empty() || self.children.iter().any(|child| child.mode.is_negotiated())
    }
}

/// By pre-shared keys, without hosts, proposals, children and lifetimes; the rest as in a section
/// without these keys.
impl Default for Connection {
    fn default() -> Self {
        Self {
            name: String::new(),
            local_addrs: Vec::new(),
            remote_addrs: Vec::new(),
            names: HostNames::default(),
            local_port: 500,
            remote_port: 500,
            proposals: Vec::new(),
            encap: false,
            fragmentation: Fragmentation::default(),
            childless: Childless::default(),
            dpd_delay: Duration::ZERO,
            send_cert: SendCert::default(),
            send_certreq: true,
            ppk: PpkPolicy::default(),
            keyingtries: 1,
            unique: Unique::default(),
            vips: Vec::new(),
            vips_within: Vec::new(),
            pools: Vec::new(),
            lifetime: IkeLifetime::default(),
            local: LocalAuth::psk(None),
            remote: RemoteAuth::psk(None),
            rounds: FurtherRounds::default(),
            children: Vec::new(),
        }
    }
}

/// Fragmentation of IKE messages (RFC 7383).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fragmentation {
    /// `yes`: where the peer can, messages that are too large leave in fragments. `force` means the
    /// same with IKEv2.
    #[default]
    Yes,
    /// `accept`: fragments are taken, but not sent.
    Accept,
    /// `no`: neither.
    No,
}

/// `childless`: IKE SAs without a Child SA of their IKE_AUTH (RFC 6023).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Childless {
    /// `allow`: the peer may set one up. We do where no child is asked for.
    #[default]
    Allow,
    /// `prefer`: the same, and where the peer can, we make every first child by an exchange of its
    /// own.
    Prefer,
    /// `force`: on neither side a child comes with IKE_AUTH.
    Force,
    /// `never`: the peer may not. We do where no child is asked for.
    Never,
}

/// `unique`: what a second IKE SA between the same identities means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unique {
    /// `never`: nothing, whatever the peer says. Nor do we say that we know of no other.
    Never,
    /// `no`: nothing, unless the peer says that it knows of no other (INITIAL_CONTACT).
    #[default]
    No,
    /// `replace`: the older one is deleted.
    Replace,
    /// `keep`: the newer one is refused.
    Keep,
}

/// Post-quantum pre-shared keys on a connection (RFC 8784).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PpkPolicy {
    /// `ppk_id`: which PPK we use when we initiate, and the one that the peer must use. Without it
    /// we use none, and the peer may use any that is loaded.
    pub id: Option<Identity>,
    /// `ppk_required`: no IKE SA without a PPK.
    pub required: bool,
}

/// When our certificates are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SendCert {
    /// `ifasked`: if the peer has sent a certificate request.
    #[default]
    IfAsked,
    /// `always`.
    Always,
    /// `never`.
    Never,
}

/// `connections.<name>.local`: how we prove who we are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalAuth {
    /// `id`; by default the subject of the first certificate, without one the name that the first
    /// public key has by itself, and without that our address.
    pub id: Option<Identity>,
    /// `auth`.
    pub method: AuthMethod,
    /// `certs`: ours; without any, and without `pubkeys`, one that is loaded and has our identity.
    pub certs: Vec<Certificate>,
    /// `pubkeys`: keys of ours without a certificate (RFC 7670), behind the certificates.
    pub pubkeys: Vec<RawKey>,
}

/// `connections.<name>.remote`: what we demand from the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteAuth {
    /// `id`; `None` or `%any` accepts any identity that authenticates. A `*` stands for any value
    /// in a distinguished name, and in front of a domain for any name within it.
    pub id: Option<Identity>,
    /// `auth`.
    pub method: AuthMethod,
    /// `certs`: the peer has one of these; empty allows any that leads to a CA, unless there are
    /// `pubkeys`.
    pub certs: Vec<Certificate>,
    /// `pubkeys`: the peer signs with one of these, or with the key of one of `certs` (RFC 7670).
    pub pubkeys: Vec<RawKey>,
    /// `cacerts`: its certificate leads to one of these; empty allows all CAs.
    pub cacerts: Vec<Certificate>,
    /// `ca_id`: a CA between its certificate and a trusted CA, or that CA, has this identity.
    pub ca_id: Option<Identity>,
    /// `revocation`.
    pub revocation: Revocation,
    /// `eku`.
    pub eku: Eku,
}

impl LocalAuth {
    /// With a shared key.
    pub fn psk(id: Option<Identity>) -> Self {
        Self { id, method: AuthMethod::Psk, certs: Vec::new(), pubkeys: Vec::new() }
    }

    /// Who we are as far as the section says: by default the subject of our first certificate, or
    /// the name that our first public key has by itself.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let by_default = || match (self.certs.first(), self.pubkeys.first()) {
            (Some(certificate), _) => Some(Identity::Dn(certificate.subject().clone())),
            (None, Some(key)) => Some(key.identity()),
            (None, None) => None,
        };
        self.id.clone().or_else(|| self.method.is_pubkey().then(by_default).flatten())
    }

    /// With the key of one of these certificates.
    pub fn by_certificate(id: Option<Identity>, certs: Vec<Certificate>) -> Self {
        Self { id, method: AuthMethod::PUBKEY, certs, pubkeys: Vec::new() }
    }

    /// With one of these keys, which have no certificate.
    pub fn by_public_key(id: Option<Identity>, pubkeys: Vec<RawKey>) -> Self {
        Self { id, method: AuthMethod::PUBKEY, certs: Vec::new(), pubkeys }
    }
}

impl RemoteAuth {
    /// Who the peer is, if that is configured: a pattern is nobody's name.
    pub(crate) fn name(&self) -> Option<&Identity> {
        self.id.as_ref().filter(|id| !id.has_wildcards())
    }

    /// True if a certificate can prove who the peer is.
    pub(crate) fn takes_certificates(&self) -> bool {
        self.method.is_pubkey() && (self.pubkeys.is_empty() || !self.certs.is_empty())
    }

    /// True if a public key without a certificate can.
    pub(crate) fn takes_public_keys(&self) -> bool {
        self.method.is_pubkey() && !self.pubkeys.is_empty()
    }

    /// With a shared key.
    pub fn psk(id: Option<Identity>) -> Self {
        Self {
            id,
            method: AuthMethod::Psk,
            certs: Vec::new(),
            pubkeys: Vec::new(),
            cacerts: Vec::new(),
            ca_id: None,
            revocation: Revocation::default(),
            eku: Eku::default(),
        }
    }
}

/// Methods of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthMethod {
    /// `psk`: shared key message integrity code (RFC 7296 §2.15).
    Psk,
    /// `pubkey` and what narrows it: a digital signature (RFC 7427) with the key of a certificate,
    /// or with one that has none.
    Pubkey {
        /// Signatures that AUTH may have.
        schemes: Schemes,
        /// Hash algorithms that the signatures of the certificates may have.
        chain: Hashes,
    },
}

impl AuthMethod {
    /// `pubkey` alone.
    pub const PUBKEY: Self = Self::Pubkey { schemes: Schemes::ALL, chain: Hashes::ALL };

    /// True if it needs a signature.
    pub fn is_pubkey(self) -> bool {
        matches!(self, Self::Pubkey { .. })
    }
}

/// What happens where no valid list of revoked certificates is at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Revocation {
    /// `strict`: the certificate is refused.
    Strict,
    /// `ifuri`: it is refused if it says where there is a list.
    IfUri,
    /// `relaxed`: it is refused only if it is known to be revoked.
    #[default]
    Relaxed,
}

/// What an extended key usage in the peer's certificate must allow. One that is critical must allow
/// IKE in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Eku {
    /// `any`: whatever it likes.
    #[default]
    Any,
    /// `ike`: IKE, where there is one.
    Ike,
}

/// A `children.<name>` section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Name of the section.
    pub name: String,
    /// `local_ts`.
    pub local_ts: Vec<TsSpec>,
    /// `remote_ts`.
    pub remote_ts: Vec<TsSpec>,
    /// `esp_proposals`, in order of preference; empty for [`ChildMode::Pass`] and
    /// [`ChildMode::Drop`].
    pub proposals: Vec<EspProposal>,
    /// `mode`.
    pub mode: ChildMode,
    /// `start_action`.
    pub start_action: StartAction,
    /// `dpd_action`: after the peer was found dead.
    pub dpd_action: StartAction,
    /// `close_action`: after the peer deleted the SA.
    pub close_action: StartAction,
    /// `rekey_*`, `life_*`, `rand_*`.
    pub lifetime: ChildLifetime,
    /// `replay_window`, in packets.
    pub replay_window: u32,
    /// `copy_df`, `copy_ecn`, `copy_dscp`.
    pub copy: HeaderCopy,
    /// `priority`: lower is looked at first; 0 means computed from the selectors.
    pub priority: u32,
    /// `reqid`: the number that its SAs are shown with; by default the next free one. It is not in
    /// the state of an IKE SA, which nodes of older builds read.
    #[serde(skip)]
    pub reqid: Option<NonZeroU32>,
    /// `updown`; not in that state either.
    #[serde(skip)]
    pub updown: Option<UpdownScript>,
}

/// `updown` and `hostaccess`: what the host runs when a Child SA comes up, and when it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdownScript {
    /// The program, by its absolute path.
    pub program: String,
    /// What stands behind it.
    pub arguments: Vec<String>,
    /// `hostaccess`: the script is to open the way to the host itself.
    pub host_access: bool,
}

/// What a child does with matching traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildMode {
    /// `tunnel`: protect.
    #[default]
    Tunnel,
    /// `transport`: protect what the two hosts themselves exchange, without another IP header where
    /// both sides agree to that.
    Transport,
    /// `pass`: bypass.
    Pass,
    /// `drop`: discard.
    Drop,
}

impl ChildMode {
    /// True for those that have SAs.
    pub fn is_negotiated(self) -> bool {
        matches!(self, Self::Tunnel | Self::Transport)
    }
}

/// What is done for a child when its connection is loaded, and when its SA is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartAction {
    /// Wait for the peer or the operator.
    #[default]
    None,
    /// Initiate at once.
    Start,
    /// Initiate at the first packet.
    Trap,
    /// Both: at once, and at the first packet should the SA be lost.
    TrapStart,
}

impl StartAction {
    /// The first packet without an SA initiates.
    pub fn traps(self) -> bool {
        matches!(self, Self::Trap | Self::TrapStart)
    }

    /// Initiates without waiting for a packet.
    pub fn starts(self) -> bool {
        matches!(self, Self::Start | Self::TrapStart)
    }

    /// The same with a trap, or without.
    #[must_use]
    pub fn with_trap(self, trap: bool) -> Self {
        match (self.starts(), trap) {
            (false, false) => Self::None,
            (true, false) => Self::Start,
            (false, true) => Self::Trap,
            (true, true) => Self::TrapStart,
        }
    }
}

/// A traffic selector as configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TsSpec {
    /// `dynamic`: the outer address of that side, with protocol and ports as given.
    Dynamic {
        /// IP protocol, 0 for any.
        protocol: u8,
        /// First port.
        port_start: u16,
        /// Last port.
        port_end: u16,
    },
    /// A subnet, range or address.
    Fixed(TrafficSelector),
}
