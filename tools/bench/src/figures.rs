//! The rows of the table, as text, as JSON and as pictures.

use crate::error::BenchError;
use serde::Serialize;
use std::path::Path;
use testudo_lab::plot::{BoxPlot, Column, Limit};
use testudo_lab::stats::Statistics;
use testudo_terminal::table::Align::{Left, Right};
use testudo_terminal::table::Table;

/// Repeated measurements of one quantity.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    what: String,
    unit: &'static str,
    /// The figure of another system.
    #[serde(skip_serializing_if = "Option::is_none")]
    others: Option<Quoted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aim: Option<Aim>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reached: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    figures: Option<Figures>,
    /// In the order of measurement.
    values: Vec<f64>,
}

/// A figure that was not measured in this run.
#[derive(Clone, Copy, Debug, Serialize)]
struct Quoted {
    figure: &'static str,
    source: Source,
}

/// The source of a quoted figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// *High Availability for IPsec VPN Platforms: The ClusterIP Evaluation*, ARES 2013:
    /// strongSwan's HA plugin at that time.
    Ha,
    /// strongSwan 5.9.8 of Debian 12 with its HA plugin, measured once by this project; the paper
    /// has no such figure.
    Strongswan,
    /// *A Clustered Architecture for High-Speed IPsec Gateway*, Shieh and Lai.
    Flat,
}

impl Source {
    const fn name(self) -> &'static str {
        match self {
            Self::Ha => "[HA]",
            Self::Strongswan => "strongSwan 5.9.8, measured by us",
            Self::Flat => "[FLAT]",
        }
    }
}

impl Serialize for Source {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl std::fmt::Display for Quoted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.figure, self.source.name())
    }
}

/// The figures that are printed.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    count: usize,
    median: f64,
    p99: f64,
    max: f64,
}

/// The goal: each given bound must hold.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Aim {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) median_at_most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) median_at_least: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_at_most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_at_most: Option<f64>,
}

impl Aim {
    /// The median is at most this.
    pub(crate) fn median_at_most(bound: f64) -> Self {
        Self { median_at_most: Some(bound), ..Self::default() }
    }

    /// The median is at least this.
    pub(crate) fn median_at_least(bound: f64) -> Self {
        Self { median_at_least: Some(bound), ..Self::default() }
    }

    /// No value is above this.
    pub(crate) fn none_above(bound: f64) -> Self {
        Self { max_at_most: Some(bound), ..Self::default() }
    }

    fn is_reached(&self, figures: &Figures) -> bool {
        let below = |bound: Option<f64>, value: f64| bound.is_none_or(|bound| value <= bound);
        below(self.median_at_most, figures.median)
            && below(self.p99_at_most, figures.p99)
            && below(self.max_at_most, figures.max)
            && self.median_at_least.is_none_or(|bound| figures.median >= bound)
    }

    fn text(&self) -> String {
        let bounds = [
            ("median <= ", self.median_at_most),
            ("median >= ", self.median_at_least),
            ("p99 <= ", self.p99_at_most),
            ("all <= ", self.max_at_most),
        ];
        let said: Vec<_> =
            bounds.iter().filter_map(|(name, bound)| bound.map(|bound| format!("{name}{bound}"))).collect();
        said.join(", ")
    }
}

impl Row {
    /// A row with these measurements.
    pub(crate) fn new(what: impl Into<String>, unit: &'static str, values: Vec<f64>) -> Self {
        let values: Vec<f64> = values.into_iter().map(round).collect();
        let figures = Statistics::of(&values).map(|s| Figures {
            count: s.count,
            median: round(s.median),
            p99: round(s.p99),
            max: s.max,
        });
        Self { what: what.into(), unit, others: None, aim: None, reached: None, figures, values }
    }

    /// Adds the figure of another system.
    pub(crate) fn others(self, source: Source, figure: &'static str) -> Self {
        Self { others: Some(Quoted { figure, source }), ..self }
    }

    /// Adds a goal. A row without measurements has not reached it.
    pub(crate) fn aim(self, aim: Aim) -> Self {
        let reached = self.figures.as_ref().is_some_and(|figures| aim.is_reached(figures));
        Self { aim: Some(aim), reached: Some(reached), ..self }
    }
}

/// Three decimals: more would be noise.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// The table as text.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        ("", Left),
        ("n", Right),
        ("median", Right),
        ("p99", Right),
        ("max", Right),
        ("others", Left),
        ("aim", Left),
        ("", Left),
    ]);
    for row in rows {
        let figure = |of: fn(&Figures) -> f64| row.figures.as_ref().map_or("-".into(), |f| plain(of(f)));
        let reached = match row.reached {
            Some(true) => "reached",
            Some(false) => "NOT REACHED",
            None => "",
        };
        table.row(vec![
            format!("{}, {}", row.what, row.unit),
            row.values.len().to_string(),
            figure(|f| f.median),
            figure(|f| f.p99),
            figure(|f| f.max),
            row.others.map_or_else(String::new, |quoted| quoted.to_string()),
            row.aim.as_ref().map_or_else(String::new, Aim::text),
            reached.into(),
        ]);
    }
    let mut text = String::new();
    table.write(&mut text, "  ");
    text
}

/// A number with as many digits as are significant.
fn plain(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// A picture for each unit: quantities of the same unit can be compared.
pub(crate) fn plots(title: &str, rows: &[Row]) -> Vec<BoxPlot> {
    let mut units: Vec<&str> = Vec::new();
    for row in rows {
        if !units.contains(&row.unit) {
            units.push(row.unit);
        }
    }
    let plot = |unit: &str| {
        let of_unit: Vec<&Row> = rows.iter().filter(|row| row.unit == unit).collect();
        let mut limits: Vec<Limit> = Vec::new();
        for at in of_unit
            .iter()
            .filter_map(|row| row.aim.as_ref())
            .filter_map(|aim| aim.median_at_most.or(aim.median_at_least).or(aim.max_at_most))
        {
            if limits.iter().all(|limit| (limit.at - at).abs() > f64::EPSILON) {
                limits.push(Limit { at, name: format!("aim: {at} {unit}") });
            }
        }
        let others = of_unit.iter().filter_map(|row| Some(format!("{}: {}", row.what, row.others?)));
        let others: Vec<_> = others.collect();
        let column = |row: &&Row| Column { name: row.what.clone(), values: row.values.clone() };
        BoxPlot {
            title: title.into(),
            subtitle: if others.is_empty() {
                String::new()
            } else {
                format!("others: {}", others.join("; "))
            },
            y_name: unit.into(),
            columns: of_unit.iter().map(column).collect(),
            limits,
        }
    };
    units.into_iter().map(plot).collect()
}

/// Writes a picture.
pub(crate) fn draw(path: &Path, plot: &BoxPlot) -> Result<(), BenchError> {
    Ok(testudo_lab::cluster_report::write_whole(path, &plot.render())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let aim = Aim { p99_at_most: Some(100.0), ..Aim::median_at_most(40.0) };
        Row::new("outage", "ms", vec![30.0, 20.0, 90.0]).others(Source::Ha, "1.63 s").aim(aim)
    }

    #[test]
    fn an_aim_is_reached_when_every_bound_holds() {
        assert_eq!(row().reached, Some(true));
        let with = |values: &[f64], aim| Row::new("x", "ms", values.to_vec()).aim(aim).reached;
        assert_eq!(with(&[41.0], Aim::median_at_most(40.0)), Some(false));
        assert_eq!(with(&[0.0, 0.0, 1.0], Aim::none_above(0.0)), Some(false));
        assert_eq!(with(&[0.0; 3], Aim::none_above(0.0)), Some(true));
        let at_least = Aim::median_at_least(60.0);
        assert_eq!((with(&[59.0], at_least), with(&[60.0], at_least)), (Some(false), Some(true)));
        assert_eq!(with(&[], Aim::none_above(0.0)), Some(false), "nothing measured, nothing reached");
    }

    #[test]
    fn the_table_and_the_json_say_all_of_it() {
        let text = table(&[row()]);
        for said in ["outage, ms", "30.0", "90.0", "1.63 s ([HA])", "median <= 40, p99 <= 100", "reached"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let json = serde_json::to_value(row()).expect("it serialises");
        assert_eq!(json["values"], serde_json::json!([30.0, 20.0, 90.0]));
        assert_eq!(json["figures"]["median"], 30.0);
        assert_eq!(json["others"], serde_json::json!({ "figure": "1.63 s", "source": "[HA]" }));
        assert_eq!(json["reached"], true);
    }

    #[test]
    fn rows_of_the_same_unit_share_a_plot() {
        let rows = [row(), Row::new("lost", "tunnels", vec![0.0]), Row::new("detection", "ms", vec![12.0])];
        let plots = plots("Nodes", &rows);
        let names = |plot: &BoxPlot| plot.columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        assert_eq!(plots.iter().map(names).collect::<Vec<_>>(), [vec!["outage", "detection"], vec!["lost"]]);
        assert_eq!(plots[0].limits.len(), 1);
    }
}
