//! Sheet: a report as a sequence of sections, before it becomes Markdown or HTML.
//!
//! Owns: the parts of a report.
//! Does not own: their content.
//!
//! Both forms come from one sheet, so they never differ in content or order. Charts are in the HTML
//! only, and every chart has its figures in a table as well. Sections fold in the HTML only.

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
    /// Sections in order; what answers the reader's question, and what makes figures doubtful, come
    /// first.
    pub sections: Vec<Section>,
    /// Files beside the sheet with the same data.
    pub data: Vec<DataLink>,
}

/// A file beside a sheet with the same data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataLink {
    /// Name of the file, in the folder of the sheet.
    pub file: &'static str,
    /// What it has, in few words.
    pub about: &'static str,
}

/// A section of a report.
#[derive(Debug, Default)]
pub struct Section {
    /// Title of the section.
    pub title: String,
    /// Content of the section.
    pub blocks: Vec<Block>,
    /// Whether the HTML shows the title only, until the reader unfolds the section.
    pub folded: bool,
}

/// A part of a section.
#[derive(Debug)]
pub enum Block {
    /// A paragraph of text.
    Text(String),
    /// Sentences that answer what the run was made for.
    Answers(Vec<String>),
    /// A fact to know before reading the figures.
    Warning(Warning),
    /// A table of figures.
    Table(Table),
    /// A chart, drawn in HTML only.
    Chart(Box<Chart>),
    /// Narrow charts beside each other, drawn in HTML only.
    Charts(Vec<Chart>),
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
    /// Lines below the table: what marks in its cells mean.
    pub notes: Vec<String>,
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
        Self { title: title.to_owned(), ..Self::default() }
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

    /// Adds a section whose content the HTML hides until the reader unfolds it, unless it is empty.
    pub fn folded_section(&mut self, section: Section) {
        self.section(Section { folded: true, ..section });
    }

    /// Index of the first folded section: contents and data are listed before it. 0 where no
    /// section is folded.
    pub(super) fn opening(&self) -> usize {
        self.sections.iter().position(|section| section.folded).unwrap_or(0)
    }

    /// Renders the sheet as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n", line(&self.title));
        if !self.lead.is_empty() {
            let _ = writeln!(text, "\n{}", line(&self.lead));
        }
        for (number, section) in self.sections.iter().enumerate() {
            if number == self.opening() {
                markdown_data(&mut text, &self.data);
            }
            let _ = writeln!(text, "\n## {}", line(&section.title));
            for block in &section.blocks {
                markdown_block(&mut text, block);
            }
        }
        text
    }
}

fn markdown_data(text: &mut String, data: &[DataLink]) {
    if !data.is_empty() {
        let links: Vec<String> =
            data.iter().map(|link| format!("[{}]({}) ({})", link.file, link.file, link.about)).collect();
        let _ = writeln!(text, "\nThe same data: {}.", links.join(", "));
    }
}

fn markdown_block(text: &mut String, block: &Block) {
    let picture = |text: &mut String, chart: &Chart| {
        let _ = writeln!(text, "\n_Picture in the HTML report: {}._", line(&chart.title));
    };
    match block {
        Block::Text(paragraph) => {
            let _ = writeln!(text, "\n{}", line(paragraph));
        }
        Block::Warning(warning) => markdown_warning(text, warning),
        Block::Table(table) => markdown_table(text, table),
        Block::Answers(sentences) => {
            let items: Vec<String> = sentences.iter().map(|one| format!("- {}", line(one))).collect();
            let _ = writeln!(text, "\n{}", items.join("\n"));
        }
        Block::Chart(chart) => picture(text, chart),
        Block::Charts(charts) => charts.iter().for_each(|chart| picture(text, chart)),
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
    for note in &table.notes {
        let _ = writeln!(text, "\n{}", line(note));
    }
}

/// Removes line breaks and escapes `<`, because names come from files. Between single backticks `<`
/// stays: Markdown shows that part as it is.
fn line(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    let parts: Vec<&str> = text.split('`').collect();
    // Backticks beside each other, and one without a partner, delimit other parts than these.
    if text.contains("``") || parts.len().is_multiple_of(2) {
        return text.replace('<', "&lt;");
    }
    let part = |(at, part): (usize, &&str)| {
        if at % 2 == 1 { (*part).to_owned() } else { part.replace('<', "&lt;") }
    };
    parts.iter().enumerate().map(part).collect::<Vec<_>>().join("`")
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
    fn a_name_between_backticks_is_shown_as_it_is() {
        assert_eq!(line("`Flow<T>` < 1"), "`Flow<T>` &lt; 1");
        for odd in ["`Flow<T>", "``<b>`` `c`", "` `` <b> `` `"] {
            assert!(!line(odd).contains('<'), "{odd}");
        }
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
    fn data_is_linked_before_the_first_folded_section() {
        let mut sheet = Sheet { title: "t".to_owned(), ..Sheet::default() };
        sheet.data = vec![DataLink { file: "a.csv", about: "all" }, DataLink { file: "b.json", about: "b" }];
        let mut first = Section::new("first");
        first.blocks.push(Block::Answers(vec!["One\nline.".to_owned(), "a < b.".to_owned()]));
        sheet.section(first);
        let mut table = Table { notes: vec!["† published".to_owned()], ..Table::new("", ["a"]) };
        table.row(vec!["x †".to_owned()]);
        let mut second = Section::new("second");
        second.table(table);
        sheet.folded_section(second);
        let data = "The same data: [a.csv](a.csv) (all), [b.json](b.json) (b).";
        let answers = "- One line.\n- a &lt; b.";
        let table = "| a |\n|---|\n| x † |\n\n† published\n";
        assert_eq!(
            sheet.markdown(),
            format!("# t\n\n## first\n\n{answers}\n\n{data}\n\n## second\n\n{table}")
        );
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
