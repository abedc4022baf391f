//! The figures as lines over the sizes.

use super::EspArgs;
use crate::report::Row;
use testudo_lab::plot::{Chart, Series, Style};

/// Nanoseconds per packet: the pipeline of each cipher and direction, and the bare cipher.
pub(super) fn draw(args: &EspArgs, rows: &[Row]) -> String {
    let cases: Vec<String> = args.sizes.iter().map(ToString::to_string).collect();
    let line = |name: String, of: &dyn Fn(&Row) -> bool, figure: fn(&Row) -> f64| Series {
        name,
        values: cases
            .iter()
            .map(|case| rows.iter().find(|row| of(row) && row.traffic() == case).map(figure))
            .collect(),
    };
    let mut series = Vec::new();
    for suite in &args.ciphers {
        for direction in ["out", "in"] {
            let of = |row: &Row| row.is_of(direction, suite.name());
            series.push(line(format!("{}, {direction}", suite.name()), &of, Row::ns));
            series.push(line(format!("its cipher, {direction}"), &of, Row::cipher_ns));
        }
    }
    Chart {
        title: "What a packet takes".into(),
        subtitle: "The whole pipeline of one core, and the bare cipher of the same run".into(),
        x_name: "octets of the inner packet".into(),
        y_name: "ns a packet".into(),
        cases,
        series,
        style: Style::Lines,
        limits: Vec::new(),
    }
    .render()
}
