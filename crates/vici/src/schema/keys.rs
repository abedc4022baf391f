//! The table of all keys of a connection: those that are decoded, and those of strongSwan that are
//! accepted only with the value that asks for what this gateway does anyway.
//! `docs/reference/swanctl.md` explains each key; a test compares the two.

use super::refusal::{Refusal, quote};
use super::value;
use crate::message::{Element, Message};

/// A key of one kind of section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Name of the key; a trailing `*` stands for any suffix.
    pub(super) name: &'static str,
    /// How the key is handled.
    pub(super) rule: Rule,
}

/// How a key is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// Decoded into the configuration.
    Decoded,
    /// Accepted only with these values; the text says what any other value would ask for.
    Only(Accepted, &'static str),
    /// A boolean. Yes has no effect, and the log says so; the text is the reason.
    NoEffect(Accepted, &'static str),
}

/// Values that ask for nothing beyond what the gateway does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Accepted {
    /// Any time: no effect with IKEv2, as in strongSwan.
    AnyTime,
    /// `yes` or `no`.
    Boolean,
    /// `no`.
    No,
    /// `yes`.
    Yes,
    /// 0, as a number, time or size.
    Zero,
    /// An empty value.
    Empty,
    /// One of these words.
    Words(&'static [&'static str], &'static str),
    /// No value.
    Never,
}

const fn decoded(name: &'static str) -> Key {
    Key { name, rule: Rule::Decoded }
}

const fn only(name: &'static str, accepted: Accepted, what: &'static str) -> Key {
    Key { name, rule: Rule::Only(accepted, what) }
}

const fn no_effect(name: &'static str, why: &'static str) -> Key {
    Key { name, rule: Rule::NoEffect(Boolean, why) }
}

const fn words(
    name: &'static str,
    words: &'static [&'static str],
    expected: &'static str,
    what: &'static str,
) -> Key {
    only(name, Accepted::Words(words, expected), what)
}

use Accepted::{AnyTime, Boolean, Empty, Never, No, Yes, Zero};

/// `connections.<conn>`.
pub(super) const CONNECTION: &[Key] = &[
    decoded("local_addrs"),
    decoded("remote_addrs"),
    decoded("local_port"),
    decoded("remote_port"),
    decoded("proposals"),
    decoded("encap"),
    decoded("fragmentation"),
    decoded("dpd_delay"),
    decoded("keyingtries"),
    decoded("local*"),
    decoded("remote*"),
    decoded("children"),
    words("version", &["0", "2"], "2, or 0 for the default", "IKEv1"),
    only("mobike", No, "MOBIKE"),
    decoded("childless"),
    decoded("unique"),
    decoded("reauth_time"),
    decoded("rekey_time"),
    decoded("over_time"),
    decoded("rand_time"),
    only("dscp", Accepted::Words(&["000000", "0"], "000000"), "marking of IKE packets"),
    only("dpd_timeout", AnyTime, ""),
    only("aggressive", No, "aggressive mode (IKEv1)"),
    only("pull", Yes, "push mode (IKEv1)"),
    decoded("send_certreq"),
    decoded("send_cert"),
    words("ocsp", &["no", "never"], "never", "OCSP"),
    decoded("vips"),
    decoded("vips_within"),
    decoded("pools"),
    decoded("ppk_id"),
    decoded("ppk_required"),
    only("if_id_in", Zero, "an XFRM interface"),
    only("if_id_out", Zero, "an XFRM interface"),
    only("mediation", No, "mediation"),
    only("mediated_by", Empty, "mediation"),
    only("mediation_peer", Empty, "mediation"),
];

/// `connections.<conn>.local<suffix>` and `connections.<conn>.remote<suffix>`.
pub(super) const AUTH: &[Key] = &[
    decoded("auth"),
    decoded("id"),
    decoded("round"),
    decoded("ca_id"),
    only("aaa_id", Empty, "EAP"),
    only("eap_id", Empty, "EAP"),
    only("xauth_id", Empty, "XAuth (IKEv1)"),
    decoded("revocation"),
    decoded("eku"),
    only("groups", Empty, "group membership, without which more peers may connect,"),
    only("cert_policy", Empty, "a certificate policy, without which more peers may connect,"),
    decoded("certs"),
    decoded("cacerts"),
    decoded("pubkeys"),
    only("cert*", Never, "a certificate that the daemon itself reads (name it in certs instead)"),
    only("cacert*", Never, "a certificate that the daemon itself reads (name it in cacerts instead)"),
];

/// `connections.<conn>.children.<child>`.
pub(super) const CHILD: &[Key] = &[
    decoded("local_ts"),
    decoded("remote_ts"),
    decoded("ah_proposals"),
    decoded("esp_proposals"),
    decoded("mode"),
    decoded("start_action"),
    decoded("dpd_action"),
    decoded("close_action"),
    decoded("replay_window"),
    decoded("copy_df"),
    decoded("copy_ecn"),
    decoded("copy_dscp"),
    decoded("mss"),
    decoded("priority"),
    only("sha256_96", No, "truncation of HMAC-SHA-256 to 96 bits"),
    decoded("rekey_time"),
    decoded("life_time"),
    decoded("rand_time"),
    decoded("rekey_bytes"),
    decoded("life_bytes"),
    decoded("rand_bytes"),
    decoded("rekey_packets"),
    decoded("life_packets"),
    decoded("rand_packets"),
    decoded("updown"),
    decoded("hostaccess"),
    only("policies", Yes, "an SA without a policy"),
    no_effect("policies_fwd_out", "this gateway has no forward policies"),
    decoded("icmp"),
    no_effect("ipcomp", "compression (IPComp) is not offered, and a peer that offers it is not answered"),
    only("inactivity", Zero, "closing after inactivity"),
    decoded("reqid"),
    only("mark_in", Zero, "a mark"),
    only("mark_in_sa", No, "a mark"),
    only("mark_out", Zero, "a mark"),
    only("set_mark_in", Zero, "a mark"),
    only("set_mark_out", Zero, "a mark"),
    only("tfc_padding", Zero, "traffic flow confidentiality padding"),
    only("interface", Empty, "binding a policy to an interface"),
    words("hw_offload", &["no", "auto"], "no or auto", "offload to hardware"),
    only("if_id_in", Zero, "an XFRM interface"),
    only("if_id_out", Zero, "an XFRM interface"),
    only("label", Empty, "a security label"),
    words("label_mode", &["system"], "system", "a security label"),
    decoded("per_cpu_sas"),
];

/// `pools.<pool>`; strongSwan accepts the numbers of attributes as names too.
pub(super) const POOL: &[Key] = &[
    decoded("addrs"),
    decoded("dns"),
    decoded("subnet"),
    decoded("split_include"),
    only("nbns", Empty, "a WINS server"),
    only("dhcp", Empty, "a DHCP server"),
    only("netmask", Empty, "a netmask"),
    only("server", Empty, "an internal server"),
    only("split_exclude", Empty, "an excluded subnet"),
];

/// Settings of a child that are accepted but have no effect, for the log.
pub(super) fn without_effect(path: &str, child: &Message) -> Vec<String> {
    let rows = CHILD.iter().filter_map(|key| match key.rule {
        Rule::NoEffect(_, why) => Some((key.name, why)),
        Rule::Decoded | Rule::Only(..) => None,
    });
    let asked = rows.filter_map(|(name, why)| Some((name, child.text(name)?, why)));
    let asked = asked.filter(|(_, text, _)| value::boolean(text) != Ok(false));
    asked.map(|(name, text, why)| format!("{path}.{name}: {text} has no effect: {why}")).collect()
}

impl Key {
    /// True if this row matches `name`.
    pub(super) fn is(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => self.name == name,
        }
    }

    /// Accepts a key that was not decoded, or says why not.
    pub(super) fn check(&self, path: String, element: &Element) -> Result<(), Refusal> {
        let (accepted, what) = match self.rule {
            Rule::Only(accepted, what) => (accepted, what),
            Rule::NoEffect(accepted, _) => (accepted, ""),
            // Decoded keys were taken before. Only sections are taken by prefix, so a key left
            // here only begins like a known one: it is misspelt.
            Rule::Decoded => return Err(Refusal::Unknown { path }),
        };
        let found = match element {
            Element::Value(_, value) if value.text().is_some_and(|text| accepted.accepts(text)) => {
                return Ok(());
            }
            Element::List(_, items) if items.is_empty() && matches!(accepted, Empty) => return Ok(()),
            Element::Value(_, value) => quote(value.bytes()),
            Element::List(_, items) => match items.first() {
                Some(first) => quote(first.bytes()),
                None => "an empty list".to_owned(),
            },
            Element::Section(..) => "a section".to_owned(),
        };
        let expected = accepted.expected();
        Err(match accepted {
            AnyTime | Boolean => Refusal::Bad { path, found, why: format!("expected {expected}") },
            _ => Refusal::Unsupported { path, found, what, expected },
        })
    }
}

impl Accepted {
    fn accepts(self, text: &str) -> bool {
        match self {
            Self::AnyTime => value::seconds(text).is_ok(),
            Self::Boolean => value::boolean(text).is_ok(),
            Self::No => value::boolean(text) == Ok(false),
            Self::Yes => value::boolean(text) == Ok(true),
            Self::Zero => value::is_zero(text),
            Self::Empty => text.is_empty(),
            Self::Words(words, _) => words.iter().any(|word| text.eq_ignore_ascii_case(word)),
            Self::Never => false,
        }
    }

    /// The accepted values in words; empty if there are none.
    fn expected(self) -> &'static str {
        match self {
            Self::AnyTime => "a time",
            Self::Boolean => "yes or no",
            Self::No => "no",
            Self::Yes => "yes",
            Self::Zero => "0",
            Self::Empty | Self::Never => "",
            Self::Words(_, expected) => expected,
        }
    }
}
