//! Numbers of the IANA registry "IKEv2 Parameters" with names here.

use crate::config::ADDITIONAL_KE;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Declares an enum over a registry: known numbers by name, all others as `Unknown`. Make values
/// with `From`, which never returns `Unknown` for a named number.
macro_rules! registry {
    (
        $(#[$about:meta])* $name:ident: $repr:ty {
            $($(#[$doc:meta])* $variant:ident = $number:literal $text:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
            /// A number without a name here.
            Unknown($repr),
        }

        impl From<$repr> for $name {
            fn from(number: $repr) -> Self {
                match number {
                    $($number => Self::$variant,)*
                    other => Self::Unknown(other),
                }
            }
        }

        impl From<$name> for $repr {
            fn from(value: $name) -> Self {
                match value {
                    $($name::$variant => $number,)*
                    $name::Unknown(number) => number,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)*
                    Self::Unknown(number) => write!(f, "({number})"),
                }
            }
        }
    };
}

registry! {
    /// Exchange types (RFC 7296 §3.1).
    ExchangeType: u8 {
        /// RFC 7296 §1.2.
        IkeSaInit = 34 "IKE_SA_INIT",
        /// RFC 7296 §1.2.
        IkeAuth = 35 "IKE_AUTH",
        /// RFC 7296 §1.3.
        CreateChildSa = 36 "CREATE_CHILD_SA",
        /// RFC 7296 §1.4.
        Informational = 37 "INFORMATIONAL",
        /// RFC 5723.
        IkeSessionResume = 38 "IKE_SESSION_RESUME",
        /// RFC 9242.
        IkeIntermediate = 43 "IKE_INTERMEDIATE",
        /// RFC 9370.
        IkeFollowupKe = 44 "IKE_FOLLOWUP_KE",
    }
}

registry! {
    /// Payload types (RFC 7296 §3.2).
    PayloadType: u8 {
        /// No next payload.
        None = 0 "none",
        /// Security Association.
        SecurityAssociation = 33 "SA",
        /// Key Exchange.
        KeyExchange = 34 "KE",
        /// Identification of the initiator.
        IdInitiator = 35 "IDi",
        /// Identification of the responder.
        IdResponder = 36 "IDr",
        /// Certificate.
        Certificate = 37 "CERT",
        /// Certificate Request.
        CertificateRequest = 38 "CERTREQ",
        /// Authentication.
        Authentication = 39 "AUTH",
        /// Nonce.
        Nonce = 40 "Nonce",
        /// Notify.
        Notify = 41 "N",
        /// Delete.
        Delete = 42 "D",
        /// Vendor ID.
        VendorId = 43 "V",
        /// Traffic Selectors of the initiator.
        TsInitiator = 44 "TSi",
        /// Traffic Selectors of the responder.
        TsResponder = 45 "TSr",
        /// Encrypted and Authenticated.
        Encrypted = 46 "SK",
        /// Configuration.
        Configuration = 47 "CP",
        /// Extensible Authentication.
        Eap = 48 "EAP",
        /// Encrypted and Authenticated Fragment (RFC 7383).
        EncryptedFragment = 53 "SKF",
    }
}

impl PayloadType {
    /// True for the types of RFC 7296 itself. Every implementation knows these, so their critical
    /// bit is ignored (RFC 7296 §3.2).
    pub fn is_base(self) -> bool {
        (33..=48).contains(&u8::from(self))
    }
}

registry! {
    /// Protocol IDs of proposals, notifies and deletes (RFC 7296 §3.3.1).
    Protocol: u8 {
        /// IKE itself.
        Ike = 1 "IKE",
        /// Authentication Header (RFC 4302).
        Ah = 2 "AH",
        /// Encapsulating Security Payload (RFC 4303).
        Esp = 3 "ESP",
    }
}

registry! {
    /// Transform types (RFC 7296 §3.3.2).
    TransformType: u8 {
        /// Encryption algorithm.
        Encryption = 1 "ENCR",
        /// Pseudo-random function.
        Prf = 2 "PRF",
        /// Integrity algorithm.
        Integrity = 3 "INTEG",
        /// Key exchange method, once "Diffie-Hellman group" (RFC 9370).
        KeyExchange = 4 "KE",
        /// Extended Sequence Numbers.
        Esn = 5 "ESN",
        /// Additional key exchange 1 (RFC 9370).
        AdditionalKe1 = 6 "KE1",
        /// Additional key exchange 2 (RFC 9370).
        AdditionalKe2 = 7 "KE2",
        /// Additional key exchange 3 (RFC 9370).
        AdditionalKe3 = 8 "KE3",
        /// Additional key exchange 4 (RFC 9370).
        AdditionalKe4 = 9 "KE4",
        /// Additional key exchange 5 (RFC 9370).
        AdditionalKe5 = 10 "KE5",
        /// Additional key exchange 6 (RFC 9370).
        AdditionalKe6 = 11 "KE6",
        /// Additional key exchange 7 (RFC 9370).
        AdditionalKe7 = 12 "KE7",
    }
}

impl TransformType {
    /// The additional key exchanges, in their order (RFC 9370 §2.2.1).
    pub const ADDITIONAL_KE: [Self; ADDITIONAL_KE] = [
        Self::AdditionalKe1,
        Self::AdditionalKe2,
        Self::AdditionalKe3,
        Self::AdditionalKe4,
        Self::AdditionalKe5,
        Self::AdditionalKe6,
        Self::AdditionalKe7,
    ];
}

registry! {
    /// Key exchange methods: transform IDs of type 4, and the number in the KE payload.
    KeMethod: u16 {
        /// No key exchange.
        None = 0 "NONE",
        /// 1024-bit MODP group (RFC 2409 §6.2).
        Modp1024 = 2 "MODP_1024",
        /// 1536-bit MODP group (RFC 3526).
        Modp1536 = 5 "MODP_1536",
        /// 2048-bit MODP group (RFC 3526).
        Modp2048 = 14 "MODP_2048",
        /// 3072-bit MODP group (RFC 3526).
        Modp3072 = 15 "MODP_3072",
        /// 4096-bit MODP group (RFC 3526).
        Modp4096 = 16 "MODP_4096",
        /// NIST P-256 (RFC 5903).
        Ecp256 = 19 "ECP_256",
        /// NIST P-384 (RFC 5903).
        Ecp384 = 20 "ECP_384",
        /// NIST P-521 (RFC 5903).
        Ecp521 = 21 "ECP_521",
        /// Curve25519 (RFC 8031).
        X25519 = 31 "CURVE_25519",
        /// Curve448 (RFC 8031).
        X448 = 32 "CURVE_448",
        /// ML-KEM-512 (FIPS 203).
        MlKem512 = 35 "ML_KEM_512",
        /// ML-KEM-768 (FIPS 203).
        MlKem768 = 36 "ML_KEM_768",
        /// ML-KEM-1024 (FIPS 203).
        MlKem1024 = 37 "ML_KEM_1024",
    }
}

registry! {
    /// Identification types (RFC 7296 §3.5).
    IdType: u8 {
        /// Four octets.
        Ipv4Addr = 1 "ID_IPV4_ADDR",
        /// A domain name.
        Fqdn = 2 "ID_FQDN",
        /// A mail address.
        Rfc822Addr = 3 "ID_RFC822_ADDR",
        /// Sixteen octets.
        Ipv6Addr = 5 "ID_IPV6_ADDR",
        /// An X.500 distinguished name.
        DerAsn1Dn = 9 "ID_DER_ASN1_DN",
        /// An X.509 general name.
        DerAsn1Gn = 10 "ID_DER_ASN1_GN",
        /// Octets whose meaning only the two parties know.
        KeyId = 11 "ID_KEY_ID",
    }
}

registry! {
    /// Authentication methods of the AUTH payload (RFC 7296 §3.8).
    AuthMethodId: u8 {
        /// RSA signature, PKCS #1 1.5 with SHA-1.
        RsaSignature = 1 "RSA Digital Signature",
        /// Shared key message integrity code.
        SharedKeyMic = 2 "Shared Key Message Integrity Code",
        /// ECDSA with SHA-256 on P-256 (RFC 4754).
        EcdsaSha256 = 9 "ECDSA with SHA-256 on the P-256 curve",
        /// ECDSA with SHA-384 on P-384 (RFC 4754).
        EcdsaSha384 = 10 "ECDSA with SHA-384 on the P-384 curve",
        /// ECDSA with SHA-512 on P-521 (RFC 4754).
        EcdsaSha512 = 11 "ECDSA with SHA-512 on the P-521 curve",
        /// NULL authentication (RFC 7619).
        Null = 13 "NULL Authentication",
        /// Digital signature with its algorithm named (RFC 7427).
        DigitalSignature = 14 "Digital Signature",
    }
}

registry! {
    /// Certificate encodings (RFC 7296 §3.6).
    CertEncoding: u8 {
        /// An X.509 certificate, in DER.
        X509Signature = 4 "X.509 Certificate - Signature",
        /// A list of revoked certificates.
        Crl = 7 "Certificate Revocation List",
        /// Hash and URL of an X.509 certificate.
        HashAndUrl = 12 "Hash and URL of X.509 certificate",
        /// Hash and URL of several.
        HashAndUrlBundle = 13 "Hash and URL of X.509 bundle",
        /// A public key alone (RFC 7670).
        RawPublicKey = 15 "Raw Public Key",
    }
}

registry! {
    /// What a Configuration payload does (RFC 7296 §3.15).
    CfgType: u8 {
        /// CFG_REQUEST.
        Request = 1 "CFG_REQUEST",
        /// CFG_REPLY.
        Reply = 2 "CFG_REPLY",
        /// CFG_SET.
        Set = 3 "CFG_SET",
        /// CFG_ACK.
        Ack = 4 "CFG_ACK",
    }
}

registry! {
    /// Attributes of a Configuration payload (RFC 7296 §3.15.1).
    CfgAttributeType: u16 {
        /// An address of the inner network.
        Ip4Address = 1 "INTERNAL_IP4_ADDRESS",
        /// A name server of the inner network.
        Ip4Dns = 3 "INTERNAL_IP4_DNS",
        /// An address of the inner network, with the length of its prefix.
        Ip6Address = 8 "INTERNAL_IP6_ADDRESS",
        /// A name server of the inner network.
        Ip6Dns = 10 "INTERNAL_IP6_DNS",
        /// A subnet behind the sender, with its mask.
        Ip4Subnet = 13 "INTERNAL_IP4_SUBNET",
        /// A subnet behind the sender, with the length of its prefix.
        Ip6Subnet = 15 "INTERNAL_IP6_SUBNET",
    }
}

registry! {
    /// Notify message types: errors below 16384, status from there on (RFC 7296 §3.10.1 and later
    /// RFCs).
    NotifyType: u16 {
        /// RFC 7296 §2.5; the data is the payload type.
        UnsupportedCriticalPayload = 1 "UNSUPPORTED_CRITICAL_PAYLOAD",
        /// RFC 7296 §2.21.
        InvalidIkeSpi = 4 "INVALID_IKE_SPI",
        /// RFC 7296 §2.5.
        InvalidMajorVersion = 5 "INVALID_MAJOR_VERSION",
        /// RFC 7296 §3.10.1.
        InvalidSyntax = 7 "INVALID_SYNTAX",
        /// RFC 7296 §2.3; the data is the Message ID.
        InvalidMessageId = 9 "INVALID_MESSAGE_ID",
        /// RFC 7296 §1.5; the data is the SPI.
        InvalidSpi = 11 "INVALID_SPI",
        /// RFC 7296 §2.7.
        NoProposalChosen = 14 "NO_PROPOSAL_CHOSEN",
        /// RFC 7296 §1.2; the data is the key exchange method wanted.
        InvalidKePayload = 17 "INVALID_KE_PAYLOAD",
        /// RFC 7296 §2.21.2.
        AuthenticationFailed = 24 "AUTHENTICATION_FAILED",
        /// RFC 7296 §2.9.
        SinglePairRequired = 34 "SINGLE_PAIR_REQUIRED",
        /// RFC 7296 §1.3.
        NoAdditionalSas = 35 "NO_ADDITIONAL_SAS",
        /// RFC 7296 §3.15.4.
        InternalAddressFailure = 36 "INTERNAL_ADDRESS_FAILURE",
        /// RFC 7296 §2.19.
        FailedCpRequired = 37 "FAILED_CP_REQUIRED",
        /// RFC 7296 §2.9.
        TsUnacceptable = 38 "TS_UNACCEPTABLE",
        /// RFC 7296 §3.10.1.
        InvalidSelectors = 39 "INVALID_SELECTORS",
        /// RFC 4555.
        UnacceptableAddresses = 40 "UNACCEPTABLE_ADDRESSES",
        /// RFC 4555.
        UnexpectedNatDetected = 41 "UNEXPECTED_NAT_DETECTED",
        /// RFC 7296 §2.25.
        TemporaryFailure = 43 "TEMPORARY_FAILURE",
        /// RFC 7296 §2.25.
        ChildSaNotFound = 44 "CHILD_SA_NOT_FOUND",
        /// RFC 9370.
        StateNotFound = 47 "STATE_NOT_FOUND",
        /// RFC 9611.
        TsMaxQueue = 48 "TS_MAX_QUEUE",
        /// RFC 7296 §2.4.
        InitialContact = 16384 "INITIAL_CONTACT",
        /// RFC 7296 §2.3.
        SetWindowSize = 16385 "SET_WINDOW_SIZE",
        /// RFC 7296 §2.9.
        AdditionalTsPossible = 16386 "ADDITIONAL_TS_POSSIBLE",
        /// RFC 7296 §2.22.
        IpcompSupported = 16387 "IPCOMP_SUPPORTED",
        /// RFC 7296 §2.23.
        NatDetectionSourceIp = 16388 "NAT_DETECTION_SOURCE_IP",
        /// RFC 7296 §2.23.
        NatDetectionDestinationIp = 16389 "NAT_DETECTION_DESTINATION_IP",
        /// RFC 7296 §2.6.
        Cookie = 16390 "COOKIE",
        /// RFC 7296 §1.3.1.
        UseTransportMode = 16391 "USE_TRANSPORT_MODE",
        /// RFC 7296 §3.6.
        HttpCertLookupSupported = 16392 "HTTP_CERT_LOOKUP_SUPPORTED",
        /// RFC 7296 §1.3.3.
        RekeySa = 16393 "REKEY_SA",
        /// RFC 7296 §1.3.1.
        EspTfcPaddingNotSupported = 16394 "ESP_TFC_PADDING_NOT_SUPPORTED",
        /// RFC 7296 §1.3.1.
        NonFirstFragmentsAlso = 16395 "NON_FIRST_FRAGMENTS_ALSO",
        /// RFC 4555.
        MobikeSupported = 16396 "MOBIKE_SUPPORTED",
        /// RFC 4555.
        AdditionalIp4Address = 16397 "ADDITIONAL_IP4_ADDRESS",
        /// RFC 4555.
        AdditionalIp6Address = 16398 "ADDITIONAL_IP6_ADDRESS",
        /// RFC 4555.
        NoAdditionalAddresses = 16399 "NO_ADDITIONAL_ADDRESSES",
        /// RFC 4555.
        UpdateSaAddresses = 16400 "UPDATE_SA_ADDRESSES",
        /// RFC 4555.
        Cookie2 = 16401 "COOKIE2",
        /// RFC 4555.
        NoNatsAllowed = 16402 "NO_NATS_ALLOWED",
        /// RFC 4478.
        AuthLifetime = 16403 "AUTH_LIFETIME",
        /// RFC 4739.
        MultipleAuthSupported = 16404 "MULTIPLE_AUTH_SUPPORTED",
        /// RFC 4739.
        AnotherAuthFollows = 16405 "ANOTHER_AUTH_FOLLOWS",
        /// RFC 5685.
        RedirectSupported = 16406 "REDIRECT_SUPPORTED",
        /// RFC 5685.
        Redirect = 16407 "REDIRECT",
        /// RFC 5685.
        RedirectedFrom = 16408 "REDIRECTED_FROM",
        /// RFC 5998.
        EapOnlyAuthentication = 16417 "EAP_ONLY_AUTHENTICATION",
        /// RFC 6023.
        ChildlessIkev2Supported = 16418 "CHILDLESS_IKEV2_SUPPORTED",
        /// RFC 6290.
        QuickCrashDetection = 16419 "QUICK_CRASH_DETECTION",
        /// RFC 6311.
        MessageIdSyncSupported = 16420 "IKEV2_MESSAGE_ID_SYNC_SUPPORTED",
        /// RFC 6311.
        ReplayCounterSyncSupported = 16421 "IPSEC_REPLAY_COUNTER_SYNC_SUPPORTED",
        /// RFC 6311.
        MessageIdSync = 16422 "IKEV2_MESSAGE_ID_SYNC",
        /// RFC 6311.
        ReplayCounterSync = 16423 "IPSEC_REPLAY_COUNTER_SYNC",
        /// RFC 7383.
        FragmentationSupported = 16430 "IKEV2_FRAGMENTATION_SUPPORTED",
        /// RFC 7427.
        SignatureHashAlgorithms = 16431 "SIGNATURE_HASH_ALGORITHMS",
        /// RFC 8784.
        UsePpk = 16435 "USE_PPK",
        /// RFC 8784.
        PpkIdentity = 16436 "PPK_IDENTITY",
        /// RFC 8784.
        NoPpkAuth = 16437 "NO_PPK_AUTH",
        /// RFC 9242.
        IntermediateExchangeSupported = 16438 "INTERMEDIATE_EXCHANGE_SUPPORTED",
        /// RFC 9370.
        AdditionalKeyExchange = 16441 "ADDITIONAL_KEY_EXCHANGE",
        /// RFC 9611.
        SaResourceInfo = 16444 "SA_RESOURCE_INFO",
    }
}

impl NotifyType {
    /// True for error types; an unknown one in a response means that the request has failed (RFC
    /// 7296 §3.10.1).
    pub fn is_error(self) -> bool {
        u16::from(self) < 16384
    }
}
