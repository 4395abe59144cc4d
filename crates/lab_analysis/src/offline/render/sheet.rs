//! Sheet: a report as a sequence of sections, before it becomes Markdown or HTML.
//!
//! Owns: the parts of a report.
//! Does not own: their content.
//!
//! Both forms come from one sheet, so they never differ in content. Charts are in the HTML only,
//! and every chart has its figures in a table as well.

use std::fmt::Write as _;

use super::svg::Chart;
use super::warning::Warning;

/// A report in sections.
#[derive(Debug, Default)]
pub struct Sheet {
    /// Title of the report.
    pub title: String,
    /// Line under the title.
    pub lead: String,
    /// Sections in order; those that make figures doubtful come first.
    pub sections: Vec<Section>,
}

/// A section of a report.
#[derive(Debug, Default)]
pub struct Section {
    /// Title of the section.
    pub title: String,
    /// Content of the section.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Debug)]
pub enum Block {
    /// A paragraph of text.
    Text(String),
    /// A fact to know before reading the figures.
    Warning(Warning),
    /// A table of figures.
    Table(Table),
    /// A chart, drawn in HTML only.
    Chart(Box<Chart>),
}

/// A table. The first column is text, the others are figures. Text after a line break in a cell is
/// shown smaller, below the rest.
#[derive(Debug, Default, Clone)]
pub struct Table {
    /// Caption above the table.
    pub caption: String,
    /// Heads of the columns.
    pub head: Vec<String>,
    /// Rows, each as long as the head.
    pub rows: Vec<Vec<String>>,
    /// Indices of rows of another kind: published figures.
    pub apart: Vec<usize>,
    /// Whether the rows are hidden until the reader unfolds them: the table is long and for
    /// reference.
    pub folded: bool,
}

impl Table {
    /// Creates a table with these column heads.
    pub fn new<const N: usize>(caption: &str, head: [&str; N]) -> Self {
        Self { caption: caption.to_owned(), head: head.map(str::to_owned).to_vec(), ..Self::default() }
    }

    /// Adds a row; a short row is padded with empty cells.
    pub fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.head.len(), String::new());
        self.rows.push(cells);
    }

    /// Adds a row of another kind, which is set apart from the others.
    pub fn row_apart(&mut self, cells: Vec<String>) {
        self.apart.push(self.rows.len());
        self.row(cells);
    }
}

impl Section {
    /// Creates an empty section.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), blocks: Vec::new() }
    }

    /// Adds a paragraph of text.
    pub fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }

    /// Adds a table, unless it has no rows.
    pub fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.blocks.push(Block::Table(table));
        }
    }

    /// Adds a chart to the section.
    pub fn chart(&mut self, chart: Chart) {
        self.blocks.push(Block::Chart(Box::new(chart)));
    }
}

impl Sheet {
    /// Adds a section, unless it is empty.
    pub fn section(&mut self, section: Section) {
        if !section.blocks.is_empty() {
            self.sections.push(section);
        }
    }

    /// Renders the sheet as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n", line(&self.title));
        if !self.lead.is_empty() {
            let _ = writeln!(text, "\n{}", line(&self.lead));
        }
        for section in &self.sections {
            let _ = writeln!(text, "\n## {}", line(&section.title));
            for block in &section.blocks {
                markdown_block(&mut text, block);
            }
        }
        text
    }
}

fn markdown_block(text: &mut String, block: &Block) {
    match block {
        Block::Text(paragraph) => {
            let _ = writeln!(text, "\n{}", line(paragraph));
        }
        Block::Warning(warning) => markdown_warning(text, warning),
        Block::Table(table) => markdown_table(text, table),
        Block::Chart(chart) => {
            let _ = writeln!(text, "\n_Picture in the HTML report: {}._", line(&chart.title));
        }
    }
}

fn markdown_warning(text: &mut String, warning: &Warning) {
    let about = match warning.about() {
        about if about.is_empty() => about,
        about => format!(" ({})", line(&about)),
    };
    let (mark, name) = (warning.weight.label(), line(&warning.name));
    let (evidence, remedy) = (line(&warning.evidence()), line(&warning.remedy));
    let _ = writeln!(text, "\n- **{mark}**: `{name}`{about}: {evidence}. _{remedy}_");
    if let Some(list) = warning.details() {
        let _ = writeln!(text, "\n  <details><summary>{}</summary>\n", line(&list.title));
        for one in &list.lines {
            let _ = writeln!(text, "  - {}", line(one));
        }
        let _ = writeln!(text, "\n  </details>");
    }
}

fn markdown_table(text: &mut String, table: &Table) {
    if !table.caption.is_empty() {
        let _ = writeln!(text, "\n### {}", line(&table.caption));
    }
    let cell = |cell: &String| match cell.split_once('\n') {
        Some((value, below)) if !below.is_empty() => {
            line(&format!("{value} ({})", below.replace('\n', "; ")))
        }
        _ => line(cell.trim_end()),
    };
    let cells = |cells: &[String]| {
        cells.iter().map(|one| cell(one).replace('|', "\\|")).collect::<Vec<_>>().join(" | ")
    };
    if table.folded {
        let _ = writeln!(text, "\n<details><summary>{} rows</summary>", table.rows.len());
    }
    let _ = writeln!(text, "\n| {} |", cells(&table.head));
    let rule: Vec<&str> = (0..table.head.len()).map(|at| if at == 0 { "---" } else { "---:" }).collect();
    let _ = writeln!(text, "|{}|", rule.join("|"));
    for row in &table.rows {
        let _ = writeln!(text, "| {} |", cells(row));
    }
    if table.folded {
        let _ = writeln!(text, "\n</details>");
    }
}

/// Removes line breaks and escapes `<`, because names come from files.
fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_out_of_its_cell() {
        let mut table = Table::new("", ["a", "b"]);
        table.row(vec!["x|y\n# z<script>".to_owned(), "5\n4 … 6".to_owned()]);
        let mut section = Section::new("s");
        section.table(table);
        let sheet = Sheet { title: "t".to_owned(), sections: vec![section], ..Sheet::default() };
        assert_eq!(
            sheet.markdown(),
            "# t\n\n## s\n\n| a | b |\n|---|---:|\n| x\\|y (# z&lt;script>) | 5 (4 … 6) |\n"
        );
    }

    #[test]
    fn a_folded_table_says_how_long_it_is() {
        let mut table = Table { folded: true, ..Table::new("c", ["a"]) };
        table.row(vec!["x".to_owned()]);
        let mut section = Section::new("s");
        section.table(table);
        let sheet = Sheet { title: "t".to_owned(), sections: vec![section], ..Sheet::default() };
        let table = "<details><summary>1 rows</summary>\n\n| a |\n|---|\n| x |\n\n</details>\n";
        assert_eq!(sheet.markdown(), format!("# t\n\n## s\n\n### c\n\n{table}"));
    }

    #[test]
    fn what_is_empty_is_left_out() {
        let mut sheet = Sheet::default();
        let mut section = Section::new("s");
        section.table(Table::new("c", ["a"]));
        sheet.section(section);
        assert!(sheet.sections.is_empty());
    }
}
