//! A report as a sequence of sections, before it becomes Markdown or HTML.
//!
//! Owns: the parts a report is made of. Does not own: what stands in them. One sheet is the source of both forms, so they never say
//! different things; pictures are in the HTML only, and every picture has its figures in a table as well.

use std::fmt::Write as _;

use super::svg::Chart;
use super::warning::Warning;

/// A report.
#[derive(Debug, Default)]
pub struct Sheet {
    /// Its title.
    pub title: String,
    /// A line under the title.
    pub lead: String,
    /// In order; what makes figures doubtful comes first.
    pub sections: Vec<Section>,
}

/// A section.
#[derive(Debug, Default)]
pub struct Section {
    /// Its title.
    pub title: String,
    /// What stands in it.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Debug)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// Something to know before the figures.
    Warning(Warning),
    /// A table.
    Table(Table),
    /// A picture.
    Chart(Box<Chart>),
}

/// A table. The first column is text, the others are figures; what stands after a line break in a cell is said smaller, below it.
#[derive(Debug, Default, Clone)]
pub struct Table {
    /// A line above it.
    pub caption: String,
    /// Heads of columns.
    pub head: Vec<String>,
    /// Rows, as long as the head.
    pub rows: Vec<Vec<String>>,
    /// Rows that are of another kind: published figures.
    pub apart: Vec<usize>,
    /// It is long and for reference: only who opens it sees its rows.
    pub folded: bool,
}

impl Table {
    /// A table with these heads.
    pub fn new<const N: usize>(caption: &str, head: [&str; N]) -> Self {
        Self { caption: caption.to_owned(), head: head.map(str::to_owned).to_vec(), ..Self::default() }
    }

    /// Adds a row; a row that is too short is filled up.
    pub fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.head.len(), String::new());
        self.rows.push(cells);
    }

    /// Adds a row of another kind.
    pub fn row_apart(&mut self, cells: Vec<String>) {
        self.apart.push(self.rows.len());
        self.row(cells);
    }
}

impl Section {
    /// An empty section.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), blocks: Vec::new() }
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }

    /// Adds a table that has rows.
    pub fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.blocks.push(Block::Table(table));
        }
    }

    /// Adds a picture.
    pub fn chart(&mut self, chart: Chart) {
        self.blocks.push(Block::Chart(Box::new(chart)));
    }
}

impl Sheet {
    /// Adds a section that has something in it.
    pub fn section(&mut self, section: Section) {
        if !section.blocks.is_empty() {
            self.sections.push(section);
        }
    }

    /// The sheet as Markdown.
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
    let (mark, name) = (warning.weight.word(), line(&warning.name));
    let (evidence, remedy) = (line(&warning.evidence()), line(&warning.remedy));
    let _ = writeln!(text, "\n- **{mark}**: `{name}`{about}: {evidence}. _{remedy}_");
    if let Some(list) = warning.rest() {
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

/// Text that stays on its line: names come from files.
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
