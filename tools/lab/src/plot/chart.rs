//! Figures of several series over the same cases: side by side as bars, or as lines if the cases
//! have an order.

use super::Limit;
use super::axis::Axis;
use super::frame::Frame;
use super::svg::{
    Anchor, BLUE, BROWN, FAINT, Face, GREEN, Heading, INK, LABEL, ORANGE, Point, Size, Svg, TICK, width_of,
};

const LEFT: f64 = 84.0;
/// Width of a bar, and of the gap between the bars of two cases.
const BAR: f64 = 26.0;
const GAP: f64 = 34.0;
/// Distance of two cases that lines connect.
const STEP: f64 = 96.0;
const HEIGHT: f64 = 300.0;
/// Minimum width, so that a heading fits.
const NARROWEST: f64 = 560.0;
const COLOURS: [&str; 6] = [BLUE, ORANGE, GREEN, BROWN, INK, FAINT];
/// Size of the colour patch beside a series' name.
const PATCH: f64 = 12.0;
/// Height of a row of the series' names.
const ROW: f64 = 20.0;

/// A picture of several series.
#[derive(Clone, Debug)]
pub struct Chart {
    /// In large letters at the top.
    pub title: String,
    /// Below it.
    pub subtitle: String,
    /// Name of the horizontal axis.
    pub x_name: String,
    /// Name and unit of the vertical axis, which begins at zero.
    pub y_name: String,
    /// What was measured, from left to right.
    pub cases: Vec<String>,
    /// The figures.
    pub series: Vec<Series>,
    /// How they are drawn.
    pub style: Style,
    /// Lines for comparison.
    pub limits: Vec<Limit>,
}

/// The figures of one subject, one for each case.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// In the order of the cases; `None` if there is no figure.
    pub values: Vec<Option<f64>>,
}

/// How figures are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Side by side, for cases without an order.
    Bars,
    /// Connected, for cases with an order.
    Lines,
}

impl Chart {
    /// Draws it as a complete document.
    pub fn render(&self) -> String {
        let right = (LEFT + self.case_width() * self.cases.len() as f64).max(NARROWEST);
        let heading = Heading::new(&self.title, &self.subtitle, right - LEFT);
        let rows = self.rows(right);
        let top = heading.height() + rows.len() as f64 * ROW + 10.0;
        let frame = Frame { left: LEFT, right, top, bottom: top + HEIGHT };
        let margin = self.limits.iter().map(|limit| width_of(&limit.name, TICK)).fold(0.0, f64::max);
        let mut svg = Svg::new(right + margin + 36.0, frame.bottom + 60.0);
        heading.draw(&mut svg, LEFT);
        self.draw_names(&mut svg, &rows, heading.height());
        let y = Axis::from_zero(self.max() * 1.04, frame.vertical_ends(), 6);
        frame.vertical_axis(&mut svg, &y, &self.y_name);
        for limit in &self.limits {
            let at = y.place(limit.at);
            svg.dashed(Point::new(frame.left, at), Point::new(frame.right, at), GREEN);
            svg.text(
                Point::new(frame.right + 8.0, at + 4.0),
                &limit.name,
                Anchor::Start,
                Face { colour: GREEN, ..TICK },
            );
        }
        self.draw_cases(&mut svg, frame);
        for (n, series) in self.series.iter().enumerate() {
            match self.style {
                Style::Bars => self.draw_bars(&mut svg, frame, &y, n, series),
                Style::Lines => self.draw_line(&mut svg, frame, &y, n, series),
            }
        }
        frame.edges(&mut svg);
        svg.finish()
    }

    fn max(&self) -> f64 {
        let values = self.series.iter().flat_map(|series| series.values.iter().flatten().copied());
        values.chain(self.limits.iter().map(|limit| limit.at)).fold(0.0, f64::max)
    }

    fn case_width(&self) -> f64 {
        match self.style {
            Style::Bars => BAR * self.series.len() as f64 + GAP,
            Style::Lines => STEP,
        }
    }

    /// The horizontal position of a case.
    fn centre(&self, frame: Frame, case: usize) -> f64 {
        let width = (frame.right - frame.left) / self.cases.len().max(1) as f64;
        frame.left + width * (case as f64 + 0.5)
    }

    /// The indices of the series, arranged in rows no wider than the picture.
    fn rows(&self, right: f64) -> Vec<Vec<usize>> {
        let mut rows: Vec<Vec<usize>> = Vec::new();
        let mut end = f64::INFINITY;
        for (n, series) in self.series.iter().enumerate() {
            let width = name_width(series);
            if end + width > right {
                rows.push(Vec::new());
                end = LEFT;
            }
            end += width;
            if let Some(row) = rows.last_mut() {
                row.push(n);
            }
        }
        rows
    }

    fn draw_names(&self, svg: &mut Svg, rows: &[Vec<usize>], top: f64) {
        for (row, numbers) in rows.iter().enumerate() {
            let (mut x, y) = (LEFT, top + row as f64 * ROW);
            for &n in numbers {
                svg.rect(
                    Point::new(x, y - PATCH / 2.0),
                    Size { width: PATCH, height: PATCH },
                    colour(n),
                    colour(n),
                );
                svg.text(Point::new(x + PATCH + 6.0, y + 4.0), &self.series[n].name, Anchor::Start, LABEL);
                x += name_width(&self.series[n]);
            }
        }
    }

    fn draw_cases(&self, svg: &mut Svg, frame: Frame) {
        for (n, case) in self.cases.iter().enumerate() {
            svg.text(Point::new(self.centre(frame, n), frame.bottom + 19.0), case, Anchor::Middle, TICK);
        }
        let middle = f64::midpoint(frame.left, frame.right);
        svg.text(Point::new(middle, frame.bottom + 42.0), &self.x_name, Anchor::Middle, LABEL);
    }

    fn draw_bars(&self, svg: &mut Svg, frame: Frame, y: &Axis, n: usize, series: &Series) {
        let offset = (n as f64 - self.series.len() as f64 / 2.0) * BAR;
        for (case, value) in series.values.iter().enumerate() {
            let Some(value) = value else { continue };
            let (left, top) = (self.centre(frame, case) + offset, y.place(*value));
            svg.rect(
                Point::new(left + 1.0, top),
                Size { width: BAR - 2.0, height: frame.bottom - top },
                colour(n),
                colour(n),
            );
            let face = Face { size: 9.5, ..TICK };
            svg.text(Point::new(left + BAR / 2.0, top - 4.0), &short(*value), Anchor::Middle, face);
        }
    }

    fn draw_line(&self, svg: &mut Svg, frame: Frame, y: &Axis, n: usize, series: &Series) {
        let place = |(case, value): (usize, &Option<f64>)| {
            value.map(|value| Point::new(self.centre(frame, case), y.place(value)))
        };
        let points: Vec<_> = series.values.iter().enumerate().filter_map(place).collect();
        svg.polyline(&points, colour(n));
        for point in points {
            svg.dot(point, 3.2, colour(n), 1.0);
        }
    }
}

fn colour(n: usize) -> &'static str {
    COLOURS[n % COLOURS.len()]
}

fn name_width(series: &Series) -> f64 {
    width_of(&series.name, LABEL) + PATCH + 22.0
}

/// A number with at most three digits, so that it fits its bar.
fn short(value: f64) -> String {
    let digits = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(style: Style) -> Chart {
        let series = |name: &str, values: &[Option<f64>]| Series { name: name.into(), values: values.into() };
        Chart {
            title: "Throughput".into(),
            subtitle: "one core".into(),
            x_name: "octets".into(),
            y_name: "Gb/s".into(),
            cases: vec!["64".into(), "512".into(), "1420".into()],
            series: vec![
                series("ours", &[Some(5.17), Some(33.1), Some(168.0)]),
                series("theirs", &[Some(4.0), None, Some(50.0)]),
            ],
            style,
            limits: vec![Limit { at: 58.0, name: "aim".into() }],
        }
    }

    #[test]
    fn every_figure_is_a_bar_with_its_number() {
        let text = chart(Style::Bars).render();
        // The white background, a patch for each series, and the bars.
        assert_eq!(text.matches("<rect").count(), 1 + 2 + 5);
        for said in ["Throughput", "ours", "theirs", "1420", "octets", "aim", ">5.17<", ">33.1<", ">168<"] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn lines_pass_over_what_was_not_measured() {
        let text = chart(Style::Lines).render();
        assert_eq!(text.matches("<polyline").count(), 2);
        assert_eq!(text.matches("<circle").count(), 5);
    }

    #[test]
    fn many_names_take_several_rows() {
        let mut chart = chart(Style::Lines);
        let long =
            |n: usize| Series { name: format!("a series with a long name, number {n}"), values: Vec::new() };
        chart.series = (0..5).map(long).collect();
        let rows = chart.rows(NARROWEST);
        assert!(rows.len() > 2, "{rows:?}");
        assert_eq!(rows.concat(), [0, 1, 2, 3, 4]);
    }
}
