//! Several reviews of one route, of which all or any must be answered with yes.

use super::ReviewTemplate;

/// The access reviews of a route. None of the lists is empty.
#[derive(Debug, Clone)]
pub enum ReviewSet {
    /// Every review must be answered with yes.
    All(Box<[ReviewTemplate]>),
    /// One review must be answered with yes. A review that is impossible for a request counts as
    /// no.
    Any(Box<[ReviewTemplate]>),
}

impl ReviewSet {
    /// Most reviews of one route.
    pub const MAX: usize = 8;

    /// The reviews, in configured order.
    pub fn templates(&self) -> &[ReviewTemplate] {
        match self {
            Self::All(templates) | Self::Any(templates) => templates,
        }
    }

    /// Names of the query parameters that the reviews read.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.templates().iter().flat_map(ReviewTemplate::parameters)
    }

    /// Names of the header fields that the reviews read.
    pub fn fields_read(&self) -> impl Iterator<Item = &str> {
        self.templates().iter().flat_map(ReviewTemplate::fields_read)
    }
}

impl From<ReviewTemplate> for ReviewSet {
    fn from(template: ReviewTemplate) -> Self {
        Self::All([template].into())
    }
}
