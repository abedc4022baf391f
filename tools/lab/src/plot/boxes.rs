//! Box plots of repeated measurements, with each measurement as a dot.

use super::axis::Axis;
use super::frame::Frame;
use super::svg::{Anchor, BLUE, Face, GREEN, Heading, INK, LABEL, Point, Size, Svg, TICK, width_of};
use crate::stats::Statistics;

const LEFT: f64 = 84.0;
const COLUMN: f64 = 240.0;
const BOX: f64 = 76.0;
const FILL: &str = "#dcebf5";

/// A picture with a box for each set of measurements.
#[derive(Clone, Debug)]
pub struct BoxPlot {
    /// In large letters at the top.
    pub title: String,
    /// Below it.
    pub subtitle: String,
    /// Name and unit of the vertical axis.
    pub y_name: String,
    /// From left to right.
    pub columns: Vec<Column>,
    /// Lines for comparison.
    pub limits: Vec<Limit>,
}

/// One set of measurements.
#[derive(Clone, Debug)]
pub struct Column {
    /// What was measured.
    pub name: String,
    /// In the order in which they were made.
    pub values: Vec<f64>,
}

/// A horizontal line.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Its position.
    pub at: f64,
    /// Its meaning.
    pub name: String,
}

impl BoxPlot {
    /// Draws it as a complete document.
    pub fn render(&self) -> String {
        // The names of the limits have a margin of their own.
        let names = self.limits.iter().map(|limit| width_of(&limit.name, TICK)).fold(0.0, f64::max);
        let right = LEFT + COLUMN * self.columns.len().max(2) as f64;
        let heading = Heading::new(&self.title, &self.subtitle, right - LEFT);
        let (top, bottom) = (heading.height() + 10.0, heading.height() + 350.0);
        let frame = Frame { left: LEFT, right, top, bottom };
        let values = self.columns.iter().flat_map(|column| column.values.iter().copied());
        let max = values.chain(self.limits.iter().map(|limit| limit.at)).fold(0.0, f64::max);
        let y = Axis::from_zero(max * 1.04, frame.vertical_ends(), 6);
        let mut svg = Svg::new(right + names + 36.0, bottom + 82.0);
        heading.draw(&mut svg, LEFT);
        frame.vertical_axis(&mut svg, &y, &self.y_name);
        for limit in &self.limits {
            let at = y.place(limit.at);
            svg.dashed(Point::new(frame.left, at), Point::new(frame.right, at), GREEN);
            let face = Face { colour: GREEN, ..TICK };
            svg.text(Point::new(frame.right + 8.0, at + 4.0), &limit.name, Anchor::Start, face);
        }
        for (n, column) in self.columns.iter().enumerate() {
            let centre = LEFT + COLUMN * (n as f64 + 0.5);
            column.draw(&mut svg, centre, bottom, &y);
        }
        frame.edges(&mut svg);
        svg.finish()
    }
}

impl Column {
    fn draw(&self, svg: &mut Svg, centre: f64, bottom: f64, y: &Axis) {
        svg.text(Point::new(centre, bottom + 24.0), &self.name, Anchor::Middle, LABEL);
        let Some(s) = Statistics::of(&self.values) else {
            svg.text(Point::new(centre, bottom + 44.0), "nothing measured", Anchor::Middle, TICK);
            return;
        };
        let (left, right) = (centre - BOX / 2.0, centre + BOX / 2.0);
        for (inner, outer) in [(s.lower_quartile, s.whiskers.0), (s.upper_quartile, s.whiskers.1)] {
            let end = y.place(outer);
            svg.line(Point::new(centre, y.place(inner)), Point::new(centre, end), INK, 1.4);
            svg.line(Point::new(centre - BOX / 5.0, end), Point::new(centre + BOX / 5.0, end), INK, 1.4);
        }
        let (upper, lower) = (y.place(s.upper_quartile), y.place(s.lower_quartile));
        svg.rect(Point::new(left, upper), Size { width: BOX, height: lower - upper }, FILL, INK);
        for (n, value) in self.values.iter().enumerate() {
            svg.dot(Point::new(centre + scatter(n) * BOX * 0.8, y.place(*value)), 2.6, BLUE, 0.55);
        }
        let median = y.place(s.median);
        svg.line(Point::new(left, median), Point::new(right, median), INK, 2.8);
        let face = Face { colour: INK, bold: true, ..TICK };
        svg.text(Point::new(right + 8.0, median + 4.0), &format!("{:.1}", s.median), Anchor::Start, face);
        let figures = format!("median {:.1} · p99 {:.1} · max {:.1}", s.median, s.p99, s.max);
        svg.text(Point::new(centre, bottom + 44.0), &figures, Anchor::Middle, TICK);
        svg.text(Point::new(centre, bottom + 61.0), &format!("n = {}", s.count), Anchor::Middle, TICK);
    }
}

/// The horizontal position of a dot in the box, chosen so that few overlap: the golden ratio
/// spreads any number of them evenly, and the picture is reproducible.
fn scatter(n: usize) -> f64 {
    (n as f64 * 0.618_033_988_75).fract() - 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measurement_is_a_dot_and_the_figures_are_said() {
        let plot = BoxPlot {
            title: "Outage".into(),
            subtitle: "one node of three killed".into(),
            y_name: "outage, ms".into(),
            columns: vec![
                Column { name: "SIGKILL".into(), values: (0..30).map(|n| 25.0 + f64::from(n)).collect() },
                Column { name: "all links cut".into(), values: Vec::new() },
            ],
            limits: vec![Limit { at: 40.0, name: "aim for the median".into() }],
        };
        let text = plot.render();
        assert_eq!(text.matches("<circle").count(), 30);
        for said in ["median 39.5 · p99 53.7 · max 54.0", "n = 30", "nothing measured", "aim for the median"]
        {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
