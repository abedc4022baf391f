//! The parts that all plots share: a rectangle with ticks, grid and names of its axes.

use super::axis::Axis;
use super::svg::{Anchor, FAINT, GRID, LABEL, Svg, TICK};

/// The position of a plot in the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// Horizontal grid, ticks and name of the vertical axis.
    pub(super) fn vertical_axis(self, svg: &mut Svg, axis: &Axis, name: &str) {
        for (y, text) in axis.ticks() {
            svg.line((self.left, y), (self.right, y), GRID, 1.0);
            svg.text((self.left - 8.0, y + 4.0), &text, Anchor::End, TICK);
        }
        let middle = f64::midpoint(self.top, self.bottom);
        svg.upright((self.left - 52.0, middle), name, LABEL);
    }

    /// Ticks and name of the horizontal axis.
    pub(super) fn horizontal_axis(self, svg: &mut Svg, axis: &Axis, name: &str) {
        for (x, text) in axis.ticks() {
            svg.line((x, self.bottom), (x, self.bottom + 5.0), FAINT, 1.0);
            svg.text((x, self.bottom + 19.0), &text, Anchor::Middle, TICK);
        }
        let middle = f64::midpoint(self.left, self.right);
        svg.text((middle, self.bottom + 39.0), name, Anchor::Middle, LABEL);
    }

    /// The lines of the axes, drawn above the content of the frame.
    pub(super) fn edges(self, svg: &mut Svg) {
        svg.line((self.left, self.top), (self.left, self.bottom), FAINT, 1.0);
        svg.line((self.left, self.bottom), (self.right, self.bottom), FAINT, 1.0);
    }
}
