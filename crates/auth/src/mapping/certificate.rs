//! Client certificates: which of their fields identify the caller.
//!
//! The input is a certificate whose chain has been verified and whose fields have been extracted
//! already. The code that terminates TLS parses X.509.

use std::borrow::Cow;

use super::{MAX_VALUES, check_email, check_text};
use crate::identity::{CredentialKind, Facts, Identity};
use crate::time::Timestamp;
use crate::token_error::{ClaimError, ClaimFault};

/// A part of a certificate that identifies its holder or its issuer (RFC 5280 §4.1.2, §4.2.1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CertificateField {
    /// The whole issuer, in the spelling of RFC 4514.
    IssuerDn,
    /// A `dNSName` alternative name.
    SanDns,
    /// An `rfc822Name` alternative name.
    SanEmail,
    /// A `uniformResourceIdentifier` alternative name; a SPIFFE ID is one.
    SanUri,
    /// A common name of the subject.
    SubjectCn,
    /// The whole subject, in the spelling of RFC 4514.
    SubjectDn,
    /// An organization of the subject.
    SubjectO,
    /// An organizational unit of the subject.
    SubjectOu,
}

impl CertificateField {
    /// Every field, sorted by name.
    pub const ALL: [Self; 8] = [
        Self::IssuerDn,
        Self::SanDns,
        Self::SanEmail,
        Self::SanUri,
        Self::SubjectCn,
        Self::SubjectDn,
        Self::SubjectO,
        Self::SubjectOu,
    ];

    /// The name in configurations and in [`Identity::claims`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IssuerDn => "issuer_dn",
            Self::SanDns => "san_dns",
            Self::SanEmail => "san_email",
            Self::SanUri => "san_uri",
            Self::SubjectCn => "subject_cn",
            Self::SubjectDn => "subject_dn",
            Self::SubjectO => "subject_o",
            Self::SubjectOu => "subject_ou",
        }
    }

    /// The field with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.as_str() == name)
    }
}

/// Fields and validity of a verified client certificate.
#[derive(Debug, Clone)]
pub struct CertificateIdentity<'a> {
    /// Its fields, in certificate order; a field may occur several times.
    pub fields: Vec<(CertificateField, Cow<'a, str>)>,
    /// Start of the validity.
    pub not_before: Timestamp,
    /// End of the validity; from this time on the certificate counts as expired.
    pub not_after: Timestamp,
}

/// How certificates of one authority become identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateMapping {
    name: Box<str>,
    subject: CertificateField,
    user: Option<CertificateField>,
    groups: Vec<CertificateField>,
    keep: Vec<CertificateField>,
}

/// Why a [`CertificateMapping`] was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateMappingError {
    /// The name is empty.
    #[error("certificate authority has no name")]
    NoName,
    /// Many holders have the same value of this field.
    #[error("`{0}` does not identify a holder; use san_uri, san_dns, san_email, subject_cn or subject_dn")]
    NotASubject(&'static str),
}

impl CertificateMapping {
    /// Creates a mapping in which `subject` identifies the holder. `name` is the authority's name
    /// in rules and metrics.
    pub fn new(name: &str, subject: CertificateField) -> Result<Self, CertificateMappingError> {
        if name.is_empty() {
            return Err(CertificateMappingError::NoName);
        }
        if let CertificateField::IssuerDn | CertificateField::SubjectO | CertificateField::SubjectOu = subject
        {
            return Err(CertificateMappingError::NotASubject(subject.as_str()));
        }
        Ok(Self { name: name.into(), subject, user: None, groups: Vec::new(), keep: Vec::new() })
    }

    /// Takes the user name from `field`, if the certificate has it.
    #[must_use]
    pub fn with_user(mut self, field: CertificateField) -> Self {
        self.user = Some(field);
        self
    }

    /// Takes groups from the values of `fields`: Kubernetes uses `subject_o`.
    #[must_use]
    pub fn with_groups(mut self, fields: Vec<CertificateField>) -> Self {
        self.groups = fields;
        self
    }

    /// Keeps the values of `fields` for rules and headers, as claims with the field's name.
    #[must_use]
    pub fn with_kept(mut self, mut fields: Vec<CertificateField>) -> Self {
        // Sorted by name, which is the order of `Identity::claims`.
        fields.sort_unstable();
        fields.dedup();
        self.keep = fields;
        self
    }

    /// The identity of the holder, and the validity of the certificate.
    ///
    /// The subject must be present exactly once: with two names, an attacker could choose which one
    /// counts. The e-mail address is `san_email`, if the certificate has exactly one.
    pub fn facts(&self, certificate: &CertificateIdentity<'_>) -> Result<Facts, ClaimError> {
        let single = |field| certificate.single(field);
        let subject = single(self.subject)?
            .ok_or_else(|| ClaimError::new(self.subject.as_str(), ClaimFault::Missing))?
            .into();
        let user = self.user.map(single).transpose()?.flatten().map(Into::into);
        let mut emails = certificate.values(CertificateField::SanEmail);
        let email = match (emails.next(), emails.next()) {
            (Some(email), None) => Some(check_email(CertificateField::SanEmail.as_str(), email)?),
            _ => None,
        };
        let mut groups = Vec::new();
        for field in &self.groups {
            certificate.collect(*field, &mut groups)?;
        }
        let mut claims = Vec::with_capacity(self.keep.len());
        for field in &self.keep {
            let mut values = Vec::new();
            certificate.collect(*field, &mut values)?;
            if !values.is_empty() {
                claims.push((field.as_str().into(), values));
            }
        }
        let identity = Identity {
            kind: CredentialKind::Certificate,
            issuer: self.name.clone(),
            subject,
            user,
            email,
            client: None,
            groups,
            groups_elsewhere: false,
            scopes: Vec::new(),
            claims,
        };
        Ok(Facts { identity, expires: certificate.not_after, not_before: certificate.not_before })
    }
}

impl CertificateIdentity<'_> {
    fn values(&self, field: CertificateField) -> impl Iterator<Item = &str> {
        self.fields.iter().filter(move |(f, _)| *f == field).map(|(_, value)| value.as_ref())
    }

    /// The only value of `field`; `None` when there is none.
    fn single(&self, field: CertificateField) -> Result<Option<&str>, ClaimError> {
        let mut values = self.values(field);
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => check_text(field.as_str(), value),
            (Some(_), Some(_)) => Err(ClaimError::new(field.as_str(), ClaimFault::Ambiguous)),
        }
    }

    /// Adds the values of `field` to `list`, without duplicates.
    fn collect(&self, field: CertificateField, list: &mut Vec<Box<str>>) -> Result<(), ClaimError> {
        for value in self.values(field) {
            match check_text(field.as_str(), value)? {
                Some(value) if !list.iter().any(|known| **known == *value) => {
                    if list.len() == MAX_VALUES {
                        return Err(ClaimError::new(field.as_str(), ClaimFault::TooMany));
                    }
                    list.push(value.into());
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_sort_like_their_names() {
        let names = CertificateField::ALL.map(CertificateField::as_str);
        assert!(names.is_sorted());
        assert!(CertificateField::ALL.is_sorted());
        for field in CertificateField::ALL {
            assert_eq!(CertificateField::from_name(field.as_str()), Some(field));
        }
        assert_eq!(CertificateField::from_name("subject"), None);
    }
}
