//! Events over time, with moments marked: panels one below the other.

use super::axis::{Axis, Ends};
use super::frame::Frame;
use super::svg::{Anchor, BLUE, BROWN, Face, GREEN, Heading, ORANGE, Point, Svg, TICK, width_of};
use std::ops::RangeInclusive;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 28.0;
const PANEL: f64 = 210.0;
/// Height below a panel for its ticks and the name of its axis.
const FOOT: f64 = 62.0;
/// Height of a row of the marks' names.
const ROW: f64 = 17.0;
/// Gap between a mark's line and its name, and after the name.
const GAP: f64 = 6.0;
const LINE_COLOURS: [&str; 4] = [BLUE, ORANGE, GREEN, BROWN];
const MARK_COLOURS: [&str; 3] = [ORANGE, BROWN, GREEN];
/// Height of the strokes for lost events.
const RUG: f64 = 9.0;

/// A picture of one or more panels.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// In large letters at the top.
    pub title: String,
    /// Below it: what was measured, and the figures.
    pub subtitle: String,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

/// One stretch of time.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What is drawn.
    pub data: Data,
    /// Name and unit of the horizontal axis.
    pub x_name: String,
    /// The part of the time that is shown.
    pub x_range: RangeInclusive<f64>,
    /// Name and unit of the vertical axis.
    pub y_name: String,
    /// Moments to mark, in the order of time.
    pub marks: Vec<Mark>,
}

/// What a panel shows.
#[derive(Clone, Debug)]
pub enum Data {
    /// Rates, in the order of time.
    Steps(Vec<Step>),
    /// Rates of several subjects.
    Lines(Vec<Line>),
    /// Single events.
    Dots(Vec<Dot>),
}

/// The rates of one subject.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// In the order of time.
    pub steps: Vec<Step>,
}

/// A rate.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The time from which it holds, up to the next step.
    pub from: f64,
    /// The rate.
    pub amount: f64,
}

/// A single event.
#[derive(Clone, Copy, Debug)]
pub struct Dot {
    /// Its time.
    pub at: f64,
    /// Its amount; `None` if it was lost.
    pub amount: Option<f64>,
}

/// A marked moment.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Its time.
    pub at: f64,
    /// Its name.
    pub name: String,
}

impl Timeline {
    /// Draws it as a complete document.
    pub fn render(&self) -> String {
        let rows: Vec<_> = self.panels.iter().map(Panel::rows).collect();
        let height: f64 = rows.iter().map(|rows| rows.height() + PANEL + FOOT).sum();
        let heading = Heading::new(&self.title, &self.subtitle, RIGHT - LEFT);
        let mut svg = Svg::new(WIDTH, heading.height() + height);
        heading.draw(&mut svg, LEFT);
        let mut top = heading.height();
        for (panel, rows) in self.panels.iter().zip(&rows) {
            top += rows.height();
            let frame = Frame { left: LEFT, right: RIGHT, top, bottom: top + PANEL };
            panel.draw(&mut svg, frame, rows);
            top += PANEL + FOOT;
        }
        svg.finish()
    }
}

impl Panel {
    fn x_axis(&self) -> Axis {
        Axis::exact(self.x_range.clone(), Ends { low: LEFT, high: RIGHT }, 9)
    }

    /// Arranges the names of the marks in rows, so that they do not overlap.
    fn rows(&self) -> Rows {
        let axis = self.x_axis();
        let mut rows = Rows { ends: Vec::new(), names: Vec::new() };
        for mark in self.marks.iter().filter(|mark| axis.shows(mark.at)) {
            rows.add(&mark.name, axis.place(mark.at));
        }
        rows
    }

    fn draw(&self, svg: &mut Svg, frame: Frame, rows: &Rows) {
        let x = self.x_axis();
        let y = Axis::from_zero(self.data.max(&self.x_range) * self.data.room(), frame.vertical_ends(), 4);
        frame.vertical_axis(svg, &y, &self.y_name);
        frame.horizontal_axis(svg, &x, &self.x_name);
        match &self.data {
            Data::Steps(steps) => draw_steps(svg, steps, &x, &y),
            Data::Lines(lines) => draw_lines(svg, lines, &x, &y, frame),
            Data::Dots(dots) => draw_dots(svg, dots, &x, &y, frame),
        }
        frame.edges(svg);
        rows.draw(svg, frame);
    }
}

impl Data {
    /// The height of the axis as a multiple of the largest amount: space above it, and for names.
    fn room(&self) -> f64 {
        match self {
            Self::Lines(_) => 1.2,
            Self::Steps(_) | Self::Dots(_) => 1.04,
        }
    }

    /// The largest amount within the range.
    fn max(&self, range: &RangeInclusive<f64>) -> f64 {
        let largest = |points: &mut dyn Iterator<Item = (f64, f64)>| {
            points.filter(|(x, _)| range.contains(x)).map(|(_, y)| y).fold(0.0, f64::max)
        };
        match self {
            Self::Steps(steps) => largest(&mut steps.iter().map(|step| (step.from, step.amount))),
            Self::Lines(lines) => {
                let steps = lines.iter().flat_map(|line| &line.steps);
                largest(&mut steps.map(|step| (step.from, step.amount)))
            }
            Self::Dots(dots) => largest(&mut dots.iter().filter_map(|dot| Some((dot.at, dot.amount?)))),
        }
    }
}

/// The corners of a line of steps.
fn corners(steps: &[Step], x: &Axis, y: &Axis) -> Vec<Point> {
    let mut corners = Vec::new();
    for (step, next) in steps.iter().zip(steps.iter().skip(1)) {
        let (from, to) = (x.clamp(step.from), x.clamp(next.from));
        if from < to {
            let height = y.place(y.clamp(step.amount));
            corners.extend([Point::new(x.place(from), height), Point::new(x.place(to), height)]);
        }
    }
    corners
}

fn draw_steps(svg: &mut Svg, steps: &[Step], x: &Axis, y: &Axis) {
    let corners = corners(steps, x, y);
    let (Some(first), Some(last)) = (corners.first(), corners.last()) else { return };
    let floor = y.place(0.0);
    let area = [&[Point::new(first.x, floor)], &corners[..], &[Point::new(last.x, floor)]].concat();
    svg.area(&area, BLUE);
    svg.polyline(&corners, BLUE);
}

/// With the names of the lines in their colours at the top.
fn draw_lines(svg: &mut Svg, lines: &[Line], x: &Axis, y: &Axis, frame: Frame) {
    let mut left = frame.left + GAP;
    for (line, colour) in lines.iter().zip(LINE_COLOURS.iter().cycle()) {
        svg.polyline(&corners(&line.steps, x, y), colour);
        let face = Face { colour, bold: true, ..TICK };
        svg.text(Point::new(left, frame.top + ROW), &line.name, Anchor::Start, face);
        left += width_of(&line.name, face) + 3.0 * GAP;
    }
}

/// Arrivals as dots; losses as strokes at the bottom, with their number.
fn draw_dots(svg: &mut Svg, dots: &[Dot], x: &Axis, y: &Axis, frame: Frame) {
    let mut lost = Vec::new();
    for dot in dots.iter().filter(|dot| x.shows(dot.at)) {
        let place = x.place(dot.at);
        match dot.amount {
            Some(amount) => svg.dot(Point::new(place, y.place(amount)), 2.2, BLUE, 0.75),
            None => {
                svg.line(Point::new(place, frame.bottom - RUG), Point::new(place, frame.bottom), ORANGE, 1.6);
                lost.push(place);
            }
        }
    }
    if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
        let text = format!("{} lost", lost.len());
        let face = Face { colour: ORANGE, ..TICK };
        let middle = f64::midpoint(*first, *last);
        svg.text(Point::new(middle, frame.bottom - RUG - GAP), &text, Anchor::Middle, face);
    }
}

/// The names of the marks above a panel, each to the right of its mark's line.
struct Rows {
    /// The used width of each row, from the lowest up.
    ends: Vec<f64>,
    /// Position and row of each name.
    names: Vec<(f64, usize, String)>,
}

impl Rows {
    fn add(&mut self, name: &str, place: f64) {
        // A name that the line of this mark would cross pushes the line down: it ends below the
        // name.
        let row = self.ends.iter().position(|end| *end <= place).unwrap_or(self.ends.len());
        let end = place + GAP + width_of(name, Face { bold: true, ..TICK }) + GAP;
        match self.ends.get_mut(row) {
            Some(used) => *used = end,
            None => self.ends.push(end),
        }
        self.names.push((place, row, name.to_owned()));
    }

    fn height(&self) -> f64 {
        self.ends.len() as f64 * ROW
    }

    /// The first mark of a group is highest, so that no line crosses a later name.
    fn draw(&self, svg: &mut Svg, frame: Frame) {
        for ((place, row, name), colour) in self.names.iter().zip(MARK_COLOURS.iter().cycle()) {
            let above = self.ends.len() - 1 - row;
            let y = frame.top - above as f64 * ROW;
            svg.dashed(Point::new(*place, y - ROW + 4.0), Point::new(*place, frame.bottom), colour);
            let face = Face { colour, bold: true, ..TICK };
            svg.text(Point::new(place + GAP, y - 5.0), name, Anchor::Start, face);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(marks: &[(f64, &str)]) -> Panel {
        let steps = [(0.0, 1.0), (1.0, 2.0), (2.0, 2.0)].map(|(from, amount)| Step { from, amount });
        Panel {
            data: Data::Steps(steps.to_vec()),
            x_name: "time, s".into(),
            x_range: 0.0..=10.0,
            y_name: "Gb/s".into(),
            marks: marks.iter().map(|(at, name)| Mark { at: *at, name: (*name).into() }).collect(),
        }
    }

    fn picture(panels: Vec<Panel>) -> String {
        Timeline { title: "t".into(), subtitle: "s".into(), panels }.render()
    }

    #[test]
    fn names_of_near_marks_get_rows_of_their_own() {
        let rows = panel(&[(1.0, "killed"), (1.03, "detected"), (1.05, "taken over"), (8.0, "back")]).rows();
        let used: Vec<_> = rows.names.iter().map(|(_, row, _)| *row).collect();
        assert_eq!(used, [0, 1, 2, 0]);
    }

    #[test]
    fn points_outside_the_range_are_not_drawn() {
        assert!(panel(&[(11.0, "late")]).rows().names.is_empty());
        let dots = [(1.0, Some(1.0)), (2.0, None), (3.0, Some(9.0)), (70.0, None), (80.0, Some(3.0))];
        let dots = dots.map(|(at, amount)| Dot { at, amount }).to_vec();
        let text = picture(vec![Panel { data: Data::Dots(dots), ..panel(&[(2.0, "killed")]) }]);
        assert_eq!(text.matches("<circle").count(), 2);
        for said in ["1 lost", "killed", "Gb/s"] {
            assert!(text.contains(&format!(">{said}</text>")), "{said}: {text}");
        }
    }

    #[test]
    fn each_line_has_its_colour_and_its_name() {
        let line = |name: &str, amounts: [f64; 3]| Line {
            name: name.into(),
            steps: (0_u8..).zip(amounts).map(|(from, amount)| Step { from: from.into(), amount }).collect(),
        };
        let lines = vec![line("node 1", [1.0, 2.0, 2.0]), line("node 2", [0.0, 1.0, 1.0])];
        let text = picture(vec![Panel { data: Data::Lines(lines), ..panel(&[]) }]);
        assert_eq!(text.matches("<polyline").count(), 2);
        for said in ["node 1", "node 2"] {
            assert!(text.contains(&format!(">{said}</text>")), "{said}: {text}");
        }
        assert!(text.contains(BLUE) && text.contains(ORANGE), "{text}");
    }

    #[test]
    fn nothing_measured_is_an_empty_plot() {
        let empty = |data| Panel { data, ..panel(&[]) };
        let text = picture(vec![
            empty(Data::Steps(Vec::new())),
            empty(Data::Dots(Vec::new())),
            empty(Data::Lines(Vec::new())),
        ]);
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n") && !text.contains("NaN"), "{text}");
    }
}
