//! HTML: renders a sheet as one page.
//!
//! Owns: the markup, the style and the script. All text from a record is escaped. The page's own
//! Content-Security-Policy forbids external resources, and every script but its own, which it knows
//! by its digest.
//!
//! The page is complete without the script, which zooms charts over time and flame graphs, and opens folded sections
//! for links and for print.

use std::fmt::Write as _;

use super::escape::escape;
use super::sheet::{Block, DataLink, Section, Sheet, Table};
use super::svg::Chart;
use super::warning::{Warning, Weight};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// SHA-256 of [`SCRIPT`], base64, as Content-Security-Policy names it.
const SCRIPT_DIGEST: &str = "YbWH5Ta3D3S4LBw7m97Vn/T6c4nBjeoozYHY6JKYmk4=";

/// Renders a sheet as a self-contained HTML page.
pub fn html(sheet: &Sheet) -> String {
    let title = escape(&sheet.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{SCRIPT_DIGEST}'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{title}</h1>\n"
    );
    if !sheet.lead.is_empty() {
        let _ = writeln!(page, "<p class=\"lead\">{}</p>", escape(&sheet.lead));
    }
    page.push_str("</header>\n");
    let opening = sheet.opening();
    for (number, section) in sheet.sections.iter().enumerate() {
        if number == opening {
            contents(&mut page, &sheet.sections, &sheet.data);
        }
        write_section(&mut page, number, section);
    }
    let _ = write!(page, "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n");
    page
}

/// List of the sections, and of the files with the same data.
fn contents(page: &mut String, sections: &[Section], data: &[DataLink]) {
    page.push_str("<nav aria-label=\"Contents\">\n<ul>");
    for (number, section) in sections.iter().enumerate() {
        let _ = write!(page, "<li><a href=\"#s{number}\">{}</a></li>", escape(&section.title));
    }
    page.push_str("</ul>\n");
    if !data.is_empty() {
        page.push_str("<p>The same data:");
        for link in data {
            let (file, about) = (escape(link.file), escape(link.about));
            let _ = write!(page, " <a href=\"{file}\">{file}</a> <small>({about})</small>");
        }
        page.push_str("</p>\n");
    }
    page.push_str("</nav>\n");
}

/// A link to a folded section leads into its content: then browsers open it by themselves.
fn write_section(page: &mut String, number: usize, section: &Section) {
    let title = escape(&section.title);
    let _ = if section.folded {
        writeln!(
            page,
            "<section><details><summary><h2>{title}</h2></summary>\n<div class=\"content\" id=\"s{number}\">"
        )
    } else {
        writeln!(page, "<section id=\"s{number}\">\n<h2>{title}</h2>")
    };
    for block in &section.blocks {
        write_block(page, block);
    }
    page.push_str(if section.folded { "</div></details></section>\n" } else { "</section>\n" });
}

fn write_block(page: &mut String, block: &Block) {
    match block {
        Block::Text(text) => {
            let _ = writeln!(page, "<p>{}</p>", prose(text));
        }
        Block::Answers(sentences) => {
            page.push_str("<ul class=\"answers\">");
            for sentence in sentences {
                let _ = write!(page, "<li>{}</li>", prose(sentence));
            }
            page.push_str("</ul>\n");
        }
        Block::Warning(warning) => write_warning(page, warning),
        Block::Table(table) => write_table(page, table),
        Block::Chart(chart) => write_chart(page, chart, true),
        Block::Charts(charts) => {
            page.push_str("<div class=\"charts\">\n");
            for chart in charts {
                write_chart(page, chart, false);
            }
            page.push_str("</div>\n");
        }
    }
}

/// A wide chart scrolls where the page is narrow. Who has no pointer scrolls what has the focus.
fn write_chart(page: &mut String, chart: &Chart, is_wide: bool) {
    let (title, svg) = (escape(&chart.title), chart.svg());
    let _ = if is_wide {
        writeln!(
            page,
            "<figure>\n<figcaption>{title}</figcaption>\n<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{title}\">\n{svg}</div></figure>"
        )
    } else {
        writeln!(page, "<figure>\n<figcaption>{title}</figcaption>\n{svg}</figure>")
    };
}

fn write_warning(page: &mut String, warning: &Warning) {
    let class = match warning.weight {
        Weight::Invalid => "grave",
        Weight::Careful => "careful",
        Weight::Explains => "explains",
    };
    let about = match warning.about() {
        about if about.is_empty() => about,
        about => format!(" <span>{}</span>", prose(&about)),
    };
    let _ = writeln!(
        page,
        "<div class=\"warning {class}\"><p class=\"what\"><b>{}</b> <code>{}</code>{about}</p><p>{}</p><p class=\"remedy\">{}</p>",
        warning.weight.label(),
        escape(&warning.name),
        prose(&warning.evidence()),
        prose(&warning.remedy)
    );
    if let Some(list) = warning.details() {
        let _ = writeln!(page, "<details><summary>{}</summary><ul>", escape(&list.title));
        for line in &list.lines {
            let _ = writeln!(page, "<li>{}</li>", prose(line));
        }
        page.push_str("</ul></details>\n");
    }
    page.push_str("</div>\n");
}

fn write_table(page: &mut String, table: &Table) {
    let caption = prose(&table.caption);
    if table.folded {
        let rows = table.rows.len();
        let _ =
            writeln!(page, "<details class=\"rows\"><summary>{caption} <span>{rows} rows</span></summary>");
    }
    let name = if table.caption.is_empty() { "Table".to_owned() } else { table.caption.replace('`', "") };
    let _ = writeln!(
        page,
        "<div class=\"table\" tabindex=\"0\" role=\"group\" aria-label=\"{}\"><table>",
        escape(&name)
    );
    if !table.folded && !caption.is_empty() {
        let _ = writeln!(page, "<caption>{caption}</caption>");
    }
    page.push_str("<thead><tr>");
    for head in &table.head {
        let _ = write!(page, "<th scope=\"col\">{}</th>", escape(head));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (number, row) in table.rows.iter().enumerate() {
        page.push_str(if table.apart.contains(&number) { "<tr class=\"apart\">" } else { "<tr>" });
        for (column, cell) in row.iter().enumerate() {
            let cell = match cell.split_once('\n') {
                Some((value, below)) if !below.is_empty() => {
                    let below: Vec<String> = below.lines().map(prose).collect();
                    format!("{}<small>{}</small>", prose(value), below.join("<br>"))
                }
                _ => prose(cell.trim_end()),
            };
            let _ = if column == 0 {
                write!(page, "<th scope=\"row\">{cell}</th>")
            } else {
                write!(page, "<td>{cell}</td>")
            };
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
    for note in &table.notes {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", prose(note));
    }
    if table.folded {
        page.push_str("</details>\n");
    }
}

/// Escapes text, and marks the parts between backticks as code.
fn prose(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // A backtick without a partner is a plain character.
    let named = if parts.len() % 2 == 1 { parts.len() } else { parts.len() - 2 };
    let mut safe = String::with_capacity(text.len());
    for (at, part) in parts.iter().enumerate() {
        let part = escape(part);
        let _ = match at {
            at if at > named => write!(safe, "`{part}"),
            at if at % 2 == 1 => write!(safe, "<code>{part}</code>"),
            _ => write!(safe, "{part}"),
        };
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text() {
        let mut table = Table::new("<b>", ["a"]);
        table.row(vec!["</td><script>alert(1)</script>".to_owned()]);
        let mut section = Section::new("\"s\"");
        section.table(table);
        let page = html(&Sheet { title: "<i>&".to_owned(), sections: vec![section], ..Sheet::default() });
        assert!(page.contains("<title>&lt;i&gt;&amp;</title>") && page.contains("&lt;script&gt;"), "{page}");
        assert!(page.matches("<script").count() == 1 && !page.contains("<i>"), "{page}");
        assert_eq!(escape("a\u{1}b"), "a\u{fffd}b");
    }

    #[test]
    fn a_folded_table_opens_by_its_caption() {
        let mut table = Table { folded: true, ..Table::new("by iteration", ["a"]) };
        table.row(vec!["x".to_owned()]);
        let mut page = String::new();
        write_table(&mut page, &table);
        let from = "<details class=\"rows\"><summary>by iteration <span>1 rows</span></summary>\n<div class=\"table\"";
        assert!(page.starts_with(from) && page.ends_with("</table></div>\n</details>\n"), "{page}");
        assert!(!page.contains("<caption>"), "the caption is said once: {page}");
    }

    #[test]
    fn contents_come_after_the_opening_and_lead_into_folded_sections() {
        let mut sheet = Sheet::default();
        for (title, folded) in [("verdict", false), ("all <figures>", true)] {
            let mut section = Section { folded, ..Section::new(title) };
            section.text("x");
            sheet.section(section);
        }
        sheet.data = vec![DataLink { file: "report.json", about: "the record" }];
        let page = html(&sheet);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} in {page}"));
        let order = [
            "<section id=\"s0\">\n<h2>verdict</h2>",
            "<nav aria-label=\"Contents\">",
            "<li><a href=\"#s1\">all &lt;figures&gt;</a></li>",
            "<a href=\"report.json\">report.json</a> <small>(the record)</small>",
            "<details><summary><h2>all &lt;figures&gt;</h2></summary>\n<div class=\"content\" id=\"s1\">",
        ];
        assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])), "{page}");
        sheet.sections.iter_mut().for_each(|section| section.folded = false);
        let page = html(&sheet);
        assert!(page.find("<nav").unwrap() < page.find("<section").unwrap(), "{page}");
    }

    #[test]
    fn what_stands_between_backticks_is_a_name() {
        assert_eq!(prose("`a<b` and `c`: d"), "<code>a&lt;b</code> and <code>c</code>: d");
        assert_eq!(prose("`a` and a ` alone"), "<code>a</code> and a ` alone");
        assert_eq!((&*prose("`"), &*prose("")), ("`", ""));
    }

    #[test]
    fn the_page_needs_nothing_but_itself() {
        let page = html(&Sheet::default());
        for foreign in ["http:", "https:", "src=", "url(", "@import", "<link"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(page.contains("prefers-color-scheme: dark"));
        // The digest is of what is between the tags; it ends where the first end tag begins.
        assert!(page.contains(&format!("<script>{SCRIPT}</script>")) && !SCRIPT.contains("</"));
        assert!(!SCRIPT.contains(['<', '&']), "the page stays well-formed XML");
    }
}
