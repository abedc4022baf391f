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
pub use lifetime::{CHILD_REKEY_SECONDS, ChildLifetime, IKE_REKEY_SECONDS, IkeLifetime, Lifetime};
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
use testudo_ipsec::sa::{HeaderCopy, Mss};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

/// A `connections.<name>` section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Name of the section.
    pub name: String,
    /// `local_addrs` without the DNS names. With them: [`Connection::local_hosts`].
    pub local_addrs: Vec<AddrRange>,
    /// `remote_addrs` without the DNS names. With them: [`Connection::remote_hosts`].
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
    /// `vips_within`: ranges from which the peer may assign virtual addresses. Empty: all that are
    /// not known to belong to another host.
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
    /// False for a connection with only `pass` and `drop` children: it makes and answers no IKE SA,
    /// and needs no authentication.
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
    /// `yes`: if the peer supports it, messages that are too large are sent in fragments. `force`
    /// means the same with IKEv2.
    #[default]
    Yes,
    /// `accept`: fragments are accepted, but not sent.
    Accept,
    /// `no`: fragments are neither accepted nor sent.
    No,
}

/// `childless`: IKE SAs whose IKE_AUTH makes no Child SA (RFC 6023).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Childless {
    /// `allow`: the peer may set one up. We do if no child is requested.
    #[default]
    Allow,
    /// `prefer`: as `allow`, and if the peer supports it, we make every first child by an exchange
    /// of its own.
    Prefer,
    /// `force`: neither side makes a child in IKE_AUTH.
    Force,
    /// `never`: the peer may not. We do if no child is requested.
    Never,
}

/// `unique`: the effect of a second IKE SA between the same identities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unique {
    /// `never`: none, whatever the peer says. Nor do we send INITIAL_CONTACT.
    Never,
    /// `no`: none, unless the peer says that it knows of no other (INITIAL_CONTACT).
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
    /// `ppk_id`: the PPK that we use when we initiate, and that the peer must use. Without it we
    /// use none, and the peer may use any loaded one.
    pub id: Option<Identity>,
    /// `ppk_required`: no IKE SA without a PPK.
    pub required: bool,
}

/// When we send our certificates.
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

/// `connections.<name>.local`: how we authenticate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalAuth {
    /// `id`. The default is the subject of the first certificate, else the identity of the first
    /// public key, else our address.
    pub id: Option<Identity>,
    /// `auth`.
    pub method: AuthMethod,
    /// `certs`: our certificates. Without any, and without `pubkeys`, a loaded one that confirms
    /// our identity is used.
    pub certs: Vec<Certificate>,
    /// `pubkeys`: our keys without a certificate (RFC 7670), after the certificates.
    pub pubkeys: Vec<RawKey>,
}

/// `connections.<name>.remote`: how the peer must authenticate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteAuth {
    /// `id`. `None` or `%any` accepts any identity that authenticates. A `*` matches any value in a
    /// distinguished name, and before a domain any name within it.
    pub id: Option<Identity>,
    /// `auth`.
    pub method: AuthMethod,
    /// `certs`: the peer must have one of these. Empty: any that leads to a CA, unless there are
    /// `pubkeys`.
    pub certs: Vec<Certificate>,
    /// `pubkeys`: the peer signs with one of these, or with the key of one of `certs` (RFC 7670).
    pub pubkeys: Vec<RawKey>,
    /// `cacerts`: its certificate must lead to one of these. Empty: to any CA.
    pub cacerts: Vec<Certificate>,
    /// `ca_id`: a CA on its path, or the trusted CA itself, must have this identity.
    pub ca_id: Option<Identity>,
    /// `revocation`.
    pub revocation: Revocation,
    /// `eku`.
    pub eku: Eku,
}

impl LocalAuth {
    /// Authenticates with a shared key.
    pub fn psk(id: Option<Identity>) -> Self {
        Self { id, method: AuthMethod::Psk, certs: Vec::new(), pubkeys: Vec::new() }
    }

    /// Our identity by the section: `id`, else the subject of our first certificate, else the
    /// identity of our first public key.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let by_default = || match (self.certs.first(), self.pubkeys.first()) {
            (Some(certificate), _) => Some(Identity::Dn(certificate.subject().clone())),
            (None, Some(key)) => Some(key.identity()),
            (None, None) => None,
        };
        self.id.clone().or_else(|| self.method.is_pubkey().then(by_default).flatten())
    }

    /// Authenticates with the key of one of these certificates.
    pub fn by_certificate(id: Option<Identity>, certs: Vec<Certificate>) -> Self {
        Self { id, method: AuthMethod::PUBKEY, certs, pubkeys: Vec::new() }
    }

    /// Authenticates with one of these keys without a certificate.
    pub fn by_public_key(id: Option<Identity>, pubkeys: Vec<RawKey>) -> Self {
        Self { id, method: AuthMethod::PUBKEY, certs: Vec::new(), pubkeys }
    }
}

impl RemoteAuth {
    /// The peer's identity, if it is configured and no pattern.
    pub(crate) fn name(&self) -> Option<&Identity> {
        self.id.as_ref().filter(|id| !id.has_wildcards())
    }

    /// True if a certificate can prove the peer's identity.
    pub(crate) fn takes_certificates(&self) -> bool {
        self.method.is_pubkey() && (self.pubkeys.is_empty() || !self.certs.is_empty())
    }

    /// True if a public key without a certificate can prove it.
    pub(crate) fn takes_public_keys(&self) -> bool {
        self.method.is_pubkey() && !self.pubkeys.is_empty()
    }

    /// The peer authenticates with a shared key.
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
    /// `pubkey` and its restrictions: a digital signature (RFC 7427) with the key of a certificate,
    /// or with a key that has none.
    Pubkey {
        /// Signatures that AUTH may have.
        schemes: Schemes,
        /// Hash algorithms that the certificates' signatures may use.
        chain: Hashes,
    },
}

impl AuthMethod {
    /// `pubkey` without restrictions.
    pub const PUBKEY: Self = Self::Pubkey { schemes: Schemes::ALL, chain: Hashes::ALL };

    /// True if it needs a signature.
    pub fn is_pubkey(self) -> bool {
        matches!(self, Self::Pubkey { .. })
    }
}

/// The action if there is no current CRL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Revocation {
    /// `strict`: the certificate is refused.
    Strict,
    /// `ifuri`: it is refused if it names a place for CRLs.
    IfUri,
    /// `relaxed`: it is refused only if it is known to be revoked.
    #[default]
    Relaxed,
}

/// What an extended key usage in the peer's certificate must allow. A critical one must always
/// allow IKE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Eku {
    /// `any`: anything.
    #[default]
    Any,
    /// `ike`: IKE, if there is an extended key usage.
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
    /// `reqid`: the number with which its SAs are shown; the default is the next free one. It is
    /// not part of an IKE SA's state, which nodes of older builds read.
    #[serde(skip)]
    pub reqid: Option<NonZeroU32>,
    /// `updown`; not part of that state either.
    #[serde(skip)]
    pub updown: Option<UpdownScript>,
    /// `per_cpu_sas`: a Child SA for each worker, beside one for all (RFC 9611). Not part of that
    /// state either.
    #[serde(skip)]
    pub per_cpu_sas: bool,
    /// `mss`; not part of that state either. The host looks it up when it installs an SA.
    #[serde(skip)]
    pub mss: Mss,
    /// `icmp`: ICMP errors may pass by the packet that they quote. As `mss`, not part of that state.
    #[serde(skip)]
    pub icmp: bool,
}

/// `updown` and `hostaccess`: the script that the host runs when a Child SA comes up or goes down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdownScript {
    /// The program, by its absolute path.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// `hostaccess`: the script opens the way to the host itself.
    pub host_access: bool,
}

/// The action of a child on matching traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildMode {
    /// `tunnel`: protect.
    #[default]
    Tunnel,
    /// `transport`: protect packets between the two hosts themselves, without another IP header if
    /// both sides agree to that.
    Transport,
    /// `pass`: bypass.
    Pass,
    /// `drop`: discard.
    Drop,
}

impl ChildMode {
    /// True for modes with SAs.
    pub fn is_negotiated(self) -> bool {
        matches!(self, Self::Tunnel | Self::Transport)
    }
}

/// When a child is initiated: after its connection is loaded, and after its SA is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartAction {
    /// Wait for the peer or the operator.
    #[default]
    None,
    /// Initiate at once.
    Start,
    /// Initiate at the first packet.
    Trap,
    /// Both: initiate at once, and at the first packet if the SA is lost.
    TrapStart,
}

impl StartAction {
    /// As `swanctl.conf` says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Start => "start",
            Self::Trap => "trap",
            Self::TrapStart => "trap|start",
        }
    }

    /// The first packet without an SA initiates.
    pub fn traps(self) -> bool {
        matches!(self, Self::Trap | Self::TrapStart)
    }

    /// Initiates without waiting for a packet.
    pub fn starts(self) -> bool {
        matches!(self, Self::Start | Self::TrapStart)
    }

    /// The same action with a trap, or without.
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
