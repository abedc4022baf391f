//! The parts that all plots share: a rectangle with ticks, grid and names of its axes.

use super::axis::{Axis, Ends};
use super::svg::{Anchor, FAINT, GRID, LABEL, Point, Svg, TICK};

/// The position of a plot in the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// The ends of the vertical axis: values grow upwards.
    pub(super) fn vertical_ends(self) -> Ends {
        Ends { low: self.bottom, high: self.top }
    }

    /// Horizontal grid, ticks and name of the vertical axis.
    pub(super) fn vertical_axis(self, svg: &mut Svg, axis: &Axis, name: &str) {
        for (y, text) in axis.ticks() {
            svg.line(Point::new(self.left, y), Point::new(self.right, y), GRID, 1.0);
            svg.text(Point::new(self.left - 8.0, y + 4.0), &text, Anchor::End, TICK);
        }
        let middle = f64::midpoint(self.top, self.bottom);
        svg.upright(Point::new(self.left - 52.0, middle), name, LABEL);
    }

    /// Ticks and name of the horizontal axis.
    pub(super) fn horizontal_axis(self, svg: &mut Svg, axis: &Axis, name: &str) {
        for (x, text) in axis.ticks() {
            svg.line(Point::new(x, self.bottom), Point::new(x, self.bottom + 5.0), FAINT, 1.0);
            svg.text(Point::new(x, self.bottom + 19.0), &text, Anchor::Middle, TICK);
        }
        let middle = f64::midpoint(self.left, self.right);
        svg.text(Point::new(middle, self.bottom + 39.0), name, Anchor::Middle, LABEL);
    }

    /// The lines of the axes, drawn above the content of the frame.
    pub(super) fn edges(self, svg: &mut Svg) {
        svg.line(Point::new(self.left, self.top), Point::new(self.left, self.bottom), FAINT, 1.0);
        svg.line(Point::new(self.left, self.bottom), Point::new(self.right, self.bottom), FAINT, 1.0);
    }
}
