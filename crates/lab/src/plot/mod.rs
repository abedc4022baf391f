//! Plots as SVG, to be looked at: what happened over time, and box plots.

mod axis;
mod boxes;
mod frame;
mod svg;
mod timeline;

pub use boxes::{BoxPlot, Column, Limit};
pub use timeline::{Data, Mark, Panel, Timeline};
