//! Client certificates as a credential: converts X.509 names to the fields that a mapping reads.
//!
//! The TLS handshake has verified the chain, and its dates at that time. This module only extracts
//! names, and does so strictly: an unreadable name rejects the certificate. Otherwise, of two
//! names, the readable one alone would be used.

use std::borrow::Cow;
use std::fmt::Write as _;

use auth::identity::Facts;
use auth::mapping::{CertificateField, CertificateIdentity, CertificateMapping};
use auth::time::Timestamp;
use auth::token_error::ClaimError;
use x509_parser::asn1_rs::ToDer as _;
use x509_parser::oid_registry::{
    OID_DOMAIN_COMPONENT, OID_USERID, OID_X509_COMMON_NAME, OID_X509_COUNTRY_NAME, OID_X509_LOCALITY_NAME,
    OID_X509_ORGANIZATION_NAME, OID_X509_ORGANIZATIONAL_UNIT, OID_X509_STATE_OR_PROVINCE_NAME,
    OID_X509_STREET_ADDRESS, Oid,
};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Why a certificate with a valid chain is not accepted. The response is 401.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// Certificates are no credential in this configuration.
    #[error("client certificates are not configured as a credential")]
    NotConfigured,
    /// The bytes are not DER, or not X.509 version 3 of RFC 5280.
    #[error("the client certificate cannot be parsed")]
    Unparsable,
    /// A name has an unreadable encoding or form.
    #[error("the client certificate has an unreadable {0}")]
    UnreadableName(&'static str),
    /// The current time is outside its validity. Connections and resumed sessions may outlive
    /// certificates.
    #[error("the client certificate is expired or not yet valid")]
    NotValidNow,
    /// The mapping found no identity.
    #[error("the client certificate's {0}")]
    Mapping(#[from] ClaimError),
}

impl CertificateError {
    /// Stable code for logs and metrics.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotConfigured => "certificate_not_configured",
            Self::Unparsable => "certificate_unparsable",
            Self::UnreadableName(_) => "certificate_name",
            Self::NotValidNow => "certificate_expired",
            Self::Mapping(_) => "certificate_mapping",
        }
    }
}

/// The facts of an end-entity certificate, given in DER.
pub(super) fn facts(
    der: &[u8],
    mapping: &CertificateMapping,
    now: Timestamp,
) -> Result<Facts, CertificateError> {
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateError::Unparsable)?;
    if !rest.is_empty() {
        return Err(CertificateError::Unparsable);
    }
    let at = |seconds: i64| Timestamp::from_secs(u64::try_from(seconds).unwrap_or(0));
    let identity = CertificateIdentity {
        fields: fields(&certificate)?,
        not_before: at(certificate.validity().not_before.timestamp()),
        not_after: at(certificate.validity().not_after.timestamp()),
    };
    let facts = mapping.facts(&identity)?;
    if facts.valid_at(now) { Ok(facts) } else { Err(CertificateError::NotValidNow) }
}

type Field<'a> = (CertificateField, Cow<'a, str>);

fn fields<'a>(certificate: &'a X509Certificate<'_>) -> Result<Vec<Field<'a>>, CertificateError> {
    let mut fields = Vec::new();
    for attribute in certificate.subject().iter_attributes() {
        let field = match attribute.attr_type() {
            oid if *oid == OID_X509_COMMON_NAME => CertificateField::SubjectCn,
            oid if *oid == OID_X509_ORGANIZATION_NAME => CertificateField::SubjectO,
            oid if *oid == OID_X509_ORGANIZATIONAL_UNIT => CertificateField::SubjectOu,
            _ => continue,
        };
        let text = attribute.as_str().map_err(|_| CertificateError::UnreadableName("subject"))?;
        fields.push((field, text.into()));
    }
    for (field, name, label) in [
        (CertificateField::SubjectDn, certificate.subject(), "subject"),
        (CertificateField::IssuerDn, certificate.issuer(), "issuer"),
    ] {
        let spelling = rfc4514(name).ok_or(CertificateError::UnreadableName(label))?;
        fields.push((field, spelling.into()));
    }
    let names = certificate.subject_alternative_name().map_err(|_| CertificateError::Unparsable)?;
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        let field = match name {
            // Compared without case (RFC 5280 section 7.2); rules get one spelling.
            GeneralName::DNSName(name) => (CertificateField::SanDns, name.to_ascii_lowercase().into()),
            GeneralName::RFC822Name(name) => (CertificateField::SanEmail, (*name).into()),
            GeneralName::URI(name) => (CertificateField::SanUri, (*name).into()),
            GeneralName::Invalid(..) => return Err(CertificateError::UnreadableName("alternative name")),
            _ => continue,
        };
        fields.push(field);
    }
    Ok(fields)
}

/// A distinguished name as text (RFC 4514 section 2): last component first, special characters
/// escaped, so that a value cannot imitate another component. `None` when a value is not text.
fn rfc4514(name: &X509Name<'_>) -> Option<String> {
    let components: Vec<_> = name.iter_rdn().collect();
    let mut text = String::new();
    for (i, component) in components.into_iter().rev().enumerate() {
        for (j, attribute) in component.iter().enumerate() {
            text.push_str(match (i, j) {
                (0, 0) => "",
                (_, 0) => ",",
                _ => "+",
            });
            push_attribute(&mut text, attribute)?;
        }
    }
    Some(text)
}

fn push_attribute(text: &mut String, attribute: &AttributeTypeAndValue<'_>) -> Option<()> {
    let Some(name) = short_name(attribute.attr_type()) else {
        return push_encoded(text, attribute);
    };
    text.push_str(name);
    text.push('=');
    let value = attribute.as_str().ok()?;
    let last = value.len().saturating_sub(1);
    for (at, c) in value.char_indices() {
        match c {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', c]),
            '#' | ' ' if at == 0 => text.extend(['\\', c]),
            ' ' if at == last => text.extend(['\\', c]),
            c if c.is_control() => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    write!(text, "\\{byte:02X}").ok()?;
                }
            }
            c => text.push(c),
        }
    }
    Some(())
}

/// A type without a short name: dotted number, and the value's encoding in hexadecimal
/// (section 2.4).
fn push_encoded(text: &mut String, attribute: &AttributeTypeAndValue<'_>) -> Option<()> {
    let value = attribute.attr_value();
    let encoding = value.to_der_vec().ok()?;
    write!(text, "{}=#", attribute.attr_type().to_id_string()).ok()?;
    encoding.iter().try_for_each(|byte| write!(text, "{byte:02x}").ok())
}

/// The short name of an attribute type (RFC 4514 section 3).
fn short_name(oid: &Oid<'_>) -> Option<&'static str> {
    let table = [
        (OID_X509_COMMON_NAME, "CN"),
        (OID_X509_LOCALITY_NAME, "L"),
        (OID_X509_STATE_OR_PROVINCE_NAME, "ST"),
        (OID_X509_ORGANIZATION_NAME, "O"),
        (OID_X509_ORGANIZATIONAL_UNIT, "OU"),
        (OID_X509_COUNTRY_NAME, "C"),
        (OID_X509_STREET_ADDRESS, "STREET"),
        (OID_DOMAIN_COMPONENT, "DC"),
        (OID_USERID, "UID"),
    ];
    table.into_iter().find(|(known, _)| known == oid).map(|(_, name)| name)
}
