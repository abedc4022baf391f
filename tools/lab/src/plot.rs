//! Plots as SVG: events over time, box plots, bars and lines.

mod axis;
mod boxes;
mod chart;
mod frame;
mod svg;
mod timeline;

pub use boxes::{BoxPlot, Column, Limit};
pub use chart::{Chart, Series, Style};
pub use timeline::{Data, Dot, Line, Mark, Panel, Step, Timeline};
