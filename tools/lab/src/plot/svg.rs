//! A minimal SVG writer.

use std::fmt::{Display, Write};

/// Sans-serif fonts that most systems have.
const FONT: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";
/// Colours that colour-blind people can tell apart (Okabe and Ito).
pub(super) const BLUE: &str = "#0072b2";
pub(super) const ORANGE: &str = "#d55e00";
pub(super) const GREEN: &str = "#00805e";
pub(super) const BROWN: &str = "#8a5a00";
pub(super) const INK: &str = "#222222";
pub(super) const FAINT: &str = "#666666";
pub(super) const GRID: &str = "#e4e4e4";

/// A place in a picture, from its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

impl Point {
    pub(super) fn new(x: f64, y: f64) -> Self {
        Self { x, y }
    }
}

/// The extent of a rectangle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The position of a text relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The look of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Face {
    pub(super) size: f64,
    pub(super) colour: &'static str,
    pub(super) bold: bool,
}

const TITLE: Face = Face { size: 17.0, colour: INK, bold: true };
const SUBTITLE: Face = Face { size: 12.5, colour: FAINT, bold: false };
const SUBTITLE_LINE: f64 = 18.0;
pub(super) const LABEL: Face = Face { size: 12.5, colour: INK, bold: false };
pub(super) const TICK: Face = Face { size: 11.5, colour: FAINT, bold: false };

/// A picture while it is drawn.
#[derive(Debug)]
pub(super) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { body: String::new(), width, height }
    }

    pub(super) fn line(&mut self, from: Point, to: Point, stroke: &str, width: f64) {
        let (Point { x: x1, y: y1 }, Point { x: x2, y: y2 }) = (from, to);
        self.element(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{stroke}" stroke-width="{width}"/>"#
        ));
    }

    pub(super) fn dashed(&mut self, from: Point, to: Point, stroke: &str) {
        let (Point { x: x1, y: y1 }, Point { x: x2, y: y2 }) = (from, to);
        self.element(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{stroke}" stroke-width="1.4" stroke-dasharray="5 4"/>"#
        ));
    }

    /// A rectangle whose upper left corner is the point.
    pub(super) fn rect(&mut self, corner: Point, size: Size, fill: &str, stroke: &str) {
        let (Point { x, y }, Size { width, height }) = (corner, size);
        self.element(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}" stroke="{stroke}" stroke-width="1.4"/>"#
        ));
    }

    pub(super) fn dot(&mut self, centre: Point, radius: f64, fill: &str, opacity: f64) {
        let Point { x, y } = centre;
        self.element(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="{fill}" fill-opacity="{opacity}"/>"#
        ));
    }

    /// A line through the points.
    pub(super) fn polyline(&mut self, points: &[Point], stroke: &str) {
        let points = joined(points);
        self.element(format_args!(
            r#"<polyline points="{points}" fill="none" stroke="{stroke}" stroke-width="1.7" stroke-linejoin="round"/>"#
        ));
    }

    /// A faintly filled area inside the points.
    pub(super) fn area(&mut self, points: &[Point], fill: &str) {
        let points = joined(points);
        self.element(format_args!(r#"<polygon points="{points}" fill="{fill}" fill-opacity="0.13"/>"#));
    }

    pub(super) fn text(&mut self, at: Point, text: &str, anchor: Anchor, face: Face) {
        self.put_text(at, text, anchor, face, "");
    }

    /// A vertical text, read from below, with its middle at the point.
    pub(super) fn upright(&mut self, at: Point, text: &str, face: Face) {
        let Point { x, y } = at;
        let turn = format!(r#" transform="rotate(-90 {x:.1} {y:.1})""#);
        self.put_text(at, text, Anchor::Middle, face, &turn);
    }

    fn put_text(&mut self, at: Point, text: &str, anchor: Anchor, face: Face, turn: &str) {
        let Point { x, y } = at;
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if face.bold { r#" font-weight="bold""# } else { "" };
        let (size, colour, text) = (face.size, face.colour, escaped(text));
        self.element(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{weight}{turn}>{text}</text>"#
        ));
    }

    /// The whole document.
    pub(super) fn finish(self) -> String {
        let (width, height, body) = (self.width, self.height, self.body);
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="{FONT}">
<rect width="{width}" height="{height}" fill="#ffffff"/>
{body}</svg>
"##
        )
    }

    fn element(&mut self, element: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }
}

/// Title and explanation at the top of a picture.
#[derive(Debug)]
pub(super) struct Heading<'a> {
    title: &'a str,
    lines: Vec<String>,
}

impl<'a> Heading<'a> {
    /// Breaks the explanation into lines of that width.
    pub(super) fn new(title: &'a str, explanation: &str, width: f64) -> Self {
        let mut lines = vec![String::new()];
        for word in explanation.split_whitespace() {
            let line = lines.last().map_or("", |line| line);
            let longer = format!("{line} {word}").trim_start().to_owned();
            match lines.last_mut() {
                Some(last) if last.is_empty() || width_of(&longer, SUBTITLE) <= width => *last = longer,
                _ => lines.push(word.to_owned()),
            }
        }
        Self { title, lines }
    }

    pub(super) fn height(&self) -> f64 {
        54.0 + self.lines.len() as f64 * SUBTITLE_LINE
    }

    pub(super) fn draw(&self, svg: &mut Svg, left: f64) {
        svg.text(Point::new(left, 32.0), self.title, Anchor::Start, TITLE);
        for (n, line) in self.lines.iter().enumerate() {
            svg.text(Point::new(left, 54.0 + n as f64 * SUBTITLE_LINE), line, Anchor::Start, SUBTITLE);
        }
    }
}

/// An estimate of the width: fonts differ, and nothing here can measure them.
pub(super) fn width_of(text: &str, face: Face) -> f64 {
    let per_letter = if face.bold { 0.7 } else { 0.6 };
    text.chars().count() as f64 * face.size * per_letter
}

fn joined(points: &[Point]) -> String {
    let mut text = String::new();
    for Point { x, y } in points {
        let _ = write!(text, "{x:.1},{y:.1} ");
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_explanations_are_broken_between_words() {
        let heading = Heading::new("t", "one two three four five", width_of("one two three", SUBTITLE));
        assert_eq!(heading.lines, ["one two three", "four five"]);
        assert_eq!(Heading::new("t", "unbreakable", 1.0).lines, ["unbreakable"]);
    }

    #[test]
    fn texts_cannot_break_the_document() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text(Point::new(1.0, 2.0), "a < b & c > d", Anchor::Middle, LABEL);
        let document = svg.finish();
        assert!(document.contains(">a &lt; b &amp; c &gt; d</text>"), "{document}");
    }
}
