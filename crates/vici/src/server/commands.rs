//! Commands: decodes arguments strictly, calls the gateway, makes the answers.

use super::jobs::{Kind, Pending};
use super::stream::{PolicyFilter, Source, Stream};
use super::{Answer, counters, credentials};
use crate::cluster::ClusterReport;
use crate::codec::{MAX_PACKET, encoded_len};
use crate::control::{ChangeNodes, Control, Drain, Initiate, JobId, Rekey, Selection, SetPolicy, Terminate};
use crate::error::CommandError;
use crate::message::Message;
use crate::processors::Processors;
use crate::render;
use crate::schema::{self, Fields, Refusal, value};
use crate::session::Request;
use crate::shut::Release;
use std::time::Duration;
use testudo_ike::output::{ChildSaId, IkeSaId};

/// Commands that strongSwan has and this gateway does not have yet: they are refused.
const UNSUPPORTED: [(&str, &str); 2] =
    [("load-token", "tokens are not supported yet"), ("redirect", "redirecting is not supported yet")];

/// Processes a request. `job` identifies it if it takes time.
pub(super) fn process(request: &Request, job: JobId, control: &mut dyn Control) -> Answer {
    let arguments = &request.message;
    if let Some((_, why)) = UNSUPPORTED.iter().find(|(name, _)| *name == request.name) {
        return Answer::Now(failed((*why).to_owned()));
    }
    let answer = match request.name.as_str() {
        "version" => query(request, || render::version(&control.version())),
        "stats" => query(request, || render::stats(&control.stats())),
        "testudo-cluster" => query(request, || ClusterReport::answer(control.cluster().as_ref())),
        "testudo-drain" => drain(request, control),
        "testudo-nodes" => change_nodes(request, control),
        "testudo-counters" => query(request, || control.counters().to_message()),
        "testudo-processors" => query(request, || told(control.processors().map(Processors::to_message))),
        "testudo-path-mtu" => path_mtu(request, control),
        "testudo-alarms" => alarms(request, control),
        "testudo-accept" => accept(request, control),
        "testudo-shut" => shut(request, control),
        "testudo-release" => release(request, control),
        "get-conns" => query(request, || Message::new().with_list("conns", control.connection_names())),
        "get-shared" => query(request, || Message::new().with_list("keys", control.secret_names())),
        "get-keys" => query(request, || credentials::keys(control)),
        "get-authorities" => query(request, || credentials::authorities(control)),
        "load-cert" => schema::load_cert(arguments).map(|cert| credentials::load_cert(cert, control)),
        "load-key" => schema::load_key(arguments).map(|key| credentials::load_key(key, control)),
        "unload-key" => credentials::unload_key(request, control),
        "load-authority" => credentials::load_authority(arguments, control),
        "unload-authority" => credentials::unload_authority(request, control),
        "get-pools" => get_pools(request, control),
        "load-pool" => schema::pool(arguments).map(|pool| Answer::Now(done(control.load_pool(pool)))),
        "unload-pool" => unload_pool(request, control),
        "get-counters" => counters::get(request, control),
        "reset-counters" => counters::reset(request, control),
        "get-algorithms" => query(request, || render::algorithms(control.policy())),
        "load-conn" => load_conn(arguments, control),
        "unload-conn" => unload_conn(request, control),
        "load-shared" => {
            schema::shared_secret(arguments).map(|secret| Answer::Now(done(control.load_secret(secret))))
        }
        "unload-shared" => unload_shared(request, control),
        "clear-creds" => query(request, || {
            control.clear_secrets();
            control.credentials_mut().clear();
            done(Ok(()))
        }),
        // testudod caches no certificates, and has no strongswan.conf.
        "flush-certs" => fields(request).and_then(|mut fields| {
            fields.text("type")?;
            fields.finish()?;
            Ok(Answer::Now(done(Ok(()))))
        }),
        "reload-settings" => query(request, || done(control.reload_settings())),
        "install" | "uninstall" => set_policy(request, control),
        "initiate" => initiate(request, job, control),
        "terminate" => terminate(request, job, control),
        "rekey" => rekey(request, control),
        "list-sas" => list_sas(request, control),
        "list-conns" => list_conns(request, control),
        "testudo-children" => list_children(request, control),
        "list-policies" => list_policies(request, control),
        "list-certs" => credentials::list_certs(request, control),
        "list-authorities" => credentials::list_authorities(request, control),
        _ => return Answer::Unknown,
    };
    answer.unwrap_or_else(|refusal| Answer::Now(failed(refusal.to_string())))
}

/// `success = no` with the reason, cut to the longest value.
pub(super) fn failed(errmsg: String) -> Message {
    let mut errmsg = render::sentence(&errmsg);
    errmsg.truncate(u16::MAX.into());
    Message::new().with("success", "no").with("errmsg", errmsg)
}

/// The answer, or a failure if it is too long: no client of VICI accepts a longer packet (libvici
/// closes the connection).
pub(super) fn fitting(answer: Message) -> Message {
    let found = 1 + encoded_len(&answer);
    if found <= MAX_PACKET {
        return answer;
    }
    failed(format!("the answer takes {found} octets, and VICI carries {MAX_PACKET} at most"))
}

pub(super) fn done(result: Result<(), CommandError>) -> Message {
    told(result.map(|()| Message::new().with("success", "yes")))
}

/// An answer with content, or a failure.
fn told(result: Result<Message, CommandError>) -> Message {
    result.unwrap_or_else(|why| failed(why.to_string()))
}

/// The answer to `initiate`; `what` is a text such as "CHILD_SA 'net'".
pub(super) fn initiated(what: &str, result: Result<(), CommandError>) -> Message {
    done(result.map_err(|why| CommandError::new(format!("establishing {what} failed: {why}"))))
}

/// The answer to `terminate`.
pub(super) fn terminated(matches: u32, terminated: u32) -> Message {
    let errmsg = match (matches, terminated) {
        (0, _) => Some("no matching SAs to terminate found"),
        (1, 0) => Some("terminating SA failed"),
        _ if terminated < matches => Some("not all matching SAs could be terminated"),
        _ => None,
    };
    let mut message = Message::new().with("success", if errmsg.is_none() { "yes" } else { "no" });
    message.add_text("matches", matches);
    message.add_text("terminated", terminated);
    if let Some(errmsg) = errmsg {
        message.add("errmsg", errmsg);
    }
    message
}

pub(super) fn fields(request: &Request) -> Result<Fields<'_>, Refusal> {
    Fields::new(&request.name, &request.message)
}

/// The arguments that select SAs.
fn selection(fields: &mut Fields<'_>) -> Result<Selection, Refusal> {
    Ok(Selection {
        child: fields.text("child")?.map(str::to_owned),
        ike: fields.text("ike")?.map(str::to_owned),
        child_id: fields.parsed("child-id", value::number)?.map(ChildSaId),
        ike_id: fields.parsed("ike-id", value::number)?.map(IkeSaId),
    })
}

/// A command without arguments.
fn query(request: &Request, answer: impl FnOnce() -> Message) -> Result<Answer, Refusal> {
    fields(request)?.finish()?;
    Ok(Answer::Now(answer()))
}

fn get_pools(request: &Request, control: &dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let leases = fields.parsed("leases", value::boolean)?.unwrap_or(false);
    let name = fields.text("name")?;
    fields.finish()?;
    let pools = control.pools().into_iter().filter(|pool| name.is_none_or(|name| name == pool.name));
    let listed = pools.map(|pool| {
        let leases = leases.then(|| control.leases(&pool.name));
        (pool, leases)
    });
    Ok(Answer::Now(render::pools(listed)))
}

fn unload_pool(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let name = fields.required("name", "the name of a pool")?;
    fields.finish()?;
    Ok(Answer::Now(done(control.unload_pool(name))))
}

fn load_conn(arguments: &Message, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let connection = schema::connection(arguments, control.policy())?;
    let name = connection.name.clone();
    let loaded = control.load_connection(connection);
    if loaded.is_ok() {
        for line in schema::without_effect(arguments) {
            control.warn(Some(&name), line);
        }
    }
    Ok(Answer::Now(done(loaded)))
}

fn unload_conn(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let name = fields.required("name", "the name of a connection")?;
    fields.finish()?;
    if control.connection(name).is_none() {
        return Ok(Answer::Now(failed(format!("unload: connection '{name}' not found"))));
    }
    Ok(Answer::Now(done(control.unload_connection(name))))
}

fn unload_shared(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let name = fields.required("id", "the identifier of a secret")?;
    fields.finish()?;
    control.unload_secret(name);
    Ok(Answer::Now(done(Ok(()))))
}

/// Arguments that `initiate` and `terminate` have in common.
struct WaitOptions {
    /// Milliseconds. Negative: answer at once, without a log.
    timeout: i64,
    log_level: i64,
}

impl WaitOptions {
    fn take(fields: &mut Fields<'_>) -> Result<Self, Refusal> {
        let timeout = fields.parsed("timeout", value::signed)?.unwrap_or(0);
        let log_level = fields.parsed("loglevel", value::signed)?.unwrap_or(1);
        Ok(Self { timeout, log_level })
    }

    fn answer(self, job: JobId, kind: Kind) -> Answer {
        // 0 waits without limit.
        let timeout = u64::try_from(self.timeout).ok().filter(|ms| *ms > 0).map(Duration::from_millis);
        Answer::Later(job, Pending { kind, log_level: self.log_level, timeout })
    }
}

fn initiate(request: &Request, job: JobId, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let child = fields.text("child")?.map(str::to_owned);
    let ike = fields.text("ike")?.map(str::to_owned);
    let wait = WaitOptions::take(&mut fields)?;
    fields.parsed("init-limits", value::boolean)?;
    fields.finish()?;
    let what = match (&child, &ike) {
        (Some(child), _) => format!("CHILD_SA '{child}'"),
        (None, Some(ike)) => format!("IKE_SA '{ike}'"),
        (None, None) => return Ok(Answer::Now(failed("missing configuration name".to_owned()))),
    };
    Ok(match control.initiate(job, &Initiate { child, ike }) {
        Err(why) => Answer::Now(initiated(&what, Err(why))),
        Ok(()) if wait.timeout < 0 => Answer::Now(done(Ok(()))),
        Ok(()) => wait.answer(job, Kind::Initiate { what }),
    })
}

fn terminate(request: &Request, job: JobId, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let target = Terminate {
        sas: selection(&mut fields)?,
        force: fields.parsed("force", value::boolean)?.unwrap_or(false),
    };
    let wait = WaitOptions::take(&mut fields)?;
    fields.finish()?;
    if target.sas.is_empty() {
        return Ok(Answer::Now(failed("missing terminate selector".to_owned())));
    }
    Ok(match control.terminate(job, &target) {
        Err(why) => Answer::Now(failed(why.to_string())),
        Ok(0) => Answer::Now(terminated(0, 0)),
        Ok(matches) if wait.timeout < 0 => Answer::Now(terminated(matches, matches)),
        Ok(matches) => wait.answer(job, Kind::Terminate { matches }),
    })
}

fn set_policy(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let wanted = policy_wanted(request)?;
    Ok(Answer::Now(done(control.set_policy(&wanted))))
}

/// What `install` or `uninstall` asks for.
pub(super) fn policy_wanted(request: &Request) -> Result<SetPolicy, Refusal> {
    let mut fields = fields(request)?;
    let child = fields.required("child", "the name of a child")?.to_owned();
    let ike = fields.text("ike")?.map(str::to_owned);
    fields.finish()?;
    Ok(SetPolicy { child, ike, install: request.name == "install" })
}

fn drain(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let node = fields.parsed("node", value::number)?;
    let drained = fields.parsed("drained", value::boolean)?.unwrap_or(true);
    fields.finish()?;
    // A larger number is no node's, and neither is the maximum.
    let node = node.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    Ok(Answer::Now(done(control.drain(&Drain { node, drained }))))
}

fn change_nodes(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let missing = Refusal::Missing { path: fields.path("node"), expected: "the number of a node" };
    let node = fields.parsed("node", value::number)?.ok_or(missing)?;
    let addresses = fields.list("addresses", value::ip_address)?;
    fields.finish()?;
    let node = u32::try_from(node).unwrap_or(u32::MAX);
    let roster = control.change_nodes(&ChangeNodes { node, addresses });
    Ok(Answer::Now(told(roster.map(|roster| done(Ok(())).with("roster", roster.to_string())))))
}

/// Without a path, its holder gives back what it holds.
fn path_mtu(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let missing = |path, expected| Refusal::Missing { path, expected };
    let no_holder = missing(fields.path("holder"), "a name of up to 255 octets");
    let no_remote = missing(fields.path("remote"), "the address of a peer");
    let no_mtu = missing(fields.path("mtu"), "a number of octets");
    let holder = fields.parsed("holder", value::holder)?.ok_or(no_holder)?;
    let remote = fields.parsed("remote", value::ip_address)?;
    let mtu = fields.parsed("mtu", value::path_mtu)?;
    fields.finish()?;
    let held = match (remote, mtu) {
        (Some(remote), Some(mtu)) => control.hold_path_mtu(remote, mtu, holder),
        (None, Some(_)) => return Err(no_remote),
        (Some(_), None) => return Err(no_mtu),
        (None, None) => {
            control.release_path_mtus(holder);
            Ok(())
        }
    };
    Ok(Answer::Now(done(held)))
}

fn alarms(request: &Request, control: &dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let above = fields.parsed("above", value::number)?.unwrap_or(0);
    fields.finish()?;
    Ok(Answer::Now(control.alarms(above).to_message()))
}

fn accept(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let missing = Refusal::Missing { path: fields.path("source"), expected: "an address that is dropped" };
    let source = fields.parsed("source", value::ip_address)?.ok_or(missing)?;
    let by = fields.parsed("by", value::user)?.map(str::to_owned);
    fields.finish()?;
    Ok(Answer::Now(done(control.accept_source(source, by.as_deref()))))
}

fn shut(request: &Request, control: &dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let behind = fields.parsed("behind", schema::prefix)?;
    fields.finish()?;
    Ok(Answer::Now(control.shut(behind).to_message()))
}

fn release(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let missing = Refusal::Missing { path: fields.path("prefix"), expected: "a prefix that is shut" };
    let prefix = fields.parsed("prefix", schema::prefix)?.ok_or(missing)?;
    let check = fields.parsed("check", value::boolean)?.unwrap_or(false);
    let by = fields.parsed("by", value::user)?.map(str::to_owned);
    fields.finish()?;
    let released = control.release(&Release { prefix, check, by });
    Ok(Answer::Now(told(released.map(|released| released.to_message()))))
}

fn rekey(request: &Request, control: &mut dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let target = Rekey {
        sas: selection(&mut fields)?,
        reauth: fields.parsed("reauth", value::boolean)?.unwrap_or(false),
    };
    fields.finish()?;
    if target.sas.is_empty() {
        return Ok(Answer::Now(failed("missing rekey selector".to_owned())));
    }
    Ok(Answer::Now(rekeyed(control.rekey(&target))))
}

/// The answer to `rekey`, which does not wait.
fn rekeyed(matches: u32) -> Message {
    let mut message = Message::new().with("success", if matches > 0 { "yes" } else { "no" });
    message.add_text("matches", matches);
    if matches == 0 {
        message.add("errmsg", "no matching SAs to rekey found");
    }
    message
}

fn list_sas(request: &Request, control: &dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    // Accepted without effect: no command blocks.
    fields.text("noblock")?;
    let filter = selection(&mut fields)?;
    fields.finish()?;
    let ids = filter.ike_id.map_or_else(|| control.ike_sa_ids(), |id| vec![id]);
    Ok(Answer::Stream(Stream::new(Source::Sas(ids.into(), filter))))
}

fn list_conns(request: &Request, control: &dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    let ike = fields.text("ike")?;
    fields.finish()?;
    Ok(Answer::Stream(Stream::new(Source::Conns(connections(control, ike)))))
}

fn list_children(request: &Request, control: &dyn Control) -> Result<Answer, Refusal> {
    fields(request)?.finish()?;
    Ok(Answer::Stream(Stream::new(Source::Children(connections(control, None)))))
}

fn list_policies(request: &Request, control: &dyn Control) -> Result<Answer, Refusal> {
    let mut fields = fields(request)?;
    // As in charon, the mere presence of these keys counts.
    let filter = PolicyFilter {
        drop: fields.text("drop")?.is_some(),
        pass: fields.text("pass")?.is_some(),
        trap: fields.text("trap")?.is_some(),
        child: fields.text("child")?.map(str::to_owned),
    };
    let ike = fields.text("ike")?;
    fields.finish()?;
    Ok(Answer::Stream(Stream::new(Source::Policies(connections(control, ike), filter))))
}

fn connections<T: FromIterator<String>>(control: &dyn Control, wanted: Option<&str>) -> T {
    let names = control.connection_names().into_iter();
    names.filter(|name| wanted.is_none_or(|wanted| wanted == name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_printable_ascii_whatever_it_quotes() {
        let message = failed("RFC 7296 §2.8: 'Kölner\nTor' is no name…".to_owned());
        let expected = "RFC 7296 section 2.8: 'K?lner?Tor' is no name...";
        assert_eq!(message, Message::new().with("success", "no").with("errmsg", expected));
    }

    #[test]
    fn a_long_reason_is_cut_to_what_a_value_holds() {
        let message = failed("ä".repeat(70_000));
        assert_eq!(message, Message::new().with("success", "no").with("errmsg", "?".repeat(0xFFFF)));
    }
}
