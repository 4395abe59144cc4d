//! Paging: lists in pages of limited size, and the search in them.
//!
//! Owns: the form of a page ([`Page`]), limits, how a search text is compared, and how much one page
//! of a search reads. Does not own: the lists, and which of their fields a search looks at.
//!
//! Flow: `Part { search, limit, after } → read(position, count) → entries that match → Page`.
//!
//! No index finds a part of a name. So a search reads the list in its order, and a page ends after
//! [`MAX_SEARCHED`] entries even if it is not full: its `next` says where to continue. So the cost of
//! a page has a limit, however long the list is.

use std::borrow::Cow;

use serde::Serialize;

use super::AdminFault;

/// Most entries of a page.
pub const MAX_PAGE: u32 = 500;
/// Entries of a page if the request has no limit.
pub const DEFAULT_PAGE: u32 = 100;
/// Entries that one page of a search looks at, at most.
pub const MAX_SEARCHED: usize = 10_000;
/// Entries that a search reads at once.
const SEARCH_BATCH: u32 = 500;

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Page<T> {
    /// Entries of the page, in order.
    pub items: Vec<T>,
    /// Value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An entry of a list.
pub(super) trait Listed {
    /// Value of `after` for the entries behind this one.
    fn position(&self) -> String;

    /// Texts in which a search looks.
    fn searched(&self) -> Vec<Cow<'_, str>>;
}

/// Which part of a list is requested.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Part<'r> {
    pub(super) search: Option<&'r str>,
    pub(super) limit: Option<u32>,
    pub(super) after: Option<&'r str>,
}

impl Part<'_> {
    /// Reads a page. `read` returns at most so many entries behind a position, in order.
    ///
    /// # Errors
    /// [`AdminFault`] when the limit is out of range or `read` fails.
    pub(super) async fn read<T, R>(self, read: impl Fn(String, u32) -> R) -> Result<Page<T>, AdminFault>
    where
        T: Listed,
        R: Future<Output = Result<Vec<T>, AdminFault>>,
    {
        let limit = limit(self.limit)?;
        let mut after = self.after.unwrap_or_default().to_owned();
        let Some(search) = SearchText::new(self.search) else {
            return Ok(Page::cut(read(after, limit + 1).await?, limit));
        };
        let (mut found, mut searched) = (Vec::new(), 0);
        loop {
            let batch = read(after, SEARCH_BATCH).await?;
            let (count, last) = (batch.len(), batch.last().map(T::position));
            found.extend(batch.into_iter().filter(|entry| search.is_in(entry)));
            if found.len() > limit as usize {
                return Ok(Page::cut(found, limit));
            }
            after = match last {
                Some(last) if count >= SEARCH_BATCH as usize => last,
                _ => return Ok(Page { items: found, next: None }),
            };
            searched += count;
            if searched >= MAX_SEARCHED {
                return Ok(Page { items: found, next: Some(after) });
            }
        }
    }

    /// The page of a short list that was read as a whole.
    ///
    /// # Errors
    /// [`AdminFault`] when the limit is out of range, or the entry before the page is gone.
    pub(super) fn of<T: Listed>(self, mut all: Vec<T>) -> Result<Page<T>, AdminFault> {
        let limit = limit(self.limit)?;
        if let Some(after) = self.after {
            let Some(before) = all.iter().position(|entry| entry.position() == after) else {
                let reason = format!("there is no entry {after:?} any more: begin again without `after`");
                return Err(AdminFault::refused("after", reason));
            };
            all.drain(..=before);
        }
        if let Some(search) = SearchText::new(self.search) {
            all.retain(|entry| search.is_in(entry));
        }
        Ok(Page::cut(all, limit))
    }
}

impl<T> Page<T> {
    /// Makes a page from entries, of which the caller has one more than `limit` if more follow.
    fn cut(mut entries: Vec<T>, limit: u32) -> Self
    where
        T: Listed,
    {
        let more = entries.len() > limit as usize;
        entries.truncate(limit as usize);
        let next = entries.last().filter(|_| more).map(T::position);
        Self { items: entries, next }
    }
}

/// A text to search for: a part of a field, in any case. No character has a special meaning.
struct SearchText {
    /// In lower case.
    lower: String,
    /// In the form in which names are compared and, apart from case, stored.
    folded: String,
}

impl SearchText {
    /// `None`: every entry matches.
    fn new(text: Option<&str>) -> Option<Self> {
        let text = text.filter(|text| !text.is_empty())?;
        Some(Self { lower: text.to_lowercase(), folded: store::names::comparison_form(text) })
    }

    fn is_in(&self, entry: &impl Listed) -> bool {
        entry.searched().into_iter().any(|field| {
            let field = field.to_lowercase();
            field.contains(&self.lower) || (!self.folded.is_empty() && field.contains(&self.folded))
        })
    }
}

/// Checks the requested number of entries.
fn limit(requested: Option<u32>) -> Result<u32, AdminFault> {
    match requested.unwrap_or(DEFAULT_PAGE) {
        0 => Err(AdminFault::refused("limit", "limit too small: use at least 1")),
        n if n > MAX_PAGE => {
            Err(AdminFault::refused("limit", format!("limit too large: use at most {MAX_PAGE}")))
        }
        n => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// An entry with its number as position and text.
    #[derive(Debug, Clone, PartialEq)]
    struct Entry(usize, &'static str);

    impl Listed for Entry {
        fn position(&self) -> String {
            format!("{:06}", self.0)
        }

        fn searched(&self) -> Vec<Cow<'_, str>> {
            vec![self.1.into()]
        }
    }

    /// Reads a page of a list in which every entry is `text`, except some.
    async fn page(part: Part<'_>, length: usize, special: &[Entry]) -> (Vec<usize>, Option<String>, usize) {
        let read = Cell::new(0);
        let all = |after: String, count: u32| {
            let first = after.parse::<usize>().map_or(0, |last| last + 1);
            let entries: Vec<Entry> = (first..length.min(first + count as usize))
                .map(|at| special.iter().find(|entry| entry.0 == at).cloned().unwrap_or(Entry(at, "text")))
                .collect();
            read.set(read.get() + entries.len());
            async move { Ok(entries) }
        };
        let page = part.read(all).await.unwrap();
        (page.items.iter().map(|entry| entry.0).collect(), page.next, read.get())
    }

    #[tokio::test]
    async fn a_page_says_whether_something_follows() {
        let first = Part { limit: Some(2), ..Part::default() };
        assert_eq!(page(first, 3, &[]).await, (vec![0, 1], Some("000001".into()), 3));
        assert_eq!(page(first, 2, &[]).await, (vec![0, 1], None, 2));
        assert_eq!(page(first, 0, &[]).await, (vec![], None, 0));
        assert_eq!(page(Part { after: Some("000001"), ..first }, 3, &[]).await, (vec![2], None, 1));
        assert!(limit(Some(0)).is_err() && limit(Some(501)).is_err());
        assert_eq!((limit(Some(500)).unwrap(), limit(None).unwrap()), (500, 100));
    }

    #[tokio::test]
    async fn a_page_of_a_search_has_a_bounded_cost() {
        let search = Part { search: Some("NEEDLE"), limit: Some(1), after: None };
        let needles = [Entry(30, "a needle"), Entry(700, "Needles"), Entry(25_000, "needle")];
        let (found, next, read) = page(search, 30_000, &needles).await;
        assert_eq!((found, next.as_deref(), read), (vec![30], Some("000030"), 1_000));
        let mut after = next;
        let mut all = Vec::new();
        while let Some(position) = after {
            let part = Part { after: Some(&position), limit: None, ..search };
            let (found, next, read) = page(part, 30_000, &needles).await;
            assert!(read <= MAX_SEARCHED, "{read}");
            all.push(found);
            after = next;
        }
        assert_eq!(all, [vec![700], vec![], vec![25_000]], "an empty page is not the last one");
    }

    #[test]
    fn a_search_is_for_a_part_in_any_case_and_spelling() {
        let is_in = |text: &str, field: &'static str| {
            SearchText::new(Some(text)).is_none_or(|search| search.is_in(&Entry(0, field)))
        };
        for (text, field) in [
            ("da", "Ada"),
            ("ADA@", "ada@example.com"),
            ("zoe\u{308}", "Zo\u{eb} Miller"),
            ("ZO\u{cb}", "zo\u{eb}"),
            ("100%", "100% staff"),
            ("a_b", "A_B"),
            ("", "anything"),
            (" ", "two words"),
        ] {
            assert!(is_in(text, field), "{text:?} in {field:?}");
        }
        for (text, field) in [("%", "ada"), ("a_a", "ada"), ("a.a", "ada"), ("*", "ada"), (" ", "ada")] {
            assert!(!is_in(text, field), "{text:?} in {field:?}");
        }
    }

    #[test]
    fn a_short_list_has_the_same_pages() {
        let all = || vec![Entry(3, "active"), Entry(1, "next"), Entry(2, "retired")];
        let of = |part: Part<'_>| {
            part.of(all()).map(|page| (page.items.iter().map(|entry| entry.0).collect::<Vec<_>>(), page.next))
        };
        let first = Part { limit: Some(2), ..Part::default() };
        assert_eq!(of(first).unwrap(), (vec![3, 1], Some("000001".into())));
        assert_eq!(of(Part { after: Some("000001"), ..first }).unwrap(), (vec![2], None));
        assert_eq!(of(Part { search: Some("E"), ..first }).unwrap(), (vec![3, 1], Some("000001".into())));
        let gone = of(Part { after: Some("000009"), ..first }).unwrap_err().to_string();
        assert_eq!(gone, "after: there is no entry \"000009\" any more: begin again without `after`");
    }
}
