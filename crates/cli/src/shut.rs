//! `testudo shut`: the prefixes whose clear traffic is dropped although no loaded connection
//! protects them, and those in which this host's own addresses stay held back.

use crate::daemon::{self, DaemonArgs};
use serde::Serialize;
use std::process::ExitCode;
use testudo_terminal::table::Align::Left;
use testudo_terminal::table::Table;
use testudo_vici::Error;
use testudo_vici::client::Client;
use testudo_vici::message::Message;
use testudo_vici::shut::{ShutPage, ShutPrefix};

const TO_PREFIXES: &str =
    "Clear packets to these prefixes are dropped, although no loaded connection asks for it";
const TO_OUR_SIDE: &str = "Clear packets to our own addresses in these prefixes are dropped, because a former full tunnel had them on our side";

/// The shut prefixes.
#[derive(Debug, Default, Serialize)]
struct Shut {
    /// True in a cluster, where each node has its own.
    clustered: bool,
    prefixes: Vec<ShutPrefix>,
}

/// Lists the prefixes; failures go to standard error.
pub(crate) fn run(args: &DaemonArgs) -> ExitCode {
    daemon::show("shut", args, |client, _| ask(client), format)
}

/// Asks for one page at a time.
fn ask(client: &mut Client) -> Result<Shut, Error> {
    let mut all = Shut::default();
    loop {
        let last = all.prefixes.last().map(|last| last.prefix.as_str());
        let request = last.map_or_else(Message::new, |last| Message::new().with("behind", last));
        let page = ShutPage::from_message(&client.request("testudo-shut", request)?)?;
        let goes_on = page.more && !page.prefixes.is_empty();
        all.clustered = page.clustered;
        all.prefixes.extend(page.prefixes);
        if !goes_on {
            return Ok(all);
        }
    }
}

fn format(shut: &Shut) -> String {
    let Shut { clustered, prefixes } = shut;
    let mut out = String::new();
    if prefixes.is_empty() {
        out.push_str("Only traffic that loaded connections protect is held back.\n");
    } else {
        for (own_side, title) in [(false, TO_PREFIXES), (true, TO_OUR_SIDE)] {
            write_table(prefixes.iter().filter(|shut| shut.own_side == own_side), title, &mut out);
        }
        out.push_str("`testudo release PREFIX` lets one pass that nothing protects.\n");
    }
    if *clustered {
        out.push_str(
            "This is what is shut on the node that was asked: each node of the cluster has its own.\n",
        );
    }
    out
}

/// One kind of prefixes below its title, and nothing if there are none.
fn write_table<'a>(prefixes: impl Iterator<Item = &'a ShutPrefix>, title: &str, out: &mut String) {
    let mut prefixes = prefixes.peekable();
    if prefixes.peek().is_none() {
        return;
    }
    out.push_str(title);
    out.push_str(":\n\n");
    let columns = ["PREFIX", "SINCE", "BECAUSE", "CLEAR FROM THERE", "PROTECTED BY"];
    let mut table = Table::new(&columns.map(|name| (name, Left)));
    prefixes.for_each(|shut| table.row(row(shut)));
    table.write(out, "");
    out.push('\n');
}

fn row(shut: &ShutPrefix) -> Vec<String> {
    let by = if shut.protected_by.is_empty() { "-".to_owned() } else { shut.protected_by.join(", ") };
    vec![shut.prefix.clone(), shut.since.clone(), shut.cause.to_string(), shut.from.name().to_owned(), by]
}
