//! Connections as an operator configures them, in the words of `swanctl.conf`.

mod change;
mod lifetime;
mod pool;

pub use change::{ChildChange, Difference, IkeChange};
pub use lifetime::{ChildLifetime, IkeLifetime, Lifetime};
pub use pool::Pool;

use crate::cert::{Certificate, DistinguishedName, Hashes, Schemes};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write};
use std::net::IpAddr;
use std::time::Duration;
use testudo_ipsec::sa::HeaderCopy;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A `connections.<name>` section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Name of the section.
    pub name: String,
    /// `local_addrs`; empty means any.
    pub local_addrs: Vec<AddrRange>,
    /// `remote_addrs`; empty means any (then only the peer can initiate).
    pub remote_addrs: Vec<AddrRange>,
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
    /// `pools`: names of the pools whose addresses the peer may get.
    pub pools: Vec<String>,
    /// `rekey_time`, `over_time`, `rand_time`.
    pub lifetime: IkeLifetime,
    /// The `local` section.
    pub local: LocalAuth,
    /// The `remote` section.
    pub remote: RemoteAuth,
    /// The `children` sections.
    pub children: Vec<Child>,
}

/// Fragmentation of IKE messages (RFC 7383).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fragmentation {
    /// `yes`: where the peer can, messages that are too large leave in fragments. `force` means the same with IKEv2.
    #[default]
    Yes,
    /// `accept`: fragments are taken, but not sent.
    Accept,
    /// `no`: neither.
    No,
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
    /// `ppk_id`: which PPK we use when we initiate, and the one that the peer must use. Without it we use none, and the peer
    /// may use any that is loaded.
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
    /// `id`; by default the subject of the first certificate, and without one our address.
    pub id: Option<Identity>,
    /// `auth`.
    pub method: AuthMethod,
    /// `certs`: ours; without any, one that is loaded and has our identity.
    pub certs: Vec<Certificate>,
}

/// `connections.<name>.remote`: what we demand from the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteAuth {
    /// `id`; `None` or `%any` accepts any identity that authenticates. A `*` stands for any value in a distinguished name,
    /// and in front of a domain for any name within it.
    pub id: Option<Identity>,
    /// `auth`.
    pub method: AuthMethod,
    /// `certs`: the peer has one of these; empty allows any that leads to a CA.
    pub certs: Vec<Certificate>,
    /// `cacerts`: its certificate leads to one of these; empty allows all CAs.
    pub cacerts: Vec<Certificate>,
    /// `revocation`.
    pub revocation: Revocation,
}

impl LocalAuth {
    /// With a shared key.
    pub fn psk(id: Option<Identity>) -> Self {
        Self { id, method: AuthMethod::Psk, certs: Vec::new() }
    }
}

impl RemoteAuth {
    /// With a shared key.
    pub fn psk(id: Option<Identity>) -> Self {
        let (certs, cacerts) = (Vec::new(), Vec::new());
        Self { id, method: AuthMethod::Psk, certs, cacerts, revocation: Revocation::default() }
    }
}

/// Methods of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthMethod {
    /// `psk`: shared key message integrity code (RFC 7296 §2.15).
    Psk,
    /// `pubkey` and what narrows it: a digital signature (RFC 7427) with the key of a certificate.
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

    /// True if it needs a certificate.
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

/// Identification payload data (RFC 7296 §3.5).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Identity {
    /// ID_IPV4_ADDR or ID_IPV6_ADDR.
    Addr(IpAddr),
    /// ID_FQDN.
    Fqdn(String),
    /// ID_RFC822_ADDR.
    Email(String),
    /// ID_KEY_ID.
    KeyId(Vec<u8>),
    /// ID_DER_ASN1_DN.
    Dn(DistinguishedName),
}

impl Identity {
    /// True if both name the same party: the letters of names and mail addresses count alike in both cases.
    pub fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fqdn(a), Self::Fqdn(b)) | (Self::Email(a), Self::Email(b)) => a.eq_ignore_ascii_case(b),
            _ => self == other,
        }
    }

    /// The same for all that name the same party: what SAs and leases are found by. Whoever could be two by how it writes
    /// its name would be nobody's twin, and could empty a pool.
    pub(crate) fn canonical(&self) -> Self {
        match self {
            Self::Fqdn(name) => Self::Fqdn(name.to_ascii_lowercase()),
            Self::Email(address) => Self::Email(address.to_ascii_lowercase()),
            // Names in DER are equal where they name the same.
            Self::Dn(_) | Self::Addr(_) | Self::KeyId(_) => self.clone(),
        }
    }

    /// True if `other` is what this pattern describes: `*.example.org`, `*@example.org`, `C=CH, CN=*`, or the same party.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fqdn(a), Self::Fqdn(b)) | (Self::Email(a), Self::Email(b)) if a.starts_with('*') => {
                let end = a.strip_prefix('*').unwrap_or_default().as_bytes();
                let found = b.len().checked_sub(end.len()).filter(|more| *more > 0);
                found
                    .and_then(|at| b.as_bytes().get(at..))
                    .is_some_and(|found| found.eq_ignore_ascii_case(end))
            }
            (Self::Dn(a), Self::Dn(b)) => a.covers(b),
            _ => self.matches(other),
        }
    }

    /// True if it stands for more than one party.
    pub fn has_wildcards(&self) -> bool {
        match self {
            Self::Fqdn(name) | Self::Email(name) => name.starts_with('*'),
            Self::Dn(name) => name.has_wildcards(),
            Self::Addr(_) | Self::KeyId(_) => false,
        }
    }
}

/// As `swanctl` shows it. Control characters from the wire are replaced, so that a peer cannot forge log lines.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addr(addr) => write!(f, "{addr}"),
            Self::Fqdn(name) | Self::Email(name) => {
                name.chars().try_for_each(|c| f.write_char(if c.is_control() { '?' } else { c }))
            }
            Self::KeyId(octets) if octets.iter().all(|o| o.is_ascii_graphic()) && !octets.is_empty() => {
                octets.iter().try_for_each(|&o| f.write_char(char::from(o)))
            }
            Self::KeyId(octets) => octets.iter().try_for_each(|o| write!(f, "{o:02x}")),
            Self::Dn(name) => write!(f, "{name}"),
        }
    }
}

/// A `children.<name>` section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Name of the section.
    pub name: String,
    /// `local_ts`.
    pub local_ts: Vec<TsSpec>,
    /// `remote_ts`.
    pub remote_ts: Vec<TsSpec>,
    /// `esp_proposals`, in order of preference; empty for [`ChildMode::Pass`] and [`ChildMode::Drop`].
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
}

/// What a child does with matching traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildMode {
    /// `tunnel`: protect.
    Tunnel,
    /// `pass`: bypass.
    Pass,
    /// `drop`: discard.
    Drop,
}

/// What is done for a child when its connection is loaded, and when its SA is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartAction {
    /// Wait for the peer or the operator.
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

/// Encryption transforms of IKE (RFC 7296 §3.3.2, RFC 5282, RFC 7634).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IkeEncryption {
    /// `aes128gcm16`.
    Aes128Gcm16,
    /// `aes192gcm16`.
    Aes192Gcm16,
    /// `aes256gcm16`.
    Aes256Gcm16,
    /// `aes128ccm16`.
    Aes128Ccm16,
    /// `aes192ccm16`.
    Aes192Ccm16,
    /// `aes256ccm16`.
    Aes256Ccm16,
    /// `chacha20poly1305`.
    ChaCha20Poly1305,
    /// `aes128`: AES-CBC, which needs an [`Integrity`] beside it.
    Aes128Cbc,
    /// `aes192`: AES-CBC, which needs an [`Integrity`] beside it.
    Aes192Cbc,
    /// `aes256`: AES-CBC, which needs an [`Integrity`] beside it.
    Aes256Cbc,
}

impl IkeEncryption {
    /// True for a cipher that protects the integrity too, so that there is no [`Integrity`] beside it (RFC 5282 §8).
    pub fn is_aead(self) -> bool {
        !matches!(self, Self::Aes128Cbc | Self::Aes192Cbc | Self::Aes256Cbc)
    }
}

/// Integrity algorithms of IKE, for ciphers that are no AEAD (RFC 4868).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Integrity {
    /// `sha1`: HMAC-SHA1-96 (RFC 2404), a legacy algorithm.
    HmacSha1,
    /// `sha256`: HMAC-SHA2-256-128.
    HmacSha256,
    /// `sha384`: HMAC-SHA2-384-192.
    HmacSha384,
    /// `sha512`: HMAC-SHA2-512-256.
    HmacSha512,
}

/// Pseudo-random functions of IKE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Prf {
    /// `prfsha1`, a legacy algorithm.
    HmacSha1,
    /// `prfsha256`.
    HmacSha256,
    /// `prfsha384`.
    HmacSha384,
    /// `prfsha512`.
    HmacSha512,
    /// `prfaesxcbc` (RFC 4434).
    AesXcbc,
}

/// Key exchange methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyExchange {
    /// `x25519` (group 31).
    X25519,
    /// `ecp256` (group 19).
    Ecp256,
    /// `ecp384` (group 20).
    Ecp384,
    /// `ecp521` (group 21).
    Ecp521,
    /// `modp1024` (group 2), a legacy algorithm.
    Modp1024,
    /// `modp1536` (group 5), a legacy algorithm.
    Modp1536,
    /// `modp2048` (group 14).
    Modp2048,
    /// `modp3072` (group 15).
    Modp3072,
    /// `modp4096` (group 16).
    Modp4096,
    /// `mlkem512` (method 35).
    MlKem512,
    /// `mlkem768` (method 36).
    MlKem768,
    /// `mlkem1024` (method 37).
    MlKem1024,
}

/// How many additional key exchanges there can be (RFC 9370 §2.2.1).
pub const ADDITIONAL_KE: usize = 7;

/// One IKE proposal: any combination of the listed transforms is acceptable, earlier ones preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IkeProposal {
    /// Encryption: AEADs only, or none of them.
    pub encryption: Vec<IkeEncryption>,
    /// Integrity algorithms; empty exactly where the ciphers are AEADs.
    pub integrity: Vec<Integrity>,
    /// Pseudo-random functions.
    pub prf: Vec<Prf>,
    /// Key exchange methods.
    pub ke: Vec<KeyExchange>,
    /// `ke1_` to `ke7_`: methods of the additional key exchanges (RFC 9370). `None` (`ke1_none`) stands for an exchange
    /// that may be left out; where the list is empty, there is none.
    pub additional: [Vec<Option<KeyExchange>>; ADDITIONAL_KE],
}

/// One ESP proposal: any combination of the listed transforms is acceptable, earlier ones preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EspProposal {
    /// Encryption, AEAD only so far.
    pub encryption: Vec<testudo_ipsec::sa::EspAlgorithm>,
    /// Key exchange methods of CREATE_CHILD_SA, for perfect forward secrecy; not sent in IKE_AUTH (RFC 7296 §1.2).
    pub ke: Vec<KeyExchange>,
    /// `ke1_` to `ke7_`: as in [`IkeProposal`], beside a method in `ke` (RFC 9370 §2.2.4).
    pub additional: [Vec<Option<KeyExchange>>; ADDITIONAL_KE],
    /// Extended sequence numbers, in order of preference; `[true, false]` offers both, ESN preferred.
    pub esn: Vec<bool>,
}

/// What a shared secret is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecretKind {
    /// `secrets.ike<suffix>`: authentication.
    #[default]
    Ike,
    /// `secrets.ppk<suffix>`: a post-quantum pre-shared key, whose owners are its PPK_IDs (RFC 8784).
    Ppk,
}

/// A `secrets.ike<suffix>` or `secrets.ppk<suffix>` section: a pre-shared key and the identities that own it (none: anybody).
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub struct SharedSecret {
    /// Unique name of the secret, as VICI gives it.
    pub name: String,
    /// What it is for.
    #[zeroize(skip)]
    pub kind: SecretKind,
    /// Identities of the owners.
    #[zeroize(skip)]
    pub owners: Vec<Identity>,
    /// The key itself.
    pub secret: Vec<u8>,
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSecret")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("owners", &self.owners)
            .finish_non_exhaustive()
    }
}
