//! HTML: renders a sheet as one page.
//!
//! Owns: the markup and the style. All text from a record is escaped. The page's own
//! Content-Security-Policy forbids scripts and external resources.

use std::fmt::Write as _;

use super::escape::escape;
use super::sheet::{Block, Section, Sheet, Table};
use super::warning::{Warning, Weight};

const STYLE: &str = include_str!("page.css");

/// Renders a sheet as a self-contained HTML page.
pub fn html(sheet: &Sheet) -> String {
    let title = escape(&sheet.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{title}</h1>\n"
    );
    if !sheet.lead.is_empty() {
        let _ = writeln!(page, "<p class=\"lead\">{}</p>", escape(&sheet.lead));
    }
    page.push_str("</header>\n");
    contents(&mut page, &sheet.sections);
    for (number, section) in sheet.sections.iter().enumerate() {
        let _ = writeln!(page, "<section id=\"s{number}\">\n<h2>{}</h2>", escape(&section.title));
        for block in &section.blocks {
            write_block(&mut page, block);
        }
        page.push_str("</section>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn contents(page: &mut String, sections: &[Section]) {
    page.push_str("<nav aria-label=\"Contents\">");
    for (number, section) in sections.iter().enumerate() {
        let _ = write!(page, "<a href=\"#s{number}\">{}</a>", escape(&section.title));
    }
    page.push_str("</nav>\n");
}

fn write_block(page: &mut String, block: &Block) {
    match block {
        Block::Text(text) => {
            let _ = writeln!(page, "<p>{}</p>", escape(text));
        }
        Block::Warning(warning) => write_warning(page, warning),
        Block::Table(table) => write_table(page, table),
        Block::Chart(chart) => {
            let _ = writeln!(
                page,
                "<figure>\n<figcaption>{}</figcaption>\n{}</figure>",
                escape(&chart.title),
                chart.svg()
            );
        }
    }
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
    let _ = if table.folded {
        let rows = table.rows.len();
        writeln!(
            page,
            "<details class=\"table\"><summary>{caption} <span>{rows} rows</span></summary><table>"
        )
    } else if caption.is_empty() {
        writeln!(page, "<div class=\"table\"><table>")
    } else {
        writeln!(page, "<div class=\"table\"><table>\n<caption>{caption}</caption>")
    };
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
    let _ = writeln!(page, "</tbody></table></{}>", if table.folded { "details" } else { "div" });
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
        assert!(!page.contains("<script") && !page.contains("<i>"), "{page}");
        assert_eq!(escape("a\u{1}b"), "a\u{fffd}b");
    }

    #[test]
    fn a_folded_table_opens_by_its_caption() {
        let mut table = Table { folded: true, ..Table::new("by iteration", ["a"]) };
        table.row(vec!["x".to_owned()]);
        let mut page = String::new();
        write_table(&mut page, &table);
        let from = "<details class=\"table\"><summary>by iteration <span>1 rows</span></summary><table>";
        assert!(page.starts_with(from) && page.ends_with("</table></details>\n"), "{page}");
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
    }
}
