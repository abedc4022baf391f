//! The configured children. Those that should be up and are not come first.

use testudo_terminal::table::Align::{Left, Right};
use testudo_terminal::table::Table;
use testudo_terminal::units::span;
use testudo_vici::children::{ChildError, ChildReport, ChildState};

/// Sorts children for display: those that should be up and are not come first.
pub(super) fn sort(children: &mut [ChildReport]) {
    children.sort_by_key(|child| !child.is_missed());
}

/// Formats all children, and a line with their counts.
pub(super) fn format(children: &[ChildReport], out: &mut String) {
    out.push_str(&format!("\n{}\n", summary(children)));
    if children.is_empty() {
        return;
    }
    let clustered = children.iter().any(|child| child.node.is_some());
    let mut columns = vec![
        ("CHILD", Left),
        ("STATE", Left),
        ("EXPECTED", Left),
        ("SINCE", Right),
        ("SAS", Right),
        ("SILENT", Right),
        ("NEXT TRY", Right),
    ];
    columns.extend(clustered.then_some(("NODE", Right)));
    columns.push(("LAST ERROR", Left));
    let mut table = Table::new(&columns);
    for child in children {
        table.row(row(child, clustered));
    }
    table.write(out, "");
}

/// `3 children: 1 should be up and is not; 1 up, 1 waiting, 1 passive`.
fn summary(children: &[ChildReport]) -> String {
    let counted = ChildState::ALL.into_iter().filter_map(|state| {
        let count = children.iter().filter(|child| child.state == state).count();
        (count > 0).then(|| format!("{count} {}", state.as_str()))
    });
    let counted: Vec<String> = counted.collect();
    let named = match children.len() {
        0 => return "No child is configured".to_owned(),
        1 => "1 child".to_owned(),
        count => format!("{count} children"),
    };
    let missed = match children.iter().filter(|child| child.is_missed()).count() {
        0 => String::new(),
        1 => "1 should be up and is not; ".to_owned(),
        count => format!("{count} should be up and are not; "),
    };
    format!("{named}: {missed}{}", counted.join(", "))
}

fn row(child: &ChildReport, clustered: bool) -> Vec<String> {
    let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
    let mut row = vec![
        format!("{}/{}", child.connection, child.name),
        child.state.as_str().to_owned(),
        or_none(child.expected.then(|| ChildState::Up.as_str().to_owned())),
        or_none(child.since.map(span)),
        or_none((child.sas > 0).then(|| child.sas.to_string())),
        or_none(child.silent.map(span)),
        or_none(child.next_try.map(|seconds| format!("in {}", span(seconds)))),
    ];
    row.extend(clustered.then(|| or_none(child.node.map(|node| node.to_string()))));
    row.push(or_none(child.last_error.as_ref().map(error)));
    row
}

fn error(error: &ChildError) -> String {
    format!("{} ({} ago)", error.reason, span(error.ago))
}
