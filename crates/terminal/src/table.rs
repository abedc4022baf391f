//! Tables of text: a heading, rows, columns as wide as needed.

use std::fmt::Write;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Left: text.
    Left,
    /// Right: numbers.
    Right,
}

/// A table under construction.
pub struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; without any head if all are empty.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let head: Vec<_> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let rows = if head.iter().all(String::is_empty) { Vec::new() } else { vec![head] };
        Self { align: columns.iter().map(|(_, align)| *align).collect(), rows }
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Appends the table, with each line indented by `indent`.
    pub fn write(&self, out: &mut String, indent: &str) {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.align.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::from(indent);
            for ((cell, align), width) in row.iter().zip(&self.align).zip(&widths) {
                // Writing to a String cannot fail.
                let _ = match align {
                    Align::Left => write!(line, "{cell:<width$}  "),
                    Align::Right => write!(line, "{cell:>width$}  "),
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("NAME", Align::Left), ("N", Align::Right)]);
        table.row(vec!["a".to_owned(), "1000".to_owned()]);
        table.row(vec!["länger".to_owned(), "1".to_owned()]);
        let mut out = String::new();
        table.write(&mut out, " ");
        assert_eq!(out, " NAME       N\n a       1000\n länger     1\n");
    }

    #[test]
    fn a_table_may_have_no_head() {
        let mut table = Table::new(&[("", Align::Left), ("", Align::Right)]);
        table.row(vec!["x".to_owned(), "1".to_owned()]);
        let mut out = String::new();
        table.write(&mut out, "");
        assert_eq!(out, "x  1\n");
    }
}
