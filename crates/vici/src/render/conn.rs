//! Loaded connections: `list-conn` and `list-policy`.

use super::{split_events, text};
use crate::message::Message;
use testudo_ike::cert::{Certificate, RawKey};
use testudo_ike::config::{
    AuthMethod, Child, ChildMode, Connection, Hosts, Identity, LocalAuth, RemoteAuth, Unique,
};

/// The events for one connection: one, or several if its children do not fit.
pub fn list_conn(connection: &Connection) -> Vec<Message> {
    let children = connection.children.iter().map(|child| (child.name.clone(), list_child(child)));
    split_events(children, |children| {
        let body = head(connection).with_section("children", children);
        Message::new().with_section(&connection.name, body)
    })
}

fn head(connection: &Connection) -> Message {
    let addrs = |hosts: Hosts<'_>| match hosts.is_any() {
        true => vec!["%any".to_owned()],
        false => hosts.describe(text::endpoint),
    };
    let mut message = Message::new()
        .with_list("local_addrs", addrs(connection.local_hosts()))
        .with_list("remote_addrs", addrs(connection.remote_hosts()))
        .with("version", "IKEv2")
        .with("reauth_time", connection.lifetime.reauth.to_string())
        .with("rekey_time", connection.lifetime.rekey.to_string())
        .with("unique", unique(connection.unique));
    if let Some(id) = &connection.ppk.id {
        message.add("ppk_id", text::identity(id));
    }
    if connection.ppk.required {
        message.add("ppk_required", "yes");
    }
    if !connection.dpd_delay.is_zero() {
        message.add_text("dpd_delay", connection.dpd_delay.as_secs());
    }
    if !connection.has_peers() {
        return message;
    }
    for (number, auth) in (1..).zip(connection.local_rounds()) {
        message.add_section(&format!("local-{number}"), local(auth));
    }
    for (number, auth) in (1..).zip(connection.remote_rounds()) {
        message.add_section(&format!("remote-{number}"), remote(auth));
    }
    message
}

fn local(auth: &LocalAuth) -> Message {
    self::auth(auth.method, auth.id.as_ref(), &auth.certs, &auth.pubkeys, &[])
}

fn remote(auth: &RemoteAuth) -> Message {
    self::auth(auth.method, auth.id.as_ref(), &auth.certs, &auth.pubkeys, &auth.cacerts)
}

fn auth(
    method: AuthMethod,
    id: Option<&Identity>,
    certs: &[Certificate],
    pubkeys: &[RawKey],
    cacerts: &[Certificate],
) -> Message {
    let mut message = Message::new();
    message.add(
        "class",
        match method {
            AuthMethod::Psk => "pre-shared key",
            AuthMethod::Pubkey { .. } => "public key",
        },
    );
    if let Some(id) = id {
        message.add("id", text::identity(id));
    }
    for list in ["groups", "cert_policy"] {
        message.add_list(list, [] as [&str; 0]);
    }
    let subject = |certificate: &Certificate| text::distinguished_name(certificate.subject());
    // charon has no list of public keys: they are in the list of certificates.
    let keys = pubkeys.iter().map(|key| format!("public key {key}"));
    message.add_list("certs", certs.iter().map(subject).chain(keys));
    message.add_list("cacerts", cacerts.iter().map(subject));
    message
}

fn list_child(child: &Child) -> Message {
    let mut message = Message::new()
        .with("mode", mode(child.mode))
        .with("rekey_time", child.lifetime.time.rekey.to_string())
        .with("rekey_bytes", child.lifetime.bytes.rekey.to_string())
        .with("rekey_packets", child.lifetime.packets.rekey.to_string())
        .with("dpd_action", child.dpd_action.name())
        .with("close_action", child.close_action.name())
        .with_list("local-ts", child.local_ts.iter().map(text::spec))
        .with_list("remote-ts", child.remote_ts.iter().map(text::spec));
    if child.priority != 0 {
        message.add_text("priority", child.priority);
    }
    message
}

fn unique(unique: Unique) -> &'static str {
    match unique {
        Unique::Never => "UNIQUE_NEVER",
        Unique::No => "UNIQUE_NO",
        Unique::Replace => "UNIQUE_REPLACE",
        Unique::Keep => "UNIQUE_KEEP",
    }
}

fn mode(mode: ChildMode) -> &'static str {
    match mode {
        ChildMode::Tunnel => "TUNNEL",
        ChildMode::Transport => "TRANSPORT",
        ChildMode::Pass => "PASS",
        ChildMode::Drop => "DROP",
    }
}

/// True if loading the child installs a policy of its own.
pub fn has_policy(child: &Child) -> bool {
    child.start_action.traps()
}

/// The event for an installed policy of a connection.
pub fn list_policy(connection: &str, child: &Child) -> Message {
    let body = Message::new()
        .with("child", child.name.as_str())
        .with("ike", connection)
        .with("mode", mode(child.mode))
        .with_list("local-ts", child.local_ts.iter().map(text::spec))
        .with_list("remote-ts", child.remote_ts.iter().map(text::spec));
    Message::new().with_section(&policy_name(connection, &child.name), body)
}

/// `<connection>/<child>`, cut to the longest name of a section.
fn policy_name(connection: &str, child: &str) -> String {
    let mut name = format!("{connection}/{child}");
    name.truncate(name.floor_char_boundary(u8::MAX.into()));
    name
}
