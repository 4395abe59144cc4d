//! Kubernetes `SubjectAccessReviews`: what Kubernetes is asked about a request that no rule
//! decides.
//!
//! Owns: [`ReviewSpec`] as configured, [`ReviewTemplate`] as checked, and the [`ReviewQuestion`]s
//! that it makes from a request. Does not own: who answers them, and what an answer leads to
//! (`decide`).
//!
//! A question is about the content of the request: a value may come from the route's path template,
//! a query parameter, a header or the method. A value from the client is used unchanged or not at
//! all:
//!
//! - An attribute that is configured and would be empty denies, since to Kubernetes an empty
//!   namespace means all namespaces.
//! - A value that occurs several times leads to as many questions, and every answer has to be yes.
//!
//! No caller can take the name of another one. A name that Kubernetes reserves (`system:…`) is
//! accepted only from a token authority of the cluster itself.

mod set;
mod subject;

use std::borrow::Cow;
use std::fmt;

use super::route::Captures;
use crate::headers::{is_nominated, is_same_alias_class};
use crate::identity::Identity;
use crate::request::{Canonical, Field, pairs};
pub use set::ReviewSet;
use subject::extra_attributes;
pub use subject::{NameSource, ReviewSubject};

/// Most questions that one request may lead to.
pub const MAX_QUESTIONS: usize = 16;
/// A review as configured. Texts are templates: `{path.NAME}`, `{query.NAME}`, `{header.NAME}`,
/// `{method}`, `{path}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReviewSpec {
    /// About a resource, or about a path that is not a resource.
    pub attributes: ReviewAttributes<String>,
    /// Names of callers in the cluster.
    pub subject: ReviewSubject,
}

/// What a review is about (`resourceAttributes` or `nonResourceAttributes`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReviewAttributes<T> {
    /// An object of the API.
    Resource {
        /// Namespace; `None`: of no namespace, or of all.
        namespace: Option<T>,
        /// Verb, such as `get`, `list` or `create`.
        verb: T,
        /// API group; `None`: the core group.
        group: Option<T>,
        /// Version of the API; `None`: of any version.
        version: Option<T>,
        /// Resource type, in the plural.
        resource: T,
        /// Subresource, such as `status`.
        subresource: Option<T>,
        /// Name of the object; `None`: all objects.
        name: Option<T>,
    },
    /// A path of the API server that does not belong to an object.
    NonResource {
        /// Path on the API server.
        path: T,
        /// Verb: the method, in lower case.
        verb: T,
    },
}

impl<T: Default> Default for ReviewAttributes<T> {
    fn default() -> Self {
        Self::NonResource { path: T::default(), verb: T::default() }
    }
}

/// Fault of a review's template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    /// A brace is not closed, or not opened.
    #[error(
        "{0:?} is not a template: write {{path.NAME}}, {{query.NAME}}, {{header.NAME}}, {{method}} or {{path}}"
    )]
    Braces(String),
    /// A placeholder of an unknown kind.
    #[error(
        "there is no placeholder {0:?}: write {{path.NAME}}, {{query.NAME}}, {{header.NAME}}, {{method}} or {{path}}"
    )]
    Unknown(String),
    /// A capture that the route's path does not have.
    #[error(
        "the route's path has no {0:?}: capture it there, such as `path = {{ template = \"/apps/{{{0}}}\" }}`"
    )]
    NoCapture(String),
    /// The text of an attribute is empty.
    #[error("the text is empty: remove the key if it is not needed")]
    Empty,
    /// A second parameter or header, each of which may be repeated.
    #[error(
        "{0:?} may be repeated too, but only one parameter or header of a review may be: use one for all attributes"
    )]
    Several(String),
}

/// A checked review, ready to be applied to requests.
#[derive(Debug, Clone)]
pub struct ReviewTemplate {
    attributes: ReviewAttributes<Template>,
    subject: ReviewSubject,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Template(Box<[Part]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Capture(Box<str>),
    Query(Box<str>),
    Header(Box<str>),
    Verb,
    Path,
}

/// Who wants to do what: one question to Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReviewQuestion<'q> {
    /// User name in the cluster.
    pub user: Cow<'q, str>,
    /// Groups of the user.
    pub groups: Cow<'q, [Box<str>]>,
    /// Further attributes of the user, from the same token authority.
    pub extra: Vec<(&'q str, &'q [Box<str>])>,
    /// Identifier of the user, from the same token authority.
    pub uid: Option<&'q str>,
    /// What the user wants to do.
    pub attributes: ReviewAttributes<Cow<'q, str>>,
}

/// Why there is no question to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReviewImpossible {
    /// A value that the question needs is absent or empty.
    #[error("the review needs {0}, which the request does not have")]
    Missing(RequestPart),
    /// A value that the question cannot contain.
    #[error("the {0} of the request cannot be part of a review")]
    Unusable(RequestPart),
    /// The method corresponds to no verb.
    #[error("the method has no Kubernetes verb")]
    Method,
    /// The caller has no name, or one that the cluster reserves.
    #[error("the caller has no name that a review can use")]
    Caller,
    /// The request has more values than [`MAX_QUESTIONS`].
    #[error("the request names more than {MAX_QUESTIONS} objects")]
    TooMany,
}

/// The part of a request that a question needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPart {
    /// A capture of the path.
    Path,
    /// A query parameter.
    Query,
    /// A header field.
    Header,
}

impl fmt::Display for RequestPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Path => "a part of the path",
            Self::Query => "a query parameter",
            Self::Header => "a header",
        })
    }
}

impl ReviewTemplate {
    /// Checks a review against the captures of the route's path template.
    ///
    /// # Errors
    /// Every fault, with the key that it is in.
    pub fn build(spec: &ReviewSpec, captures: &[String]) -> Result<Self, Vec<(&'static str, TemplateFault)>> {
        let mut faults = Vec::new();
        let mut repeated = Vec::new();
        let mut template = |key: &'static str, text: &str| {
            let built = Template::parse(text, captures).and_then(|template| {
                for part in &template.0 {
                    if let Part::Query(name) | Part::Header(name) = part {
                        // The same value twice is one value.
                        if !repeated.is_empty() && !repeated.contains(part) {
                            return Err(TemplateFault::Several(name.to_string()));
                        }
                        repeated.push(part.clone());
                    }
                }
                Ok(template)
            });
            built.map_err(|fault| faults.push((key, fault))).unwrap_or(Template(Box::default()))
        };
        let attributes = match &spec.attributes {
            ReviewAttributes::Resource { namespace, verb, group, version, resource, subresource, name } => {
                let mut optional =
                    |key, text: &Option<String>| text.as_deref().map(|text| template(key, text));
                ReviewAttributes::Resource {
                    namespace: optional("namespace", namespace),
                    group: optional("api_group", group),
                    version: optional("api_version", version),
                    subresource: optional("subresource", subresource),
                    name: optional("name", name),
                    verb: template("verb", verb),
                    resource: template("resource", resource),
                }
            }
            ReviewAttributes::NonResource { path, verb } => {
                ReviewAttributes::NonResource { path: template("path", path), verb: template("verb", verb) }
            }
        };
        if faults.is_empty() { Ok(Self { attributes, subject: spec.subject.clone() }) } else { Err(faults) }
    }

    /// Names of the query parameters that it reads.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.parts().filter_map(|part| if let Part::Query(name) = part { Some(&**name) } else { None })
    }

    /// Names of the header fields that it reads.
    pub fn fields_read(&self) -> impl Iterator<Item = &str> {
        self.parts().filter_map(|part| if let Part::Header(name) = part { Some(&**name) } else { None })
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.attributes.texts().into_iter().flatten().flat_map(|template| &*template.0)
    }

    /// The questions about a request: every one must be answered with yes.
    ///
    /// # Errors
    /// [`ReviewImpossible`] when no question can be asked; the request must be refused.
    pub fn questions<'q>(
        &'q self,
        identity: &'q Identity,
        request: &'q Canonical<'_>,
        captures: &Captures<'q>,
        fields: &'q [Field<'q>],
    ) -> Result<Vec<ReviewQuestion<'q>>, ReviewImpossible> {
        let (user, groups) = self.subject.user_and_groups(identity)?;
        let own = self.subject.is_own(identity);
        let extra = if own { extra_attributes(identity) } else { Vec::new() };
        let uid = identity.claim("uid").first().map(|uid| &**uid).filter(|_| own);
        if !self.reads_one_path(request, captures) {
            return Err(ReviewImpossible::Unusable(RequestPart::Path));
        }
        let values = self.repeated_values(request, fields)?;
        let context = RenderContext { request, captures, verb: self.verb(request) };
        let rounds = values.as_ref().map_or(1, |(_, values)| values.len());
        let mut questions = Vec::with_capacity(rounds);
        for round in 0..rounds {
            let value = values.as_ref().map(|(part, values)| (*part, &values[round]));
            let attributes = self.attributes.try_map(|template| template.render(&context, value))?;
            questions.push(ReviewQuestion {
                user: user.clone(),
                groups: groups.clone(),
                extra: extra.clone(),
                uid,
                attributes,
            });
        }
        Ok(questions)
    }

    /// Whether all readings of the path give the questions the same values. Otherwise the service
    /// could read a path that was not asked about.
    fn reads_one_path(&self, request: &Canonical<'_>, captures: &Captures<'_>) -> bool {
        let others = request.other_readings();
        others.is_empty()
            || self.parts().all(|part| match part {
                Part::Capture(name) => {
                    others.iter().all(|path| captures.in_path(path).get(name) == captures.get(name))
                }
                // No reading is equal to another.
                Part::Path => false,
                Part::Text(_) | Part::Query(_) | Part::Header(_) | Part::Verb => true,
            })
    }

    /// The values of the one parameter or header that may be repeated.
    fn repeated_values<'q>(
        &'q self,
        request: &'q Canonical<'_>,
        fields: &'q [Field<'q>],
    ) -> Result<Option<Repeated<'q>>, ReviewImpossible> {
        let Some(part) = self.parts().find(|part| matches!(part, Part::Query(_) | Part::Header(_))) else {
            return Ok(None);
        };
        let (needed, values): (_, Vec<Cow<'q, str>>) = match part {
            Part::Query(name) => {
                if request.query_fault().is_some() {
                    return Err(ReviewImpossible::Unusable(RequestPart::Query));
                }
                let values = pairs(request.query()).filter(|(key, _)| key.decodes_to(name));
                (RequestPart::Query, values.map(|(_, value)| value.decode()).collect())
            }
            Part::Header(name) => {
                // Some servers take an alias for the field, and a field that `Connection` nominates
                // is not forwarded.
                let alias = |field: &Field<'_>| {
                    is_same_alias_class(field.name, name) && !field.name.eq_ignore_ascii_case(name)
                };
                if fields.iter().any(alias) || is_nominated(fields, name) {
                    return Err(ReviewImpossible::Unusable(RequestPart::Header));
                }
                let of = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
                let texts = of.map(|field| std::str::from_utf8(field.value).map(Cow::Borrowed));
                (
                    RequestPart::Header,
                    texts
                        .collect::<Result<_, _>>()
                        .map_err(|_| ReviewImpossible::Unusable(RequestPart::Header))?,
                )
            }
            _ => return Ok(None),
        };
        if values.is_empty() {
            return Err(ReviewImpossible::Missing(needed));
        }
        if values.len() > MAX_QUESTIONS {
            return Err(ReviewImpossible::TooMany);
        }
        for value in &values {
            if value.is_empty() {
                return Err(ReviewImpossible::Missing(needed));
            }
            if !is_kubernetes_name(value) {
                return Err(ReviewImpossible::Unusable(needed));
            }
        }
        Ok(Some((part, values)))
    }

    /// The Kubernetes verb for the request's method; `None` when there is none.
    fn verb(&self, request: &Canonical<'_>) -> Option<&'static str> {
        let resource = matches!(self.attributes, ReviewAttributes::Resource { .. });
        Some(match (request.method(), resource) {
            ("GET" | "HEAD", _) => "get",
            ("POST", true) => "create",
            ("PUT", true) => "update",
            ("POST", false) => "post",
            ("PUT", false) => "put",
            ("PATCH", _) => "patch",
            ("DELETE", _) => "delete",
            ("OPTIONS", false) => "options",
            _ => return None,
        })
    }
}

/// The parameter or header that may be repeated, and its values.
type Repeated<'q> = (&'q Part, Vec<Cow<'q, str>>);
/// Whether a text has only characters of Kubernetes names, so that every server reads it in the
/// same way.
fn is_kubernetes_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:@".contains(&byte);
    text.len() <= 253 && text.bytes().all(plain) && !matches!(text, "." | "..")
}

struct RenderContext<'s, 'q> {
    request: &'q Canonical<'q>,
    captures: &'s Captures<'q>,
    verb: Option<&'static str>,
}

impl Template {
    fn parse(text: &str, captures: &[String]) -> Result<Self, TemplateFault> {
        if text.is_empty() {
            return Err(TemplateFault::Empty);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            let braces = || TemplateFault::Braces(text.to_owned());
            if rest[open..].starts_with('}') {
                return Err(braces());
            }
            if open > 0 {
                parts.push(Part::Text(rest[..open].into()));
            }
            let (placeholder, behind) = rest[open + 1..].split_once('}').ok_or_else(braces)?;
            parts.push(Part::parse(placeholder, captures)?);
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.into()));
        }
        Ok(Self(parts.into()))
    }

    /// The text for a request; `value` is that of the parameter or header that may be repeated.
    fn render<'q>(
        &'q self,
        context: &RenderContext<'_, 'q>,
        value: Option<(&Part, &Cow<'q, str>)>,
    ) -> Result<Cow<'q, str>, ReviewImpossible> {
        let one = |part: &'q Part| -> Result<Cow<'q, str>, ReviewImpossible> {
            match part {
                Part::Text(text) => Ok(Cow::Borrowed(text)),
                Part::Capture(name) => {
                    let text = context.captures.get(name).filter(|text| !text.is_empty());
                    let text = text.ok_or(ReviewImpossible::Missing(RequestPart::Path))?;
                    if is_kubernetes_name(text) {
                        Ok(Cow::Borrowed(text))
                    } else {
                        Err(ReviewImpossible::Unusable(RequestPart::Path))
                    }
                }
                Part::Query(_) | Part::Header(_) => match value {
                    Some((of, value)) if of == part => Ok(value.clone()),
                    _ => Err(ReviewImpossible::Missing(RequestPart::Query)),
                },
                Part::Verb => context.verb.map(Cow::Borrowed).ok_or(ReviewImpossible::Method),
                Part::Path => Ok(Cow::Borrowed(context.request.path())),
            }
        };
        match &*self.0 {
            [part] => one(part),
            parts => {
                let mut text = String::new();
                for part in parts {
                    text.push_str(&one(part)?);
                }
                Ok(Cow::Owned(text))
            }
        }
    }
}

impl Part {
    fn parse(placeholder: &str, captures: &[String]) -> Result<Self, TemplateFault> {
        let unknown = || TemplateFault::Unknown(placeholder.to_owned());
        let named = |name: &str| if name.is_empty() { Err(unknown()) } else { Ok(Box::from(name)) };
        match placeholder.split_once('.') {
            None if placeholder == "method" => Ok(Self::Verb),
            None if placeholder == "path" => Ok(Self::Path),
            Some(("query", name)) => Ok(Self::Query(named(name)?)),
            Some(("header", name)) if crate::request::is_token(name) => Ok(Self::Header(named(name)?)),
            Some(("path", name)) if captures.iter().any(|capture| capture == name) => {
                Ok(Self::Capture(named(name)?))
            }
            Some(("path", name)) => Err(TemplateFault::NoCapture(name.to_owned())),
            _ => Err(unknown()),
        }
    }
}

impl<T> ReviewAttributes<T> {
    /// Every text that there may be, in a fixed order.
    pub fn texts(&self) -> [Option<&T>; 7] {
        match self {
            Self::Resource { namespace, verb, group, version, resource, subresource, name } => [
                namespace.as_ref(),
                Some(verb),
                group.as_ref(),
                version.as_ref(),
                Some(resource),
                subresource.as_ref(),
                name.as_ref(),
            ],
            Self::NonResource { path, verb } => [Some(path), Some(verb), None, None, None, None, None],
        }
    }

    /// The same attributes with each text mapped by `f`.
    pub fn try_map<'t, U, E>(
        &'t self,
        mut f: impl FnMut(&'t T) -> Result<U, E>,
    ) -> Result<ReviewAttributes<U>, E> {
        Ok(match self {
            Self::Resource { namespace, verb, group, version, resource, subresource, name } => {
                ReviewAttributes::Resource {
                    namespace: namespace.as_ref().map(&mut f).transpose()?,
                    verb: f(verb)?,
                    group: group.as_ref().map(&mut f).transpose()?,
                    version: version.as_ref().map(&mut f).transpose()?,
                    resource: f(resource)?,
                    subresource: subresource.as_ref().map(&mut f).transpose()?,
                    name: name.as_ref().map(&mut f).transpose()?,
                }
            }
            Self::NonResource { path, verb } => {
                ReviewAttributes::NonResource { path: f(path)?, verb: f(verb)? }
            }
        })
    }
}

impl ReviewQuestion<'_> {
    /// The same question, with owned texts.
    pub fn into_owned(self) -> OwnedReviewQuestion {
        let attributes =
            self.attributes.try_map(|text| Ok::<_, std::convert::Infallible>(Box::from(&**text)));
        let Ok(attributes) = attributes;
        OwnedReviewQuestion {
            user: self.user.into(),
            groups: self.groups.into_owned(),
            extra: self.extra.into_iter().map(|(key, values)| (key.into(), values.to_vec())).collect(),
            uid: self.uid.map(Into::into),
            attributes,
        }
    }
}

/// A [`ReviewQuestion`] that outlives its request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnedReviewQuestion {
    /// User name in the cluster.
    pub user: Box<str>,
    /// Groups of the user.
    pub groups: Vec<Box<str>>,
    /// Further attributes of the user.
    pub extra: Vec<(Box<str>, Vec<Box<str>>)>,
    /// Identifier of the user.
    pub uid: Option<Box<str>>,
    /// What the user wants to do.
    pub attributes: ReviewAttributes<Box<str>>,
}

impl OwnedReviewQuestion {
    /// The question in the form in which it is asked.
    pub fn borrowed(&self) -> ReviewQuestion<'_> {
        let attributes =
            self.attributes.try_map(|text| Ok::<_, std::convert::Infallible>(Cow::Borrowed(&**text)));
        let Ok(attributes) = attributes;
        ReviewQuestion {
            user: Cow::Borrowed(&self.user),
            groups: Cow::Borrowed(&self.groups),
            extra: self.extra.iter().map(|(key, values)| (&**key, &**values)).collect(),
            uid: self.uid.as_deref(),
            attributes,
        }
    }
}
