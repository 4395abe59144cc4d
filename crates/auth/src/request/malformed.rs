//! Malformed requests: why a request has no canonical form.

/// Why a request has no meaning that could be decided about. It is answered with
/// [`Malformed::status`]; nothing reaches an upstream. Some are faults only where a path must have
/// one reading ([`Canonical::strict_fault`](super::Canonical::strict_fault)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Malformed {
    /// The method is not a token (RFC 9110 §9.1), or is longer than
    /// [`MAX_METHOD`](super::MAX_METHOD).
    #[error("the method is not a token of at most 32 characters")]
    Method,
    /// The method is `CONNECT` or `TRACE`.
    #[error("the method is not served: CONNECT and TRACE are refused")]
    MethodRefused,
    /// The method has a lower-case letter. Methods are case-sensitive (RFC 9110 §9.1), and all
    /// registered ones are in upper case. Some servers convert others to upper case, and would
    /// serve a method that no rule has checked.
    #[error("the method is not in upper case")]
    MethodCase,
    /// The request has neither an authority nor a `Host` field (RFC 9112 §3.2).
    #[error("the request names no host")]
    HostMissing,
    /// Authority and `Host` name two different hosts (RFC 9113 §8.3.1).
    #[error("the authority of the target and the host field differ")]
    HostMismatch,
    /// The host is empty, or one of its labels is (RFC 9110 §4.2.1).
    #[error("the host or one of its labels is empty")]
    HostEmpty,
    /// The host is longer than 253 bytes, or one of its labels is longer than 63.
    #[error("the host is longer than 253 bytes or has a label longer than 63")]
    HostTooLong,
    /// The host is neither a name nor an IP literal, or its internationalised label is invalid (UTS
    /// 46).
    #[error("the host is neither a name nor an address")]
    Host,
    /// The authority has user information (RFC 9110 §4.2.4).
    #[error("the authority carries user information")]
    UserInfo,
    /// The port is not a number between 1 and 65535.
    #[error("the port is not a number between 1 and 65535")]
    Port,
    /// The target is longer than [`MAX_TARGET`](super::MAX_TARGET).
    #[error("the target is longer than 8192 bytes")]
    TargetTooLong,
    /// The target does not begin with `/`, or a new path carries a query.
    #[error("the target is not in origin form: it must begin with /")]
    TargetForm,
    /// The target begins with `//`, which reads as an authority (RFC 3986 §3.3).
    #[error("the target begins with //, which reads as an authority")]
    AuthorityTarget,
    /// The target is `*`, and the method is not `OPTIONS` (RFC 9112 §3.2.4).
    #[error("the target * is valid for OPTIONS only")]
    AsteriskMethod,
    /// The target has a raw `#`: fragments are never sent (RFC 9110 §7.1).
    #[error("the target holds a fragment")]
    Fragment,
    /// The target has a raw backslash, which some servers read as `/`.
    #[error("the target holds a backslash")]
    Backslash,
    /// The target has a raw space or control character.
    #[error("the target holds a space or a control character")]
    Control,
    /// The target has a raw byte outside ASCII.
    #[error("the target has a byte outside ASCII: it must be percent-encoded")]
    NonAscii,
    /// The target has a `%` that is not followed by two hexadecimal digits.
    #[error("a percent sign is not followed by two hexadecimal digits")]
    BadEscape,
    /// The path has an escape of a control character; of `/ \ ; ? #`, where it must have one
    /// reading. Or the query has an escape of NUL.
    #[error("a percent escape hides a delimiter or a control character")]
    ForbiddenEscape,
    /// The target has escapes that do not decode to UTF-8.
    #[error("the percent escapes do not decode to utf-8")]
    InvalidUtf8,
    /// A reading of the path has a `..` segment that leads above the root, or a dot segment is
    /// escaped (`%2e`). Where the path must have one reading: any dot segment, without regard to
    /// parameters (`..;a=b`).
    #[error("the path holds a dot segment")]
    DotSegment,
    /// The path must have one reading, and has an empty segment that is not the last one: `/a//b`,
    /// `/a/;b/c`.
    #[error("the path holds an empty segment")]
    EmptySegment,
    /// The path has an escape that, decoded again, hides a control character. Where it must have one
    /// reading: also a delimiter or a dot segment, or escapes that are nested more than three deep.
    #[error("the path is percent-encoded more than once and hides a delimiter or a dot segment")]
    NestedEscape,
    /// Servers could read the path in more ways than are checked.
    #[error("the path has more than 32 readings, or more than 64 KiB of them")]
    Readings,
    /// The path is below the prefix that is to be replaced in some of its readings only.
    #[error("servers disagree on where the prefix of the path ends")]
    PrefixReadings,
}

impl Malformed {
    /// Status code of the response: 414 for a target that is too long, otherwise 400.
    pub const fn status(self) -> u16 {
        if matches!(self, Self::TargetTooLong) { 414 } else { 400 }
    }

    /// A stable identifier for logs and metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::MethodRefused => "method_refused",
            Self::MethodCase => "method_case",
            Self::HostMissing => "host_missing",
            Self::HostMismatch => "host_mismatch",
            Self::HostEmpty => "host_empty",
            Self::HostTooLong => "host_too_long",
            Self::Host => "host",
            Self::UserInfo => "user_info",
            Self::Port => "port",
            Self::TargetTooLong => "target_too_long",
            Self::TargetForm => "target_form",
            Self::AuthorityTarget => "authority_target",
            Self::AsteriskMethod => "asterisk_method",
            Self::Fragment => "fragment",
            Self::Backslash => "backslash",
            Self::Control => "control",
            Self::NonAscii => "non_ascii",
            Self::BadEscape => "bad_escape",
            Self::ForbiddenEscape => "forbidden_escape",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::DotSegment => "dot_segment",
            Self::EmptySegment => "empty_segment",
            Self::NestedEscape => "nested_escape",
            Self::Readings => "readings",
            Self::PrefixReadings => "prefix_readings",
        }
    }
}
