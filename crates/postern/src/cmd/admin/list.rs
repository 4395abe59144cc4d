//! Lists: which part of one to show, and where the rest begins.

use idp::admin::paging::{DEFAULT_PAGE, MAX_PAGE};
use idp::admin::{AdminFault, Page};
use serde::Serialize;

use super::Done;
use crate::cmd::admin::context::AdminContext;

/// Which part of a list to show.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ListPart {
    /// Only entries that contain this text, in any case; no character is a wildcard.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    search: Option<String>,
    /// Largest number of entries.
    #[arg(long, value_name = "NUMBER", default_value_t = DEFAULT_PAGE, conflicts_with = "all")]
    limit: u32,
    /// All entries, however many.
    #[arg(long)]
    all: bool,
    /// Only entries after this position, which the part before it names.
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    after: Option<String>,
}

/// A part of at most [`MAX_PAGE`] entries.
pub(super) struct PagePart {
    pub(super) search: Option<String>,
    pub(super) limit: Option<u32>,
    pub(super) after: Option<String>,
}

impl ListPart {
    /// Reads as many pages as the part needs. Pages of a search may be short although more follow.
    pub(super) async fn read<T>(
        self,
        mut page: impl AsyncFnMut(PagePart) -> Result<Page<T>, AdminFault>,
    ) -> Result<Page<T>, AdminFault> {
        let Self { search, limit, all, mut after } = self;
        let most = if all { usize::MAX } else { limit as usize };
        let mut items = Vec::new();
        loop {
            let missing = u32::try_from(most - items.len()).unwrap_or(MAX_PAGE).min(MAX_PAGE);
            let part = PagePart { search: search.clone(), limit: Some(missing), after };
            let next = page(part).await?;
            items.extend(next.items);
            if next.next.is_none() || items.len() >= most {
                return Ok(Page { items, next: next.next });
            }
            after = next.next;
        }
    }
}

/// Prints a part of a list, and where the rest begins.
pub(super) fn show_part<T: Serialize>(
    desk: &AdminContext,
    part: &Page<T>,
    text: impl FnOnce(&Page<T>) -> String,
) -> Done {
    let outcome = desk.show(part, text)?;
    if let Some(next) = &part.next {
        anstream::eprintln!("more follow: --after {}", quoted(next));
    }
    Ok(outcome)
}

/// The text as one word for a shell, without control characters, which a terminal would obey.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./@:+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a part of the numbers from 0, of which `matching` match a search.
    async fn numbers(part: ListPart, length: u32, matching: fn(u32) -> bool) -> (Vec<u32>, Option<String>) {
        let read = part.read(async |part: PagePart| {
            let first = part.after.map_or(0, |after| after.parse::<u32>().unwrap() + 1);
            let limit = part.limit.unwrap();
            assert!((1..=MAX_PAGE).contains(&limit));
            let last = length.min(first + limit);
            let items: Vec<u32> = (first..last).filter(|n| part.search.is_none() || matching(*n)).collect();
            Ok(Page { items, next: (last < length).then(|| (last - 1).to_string()) })
        });
        let page = read.await.unwrap();
        (page.items, page.next)
    }

    #[tokio::test]
    async fn a_part_is_read_by_pages() {
        let first = ListPart { search: None, limit: 3, all: false, after: None };
        assert_eq!(numbers(first.clone(), 9, |_| true).await, (vec![0, 1, 2], Some("2".into())));
        let rest = ListPart { after: Some("6".into()), ..first.clone() };
        assert_eq!(numbers(rest, 9, |_| true).await, (vec![7, 8], None));
        let large = numbers(ListPart { limit: 700, ..first.clone() }, 1_000, |_| true).await;
        assert_eq!((large.0.len(), large.1.as_deref()), (700, Some("699")));
        let all = numbers(ListPart { all: true, ..first.clone() }, 1_200, |_| true).await;
        assert_eq!((all.0.len(), all.1), (1_200, None));
        // Pages without a match are passed over.
        let search = ListPart { search: Some("x".into()), limit: 2, ..first };
        let found = numbers(search, 1_000, |n| n % 400 == 399).await;
        assert_eq!((found.0, found.1.is_some()), (vec![399, 799], true));
    }

    #[test]
    fn a_position_is_one_word_for_a_shell() {
        assert_eq!(quoted("database/shop-1"), "database/shop-1");
        assert_eq!(quoted("Ada Lovelace"), "'Ada Lovelace'");
        assert_eq!(quoted("O'Hara\u{1b}[2J"), "'O'\\''Hara\u{fffd}[2J'");
    }
}
