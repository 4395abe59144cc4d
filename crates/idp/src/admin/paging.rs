//! Paging: lists in pages of limited size.

use serde::Serialize;

use super::AdminFault;

/// Most entries of a page.
pub const MAX_PAGE: u32 = 500;
/// Entries of a page if the request has no limit.
pub const DEFAULT_PAGE: u32 = 100;

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Page<T> {
    /// Entries of the page, in order.
    pub items: Vec<T>,
    /// Value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Makes a page from rows, of which the caller read one more than `limit`.
    pub(super) fn cut(mut rows: Vec<T>, limit: u32, key: impl Fn(&T) -> String) -> Self {
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next = rows.last().filter(|_| more).map(key);
        Self { items: rows, next }
    }
}

/// Checks the requested number of entries.
pub(super) fn limit(requested: Option<u32>) -> Result<u32, AdminFault> {
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
    use super::*;

    #[test]
    fn a_page_says_whether_something_follows() {
        let cut = |rows: &[u32], limit| Page::cut(rows.to_vec(), limit, u32::to_string);
        assert_eq!(cut(&[1, 2, 3], 2), Page { items: vec![1, 2], next: Some("2".into()) });
        assert_eq!(cut(&[1, 2], 2), Page { items: vec![1, 2], next: None });
        assert_eq!(cut(&[], 2), Page { items: vec![], next: None });
        assert!(limit(Some(0)).is_err() && limit(Some(501)).is_err());
        assert_eq!(limit(Some(500)).unwrap(), 500);
    }
}
