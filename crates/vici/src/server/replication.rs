//! Commands that change the configuration: a node of a cluster replicates them to the others, which
//! execute them too.

use super::jobs::{Kind, Pending};
use super::{Answer, commands, credentials};
use crate::codec::Packet;
use crate::control::{ConfigChange, ConfigItem, ConfigItemKind, Control, JobId};
use crate::error::CommandError;
use crate::message::Message;
use crate::schema::{self, Loaded};
use crate::session::Request;
use std::time::Duration;
use zeroize::Zeroizing;

/// How long a client waits until the other nodes have the command.
const REPLICATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Passes an executed command to the other nodes, if there are any and it concerns them. `of`: the
/// digest of the command that it replaces, and from which it derives.
pub(super) fn replicate(
    request: &Request,
    of: Option<u64>,
    job: JobId,
    answer: Answer,
    control: &mut dyn Control,
) -> Answer {
    let Answer::Now(message) = answer else { return answer };
    let succeeded = message.text("success") == Some("yes");
    let Some(change) = succeeded.then(|| change(request)).flatten() else { return Answer::Now(message) };
    let change = match (change, of) {
        (ConfigChange::Set(item), Some(of)) => ConfigChange::Replace { item, of },
        (change, _) => change,
    };
    let Ok(octets) = written(request) else { return Answer::Now(message) };
    if !control.replicate(job, change, octets) {
        return Answer::Now(message);
    }
    Answer::Later(
        job,
        Pending {
            kind: Kind::Replicate { answer: message },
            log_level: -1,
            timeout: Some(REPLICATION_TIMEOUT),
        },
    )
}

/// The answer to a client after [`REPLICATION_TIMEOUT`].
pub(super) fn not_replicated() -> Message {
    let seconds = REPLICATION_TIMEOUT.as_secs();
    commands::failed(format!(
        "done on this node; the other nodes have not received it within {seconds} seconds, and will receive it when there is a quorum"
    ))
}

/// The answer to a client whose command came too late.
pub(super) fn outdated() -> Message {
    commands::failed(
        "not done on any node: another node has loaded the connection meanwhile, \
         or a node was joining the cluster; repeat the command"
            .to_owned(),
    )
}

fn written(request: &Request) -> Result<Zeroizing<Vec<u8>>, crate::Error> {
    let mut framed = Zeroizing::new(Vec::new());
    Packet::CmdRequest(request.name.clone(), request.message.clone()).encode(&mut framed)?;
    // The packet without its length field.
    Ok(Zeroizing::new(framed.get(4..).unwrap_or_default().to_vec()))
}

pub(super) fn read(octets: &[u8]) -> Result<(String, Message), CommandError> {
    match Packet::parse(octets) {
        Ok(Packet::CmdRequest(name, message)) => Ok((name, message)),
        Ok(other) => {
            let found = other.kind();
            Err(CommandError::new(format!("found a packet of type {found}, expected a command")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Executes a command that another node received.
pub fn carry_out(octets: &[u8], control: &mut dyn Control) -> Result<(), CommandError> {
    let (name, message) = read(octets)?;
    let request = Request::of_node(name, message);
    match commands::process(&request, JobId(0), control) {
        Answer::Now(message) if message.text("success") == Some("yes") => Ok(()),
        Answer::Now(message) => Err(CommandError::new(message.text("errmsg").unwrap_or("no reason given"))),
        Answer::Unknown | Answer::Stream(_) | Answer::Later(..) => Err(CommandError::new(format!(
            "found {}, expected a command that changes the configuration",
            request.name
        ))),
    }
}

/// Undoes a command that loaded something.
pub fn take_back(octets: &[u8], control: &mut dyn Control) -> Result<(), CommandError> {
    let (command, message) = read(octets)?;
    let unnamed = || CommandError::new(format!("{command}: found no name of an item"));
    let name = || section_name(&message).ok_or_else(unnamed);
    match command.as_str() {
        "load-conn" => control.unload_connection(&name()?),
        "load-pool" => control.unload_pool(&name()?),
        "load-shared" => {
            let secret = schema::shared_secret(&message)?;
            control.unload_secret(&secret.name);
            Ok(())
        }
        "load-key" => {
            let key = schema::load_key(&message)?;
            control.credentials_mut().unload_key(&key.key_id());
            Ok(())
        }
        "load-authority" => {
            control.credentials_mut().unload_authority(&name()?);
            Ok(())
        }
        "load-cert" => {
            match schema::load_cert(&message)? {
                Loaded::Certificate(certificate, _) => {
                    control.credentials_mut().unload_certificate(&certificate);
                }
                Loaded::Crl(crl) => control.credentials_mut().unload_crl(&crl),
                Loaded::PublicKey(key) => control.credentials_mut().unload_public_key(&key),
            }
            Ok(())
        }
        _ => Err(CommandError::new(format!("found {command}, expected a command that loads something"))),
    }
}

/// The configuration change of a successful command.
fn change(request: &Request) -> Option<ConfigChange> {
    let message = &request.message;
    let item = |kind, name: String| ConfigItem { kind, name };
    let section = || section_name(message);
    let text = |key: &str| message.text(key).map(str::to_owned);
    let credential = |what: &str, name: String| item(ConfigItemKind::Credential, format!("{what} {name}"));
    Some(match request.name.as_str() {
        "load-conn" => ConfigChange::Set(ConfigItem::connection(&section()?)),
        "unload-conn" => ConfigChange::Unset(ConfigItem::connection(&text("name")?)),
        "load-pool" => ConfigChange::Set(item(ConfigItemKind::Pool, format!("pool {}", section()?))),
        "unload-pool" => ConfigChange::Unset(item(ConfigItemKind::Pool, format!("pool {}", text("name")?))),
        "load-authority" => {
            ConfigChange::Set(item(ConfigItemKind::Authority, format!("authority {}", section()?)))
        }
        "unload-authority" => {
            ConfigChange::Unset(item(ConfigItemKind::Authority, format!("authority {}", text("name")?)))
        }
        "load-shared" => {
            ConfigChange::Set(credential("secret", schema::shared_secret(message).ok()?.name.clone()))
        }
        "unload-shared" => ConfigChange::Unset(credential("secret", text("id")?)),
        "load-key" => ConfigChange::Set(credential(
            "private key",
            credentials::hex(&schema::load_key(message).ok()?.key_id()),
        )),
        "unload-key" => {
            let id = schema::key_id(message.text("id")?).ok()?;
            ConfigChange::Unset(credential("private key", credentials::hex(&id)))
        }
        "load-cert" => ConfigChange::Set(match schema::load_cert(message).ok()? {
            Loaded::Certificate(certificate, _) => {
                let digest = credentials::hex(&certificate.fingerprint()[..4]);
                credential("certificate", format!("{} ({digest})", certificate.subject()))
            }
            // A later one of the same issuer replaces it.
            Loaded::Crl(crl) => credential("CRL", format!("of {}", crl.issuer())),
            Loaded::PublicKey(key) => credential("public key", credentials::hex(&key.key().info_id())),
        }),
        "clear-creds" => ConfigChange::ClearCredentials,
        _ => return None,
    })
}

/// What a command that loads something names.
fn section_name(message: &Message) -> Option<String> {
    message.elements().first().map(|element| element.name().to_owned())
}
