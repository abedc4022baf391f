//! The pictures, those of [MIG]'s figures 2 to 7 among them.

use super::row::{Row, median};
use super::way::Way;
use testudo_lab::plot::{BoxPlot, Chart, Column, Series, Style};

const FOOTNOTE: &str = "Virtual machines without KVM; both hosts share the processors of one machine";

/// Each with its name.
pub(super) fn all(rows: &[Row]) -> Vec<(String, String)> {
    let (by_segment, by_mtu): (Vec<&Row>, Vec<&Row>) =
        rows.iter().filter(|row| row.link.multifd == 0).partition(|row| row.link.segment.is_some());
    let mut pictures = Vec::new();
    for way in Way::ALL {
        let of_way: Vec<&Row> = by_mtu.iter().copied().filter(|row| row.way == way).collect();
        if !of_way.is_empty() {
            pictures.push((format!("time-{}", way.name()), boxes(way, &of_way)));
        }
    }
    pictures.extend(both("mtu", "MTU", &by_mtu, |row| row.link.mtu));
    pictures.extend(both("mss", "MSS, MTU 8000", &by_segment, |row| row.link.segment.unwrap_or_default()));
    if let Some(largest) = by_mtu.iter().map(|row| row.link.mtu).max() {
        let rows: Vec<&Row> = by_mtu.iter().copied().filter(|row| row.link.mtu == largest).collect();
        pictures.push(("peak-cpu".into(), peaks(largest, &rows)));
    }
    pictures
}

/// Time and packets of each way by a size; none without rows.
fn both(name: &str, x_name: &str, rows: &[&Row], size: fn(&Row) -> u16) -> Vec<(String, String)> {
    if rows.is_empty() {
        return Vec::new();
    }
    let time = lines("The time of a migration", x_name, "s", rows, size, Row::time);
    let packets = |row: &Row| median(&row.packets);
    let packets = lines("Packets that the source sends", x_name, "packets", rows, size, packets);
    vec![(format!("time-by-{name}"), time), (format!("packets-by-{name}"), packets)]
}

/// The times of one way, there and back ([MIG] figures 2 and 3).
fn boxes(way: Way, rows: &[&Row]) -> String {
    let columns = rows.iter().flat_map(|row| {
        let column = |name: &str, direction: usize| Column {
            name: format!("{} {name}", row.link.mtu),
            values: row.seconds[direction].clone(),
        };
        [column("there", 0), column("back", 1)]
    });
    BoxPlot {
        title: format!("The time of a migration by MTU: {}", way.name()),
        subtitle: FOOTNOTE.into(),
        y_name: "s".into(),
        columns: columns.collect(),
        limits: Vec::new(),
    }
    .render()
}

/// A line for each way ([MIG] figures 4 to 6).
fn lines(
    title: &str,
    x_name: &str,
    y_name: &str,
    rows: &[&Row],
    size: fn(&Row) -> u16,
    figure: fn(&Row) -> Option<f64>,
) -> String {
    let mut sizes: Vec<u16> = rows.iter().map(|row| size(row)).collect();
    sizes.dedup();
    let value = |way: Way, octets: u16| {
        rows.iter().find(|row| row.way == way && size(row) == octets).and_then(|row| figure(row))
    };
    let series = Way::ALL.into_iter().filter(|way| rows.iter().any(|row| row.way == *way)).map(|way| {
        Series { name: way.name().into(), values: sizes.iter().map(|octets| value(way, *octets)).collect() }
    });
    Chart {
        title: title.into(),
        subtitle: FOOTNOTE.into(),
        x_name: x_name.into(),
        y_name: y_name.into(),
        series: series.collect(),
        cases: sizes.iter().map(ToString::to_string).collect(),
        style: Style::Lines,
        limits: Vec::new(),
    }
    .render()
}

/// The most processor time of each way ([MIG] figure 7).
fn peaks(mtu: u16, rows: &[&Row]) -> String {
    let series = ["there", "back"].into_iter().enumerate().map(|(direction, name)| Series {
        name: name.into(),
        values: rows.iter().map(|row| median(&row.peak_cpu[direction])).collect(),
    });
    Chart {
        title: format!("The most processor time at the source, MTU {mtu}"),
        subtitle: "QEMU and what protects the migration, in any 0.2 s".into(),
        x_name: String::new(),
        y_name: "% of a processor".into(),
        cases: rows.iter().map(|row| row.way.name().to_owned()).collect(),
        series: series.collect(),
        style: Style::Bars,
        limits: Vec::new(),
    }
    .render()
}
