//! The status of IKE SAs, for operators: everything that `swanctl --list-sas` shows.

use crate::config::{ADDITIONAL_KE, Identity, IkeEncryption, Integrity, KeyExchange, Prf};
use crate::message::IkeSpi;
use crate::output::{ChildSaId, CommitId, IkeSaId, Reason, Time};
use crate::sa::{ChildPhase, ChildSa, IkeSa, Phase, RequestKind, What};
use crate::suite::Role;
use std::net::{IpAddr, SocketAddr};
use testudo_base::spi::Spi;
use testudo_ipsec::sa::{
    CcmAlgorithm, Cipher, Encapsulation, EspAlgorithm, IcvLen, Mac, Mode, SeparateAlgorithm,
};
use testudo_ipsec::selector::TrafficSelector;

/// An algorithm as charon prints it: name and key size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlgorithmName {
    /// For example `AES_GCM_16`.
    pub name: &'static str,
    /// Key size in bits.
    pub keysize: Option<u16>,
}

/// States of an IKE SA, in charon's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IkeSaState {
    /// IKE_SA_INIT or IKE_AUTH is under way.
    Connecting,
    /// Both sides are authenticated.
    Established,
    /// We have requested another in its place.
    Rekeying,
    /// Another has replaced it.
    Rekeyed,
    /// A delete is under way.
    Deleting,
}

impl IkeSaState {
    /// charon's name of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "CONNECTING",
            Self::Established => "ESTABLISHED",
            Self::Rekeying => "REKEYING",
            Self::Rekeyed => "REKEYED",
            Self::Deleting => "DELETING",
        }
    }
}

/// States of a Child SA, in charon's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildSaState {
    /// It is in the data plane.
    Installed,
    /// We have requested another in its place.
    Rekeying,
    /// Another has replaced it.
    Rekeyed,
    /// A delete is under way.
    Deleting,
    /// Both sides have deleted it; packets under way are still accepted.
    Deleted,
}

impl ChildSaState {
    /// charon's name of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Installed => "INSTALLED",
            Self::Rekeying => "REKEYING",
            Self::Rekeyed => "REKEYED",
            Self::Deleting => "DELETING",
            Self::Deleted => "DELETED",
        }
    }
}

/// Where a NAT was found on the way (RFC 7296 §2.23).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NatStatus {
    /// We are behind a NAT.
    pub local: bool,
    /// The peer is behind a NAT, or claims it to force UDP encapsulation.
    pub remote: bool,
    /// We pretended to be behind a NAT (`encap`).
    pub fake: bool,
}

impl NatStatus {
    /// True if ESP goes in UDP.
    pub fn any(self) -> bool {
        self.local || self.remote || self.fake
    }
}

/// An IKE SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeSaStatus {
    /// charon's `uniqueid`.
    pub id: IkeSaId,
    /// `connections.<name>`; none while a responder does not know yet.
    pub connection: Option<String>,
    /// Its state.
    pub state: IkeSaState,
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Our identity, once sent.
    pub local_id: Option<Identity>,
    /// The peer's identity, once received.
    pub remote_id: Option<Identity>,
    /// We initiated it.
    pub initiator: bool,
    /// The initiator's SPI.
    pub spi_i: IkeSpi,
    /// The responder's SPI; zero before it is known.
    pub spi_r: IkeSpi,
    /// NATs on the way.
    pub nat: NatStatus,
    /// Encryption, once negotiated.
    pub encryption: Option<AlgorithmName>,
    /// Integrity, once negotiated; none with an AEAD.
    pub integrity: Option<AlgorithmName>,
    /// Pseudo-random function, once negotiated.
    pub prf: Option<AlgorithmName>,
    /// Key exchange method, once negotiated.
    pub ke: Option<AlgorithmName>,
    /// Additional key exchange methods, those that take place, once negotiated.
    pub additional_ke: [Option<AlgorithmName>; ADDITIONAL_KE],
    /// Its keys depend on a post-quantum pre-shared key (RFC 8784).
    pub ppk: bool,
    /// When both sides were authenticated.
    pub established: Option<Time>,
    /// When it is rekeyed.
    pub rekey: Option<Time>,
    /// When its peer is authenticated again.
    pub reauth: Option<Time>,
    /// The last change of this SA: a cluster must have replicated it.
    pub commit: CommitId,
    /// The requests that are under way, in charon's names of tasks.
    pub tasks_active: Vec<&'static str>,
    /// The requests that wait.
    pub tasks_queued: Vec<&'static str>,
    /// Virtual addresses that the peer assigned to us.
    pub local_vips: Vec<IpAddr>,
    /// Virtual addresses that we assigned to the peer.
    pub remote_vips: Vec<IpAddr>,
    /// Its Child SAs.
    pub children: Vec<ChildSaStatus>,
}

/// A Child SA; always ESP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildSaStatus {
    /// charon's `uniqueid` of the child.
    pub id: ChildSaId,
    /// `children.<name>`.
    pub name: String,
    /// Equal for all SAs of a child, like charon's numbers of policies.
    pub reqid: u32,
    /// Its state.
    pub state: ChildSaState,
    /// The mode.
    pub mode: Mode,
    /// True with AH instead of ESP.
    pub ah: bool,
    /// ESP goes in UDP.
    pub encap: bool,
    /// The SPI that we chose.
    pub spi_in: Spi,
    /// The SPI that the peer chose.
    pub spi_out: Spi,
    /// Encryption; none with AH. An AEAD protects integrity too.
    pub encryption: Option<AlgorithmName>,
    /// Integrity; none with an AEAD.
    pub integrity: Option<AlgorithmName>,
    /// Key exchange method, if CREATE_CHILD_SA made it with one.
    pub ke: Option<AlgorithmName>,
    /// Additional key exchange methods, those that took place.
    pub additional_ke: [Option<AlgorithmName>; ADDITIONAL_KE],
    /// Extended sequence numbers.
    pub esn: bool,
    /// When it was installed in the data plane.
    pub installed: Time,
    /// When it is rekeyed.
    pub rekey: Option<Time>,
    /// When it ends, rekeyed or not.
    pub end: Option<Time>,
    /// Our side, narrowed.
    pub local_ts: Vec<TrafficSelector>,
    /// The peer's side, narrowed.
    pub remote_ts: Vec<TrafficSelector>,
    /// Each worker may have a Child SA of its own with these selectors (RFC 9611).
    pub per_cpu: bool,
    /// The worker that sends by this one. `None`: all that have none of their own.
    pub worker: Option<u16>,
}

/// Names and numbers of an IKE SA and its Child SAs.
#[derive(Clone, Copy)]
pub struct SaNames<'a>(pub(super) &'a IkeSa);

impl<'a> SaNames<'a> {
    /// charon's `uniqueid`.
    pub fn id(self) -> IkeSaId {
        self.0.id
    }

    /// `connections.<name>`; none while a responder does not know yet.
    pub fn connection(self) -> Option<&'a str> {
        // Before IKE_AUTH is over a responder has only guessed.
        let guessed = self.0.phase.half_open().is_some();
        (!guessed).then_some(&*self.0.connection)
    }

    /// Its state.
    pub fn state(self) -> IkeSaState {
        state(self.0)
    }

    /// Number and name of each Child SA.
    pub fn children(self) -> impl Iterator<Item = (ChildSaId, &'a str)> {
        self.0.children.iter().map(|child| (child.id, &*child.name))
    }
}

impl AlgorithmName {
    fn aes_gcm_16(bits: u16) -> Self {
        Self { name: "AES_GCM_16", keysize: Some(bits) }
    }
}

impl From<IkeEncryption> for AlgorithmName {
    fn from(encryption: IkeEncryption) -> Self {
        let name = match encryption {
            IkeEncryption::Aes128Gcm16 | IkeEncryption::Aes192Gcm16 | IkeEncryption::Aes256Gcm16 => {
                "AES_GCM_16"
            }
            IkeEncryption::Aes128Ccm16 | IkeEncryption::Aes192Ccm16 | IkeEncryption::Aes256Ccm16 => {
                "AES_CCM_16"
            }
            IkeEncryption::Aes128Cbc | IkeEncryption::Aes192Cbc | IkeEncryption::Aes256Cbc => "AES_CBC",
            // Its key has only one length, which is not shown.
            IkeEncryption::ChaCha20Poly1305 => return Self { name: "CHACHA20_POLY1305", keysize: None },
        };
        Self { name, keysize: Some(encryption.key_bits()) }
    }
}

impl From<Integrity> for AlgorithmName {
    fn from(integrity: Integrity) -> Self {
        let name = match integrity {
            Integrity::HmacSha1 => "HMAC_SHA1_96",
            Integrity::HmacSha256 => "HMAC_SHA2_256_128",
            Integrity::HmacSha384 => "HMAC_SHA2_384_192",
            Integrity::HmacSha512 => "HMAC_SHA2_512_256",
        };
        Self { name, keysize: None }
    }
}

impl AlgorithmName {
    /// The encryption of a Child SA; none with AH.
    pub fn encryption(algorithm: EspAlgorithm) -> Option<Self> {
        match algorithm {
            EspAlgorithm::Aes128Gcm16 => Some(Self::aes_gcm_16(128)),
            EspAlgorithm::Aes192Gcm16 => Some(Self::aes_gcm_16(192)),
            EspAlgorithm::Aes256Gcm16 => Some(Self::aes_gcm_16(256)),
            EspAlgorithm::Aes128Gmac => Some(Self { name: "NULL_AES_GMAC", keysize: Some(128) }),
            EspAlgorithm::Aes192Gmac => Some(Self { name: "NULL_AES_GMAC", keysize: Some(192) }),
            EspAlgorithm::Aes256Gmac => Some(Self { name: "NULL_AES_GMAC", keysize: Some(256) }),
            EspAlgorithm::Ccm(CcmAlgorithm { key, icv }) => {
                let name = match icv {
                    IcvLen::Eight => "AES_CCM_8",
                    IcvLen::Twelve => "AES_CCM_12",
                    IcvLen::Sixteen => "AES_CCM_16",
                };
                Some(Self { name, keysize: Some(8 * key.octets() as u16) })
            }
            EspAlgorithm::ChaCha20Poly1305 => Some(Self { name: "CHACHA20_POLY1305", keysize: None }),
            EspAlgorithm::Separate(SeparateAlgorithm { cipher: Cipher::Null, .. }) => {
                Some(Self { name: "NULL", keysize: None })
            }
            EspAlgorithm::Separate(SeparateAlgorithm { cipher: Cipher::TripleDesCbc, .. }) => {
                Some(Self { name: "3DES_CBC", keysize: None })
            }
            EspAlgorithm::Separate(SeparateAlgorithm { cipher, .. }) => {
                Some(Self { name: "AES_CBC", keysize: Some((8 * cipher.key_len()) as u16) })
            }
            EspAlgorithm::Ah(_) => None,
        }
    }
}

impl From<Mac> for AlgorithmName {
    fn from(mac: Mac) -> Self {
        let name = match mac {
            Mac::HmacSha1_96 => "HMAC_SHA1_96",
            Mac::HmacSha256_128 => "HMAC_SHA2_256_128",
            Mac::HmacSha384_192 => "HMAC_SHA2_384_192",
            Mac::HmacSha512_256 => "HMAC_SHA2_512_256",
            Mac::HmacMd5_96 => "HMAC_MD5_96",
            Mac::AesXcbc96 => "AES_XCBC_96",
            Mac::AesCmac96 => "AES_CMAC_96",
        };
        Self { name, keysize: None }
    }
}

impl From<Prf> for AlgorithmName {
    fn from(prf: Prf) -> Self {
        let name = match prf {
            Prf::HmacSha1 => "PRF_HMAC_SHA1",
            Prf::HmacSha256 => "PRF_HMAC_SHA2_256",
            Prf::HmacSha384 => "PRF_HMAC_SHA2_384",
            Prf::HmacSha512 => "PRF_HMAC_SHA2_512",
            Prf::AesXcbc => "PRF_AES128_XCBC",
        };
        Self { name, keysize: None }
    }
}

impl From<KeyExchange> for AlgorithmName {
    fn from(ke: KeyExchange) -> Self {
        let name = match ke {
            KeyExchange::X25519 => "CURVE_25519",
            KeyExchange::Ecp256 => "ECP_256",
            KeyExchange::Ecp384 => "ECP_384",
            KeyExchange::Ecp521 => "ECP_521",
            KeyExchange::Modp1024 => "MODP_1024",
            KeyExchange::Modp1536 => "MODP_1536",
            KeyExchange::Modp2048 => "MODP_2048",
            KeyExchange::Modp3072 => "MODP_3072",
            KeyExchange::Modp4096 => "MODP_4096",
            KeyExchange::MlKem512 => "ML_KEM_512",
            KeyExchange::MlKem768 => "ML_KEM_768",
            KeyExchange::MlKem1024 => "ML_KEM_1024",
        };
        Self { name, keysize: None }
    }
}

impl From<&IkeSa> for IkeSaStatus {
    fn from(sa: &IkeSa) -> Self {
        let suite = sa.keys.as_ref().map(|keys| keys.ike.suite());
        let (tasks_active, tasks_queued) = super::tasks::of(sa);
        Self {
            id: sa.id,
            connection: SaNames(sa).connection().map(str::to_owned),
            state: state(sa),
            local: sa.path.local,
            remote: sa.path.remote,
            local_id: sa.local_id.clone(),
            remote_id: sa.remote_id.clone(),
            initiator: sa.role == Role::Initiator,
            spi_i: sa.spis.initiator,
            spi_r: sa.spis.responder,
            nat: sa.nat,
            encryption: suite.map(|suite| suite.encryption.into()),
            integrity: suite.and_then(|suite| suite.integrity).map(AlgorithmName::from),
            prf: suite.map(|suite| suite.prf.into()),
            ke: suite.map(|suite| suite.ke.into()),
            additional_ke: suite
                .map(|suite| suite.additional.map(|method| method.map(AlgorithmName::from)))
                .unwrap_or_default(),
            ppk: sa.ppk,
            established: sa.established,
            rekey: sa.times.rekey,
            reauth: sa.reauth_at,
            commit: sa.commit,
            tasks_active,
            tasks_queued,
            local_vips: sa.virtual_ips.local.clone(),
            remote_vips: sa.virtual_ips.remote.iter().map(|lease| lease.addr).collect(),
            children: sa.children.iter().map(|child| ChildSaStatus::of(sa, child)).collect(),
        }
    }
}

fn state(sa: &IkeSa) -> IkeSaState {
    match sa.phase {
        _ if awaits_delete(sa) => IkeSaState::Rekeyed,
        _ if sa.closing.is_some() => IkeSaState::Deleting,
        Phase::Established if is_renewing(sa) => IkeSaState::Rekeying,
        Phase::Established => IkeSaState::Established,
        Phase::Gone { .. } => IkeSaState::Deleting,
        _ => IkeSaState::Connecting,
    }
}

fn is_renewing(sa: &IkeSa) -> bool {
    matches!(sa.creating.as_ref().map(|creating| &creating.what), Some(What::Ike(_)))
}

/// True if another has replaced it, and the peer must delete it.
fn awaits_delete(sa: &IkeSa) -> bool {
    let deleting = matches!(&sa.outgoing.pending, Some(p) if p.kind == RequestKind::DeleteIke);
    !deleting && sa.closing.as_ref().is_some_and(|closing| closing.reason == Reason::Rekeyed)
}

impl ChildSaStatus {
    fn of(sa: &IkeSa, child: &ChildSa) -> Self {
        let params = &child.params;
        let renewing = sa.creating.as_ref().is_some_and(|creating| creating.renews() == Some(child.id));
        Self {
            id: child.id,
            name: child.name.clone(),
            reqid: child.reqid,
            state: match child.phase {
                ChildPhase::Installed if renewing || child.is_missed() => ChildSaState::Rekeying,
                ChildPhase::Installed => ChildSaState::Installed,
                ChildPhase::Rekeyed => ChildSaState::Rekeyed,
                ChildPhase::Deleting => ChildSaState::Deleting,
                ChildPhase::Deleted(_) => ChildSaState::Deleted,
            },
            mode: child.params.mode,
            encap: params.encapsulation == Encapsulation::Udp,
            spi_in: params.spi_in,
            spi_out: params.spi_out,
            ah: params.algorithm.is_ah(),
            encryption: AlgorithmName::encryption(params.algorithm),
            integrity: params.algorithm.integrity().map(AlgorithmName::from),
            ke: child.ke.map(AlgorithmName::from),
            additional_ke: child.additional_ke.map(|method| method.map(AlgorithmName::from)),
            esn: params.esn,
            installed: child.installed,
            rekey: child.limits.times.rekey,
            end: child.limits.times.end,
            local_ts: params.local_ts.clone(),
            remote_ts: params.remote_ts.clone(),
            per_cpu: sa.part(child).is_some(),
            worker: sa.resources.worker(params.spi_in),
        }
    }
}
