//! The picture: what the source has put on the wire, over time.

use crate::outcome::{Move, Way};
use testudo_lab::plot::{Data, Line, Mark, Panel, Step, Timeline};

pub(crate) fn draw(moves: &[Move]) -> Timeline {
    let found = |way: Way| {
        let found = moves.iter().any(|one| one.way == way && one.secret_found);
        if found { "found" } else { "not found" }
    };
    let panel = |ways: &[Way]| {
        let shown: Vec<&Move> = moves.iter().filter(|one| ways.contains(&one.way)).collect();
        let end = shown.iter().map(|one| one.seconds).fold(0.5, f64::max);
        Panel {
            data: Data::Lines(shown.iter().map(|one| line(one)).collect()),
            x_name: "seconds since the begin of the migration".into(),
            // With room for the name of a mark at the end.
            x_range: 0.0..=end * 1.2,
            y_name: "MB on the wire".into(),
            marks: shown.iter().flat_map(|one| marks(one)).collect(),
        }
    };
    Timeline {
        title: "A virtual machine moves: in clear, protected, under attack".into(),
        subtitle: format!(
            "Somebody on the wire looks for a secret in its memory. In clear: {}. By testudo migrate: {}. The attacked \
             migration is cancelled, and the virtual machine goes on at its source.",
            found(Way::Plain),
            found(Way::Protected)
        ),
        panels: vec![panel(&[Way::Plain, Way::Protected]), panel(&[Way::Attacked])],
    }
}

fn line(one: &Move) -> Line {
    let step = |(at, octets): &(f64, u64)| Step { from: *at, amount: *octets as f64 / 1e6 };
    Line { name: one.way.name().into(), steps: one.octets.iter().map(step).collect() }
}

fn marks(one: &Move) -> Vec<Mark> {
    let attack = one.attack.map(|at| Mark { at, name: "the attacker begins".into() });
    let end = one.cancelled.as_ref().map(|_| Mark { at: one.seconds, name: "cancelled".into() });
    attack.into_iter().chain(end).collect()
}
