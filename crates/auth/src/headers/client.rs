//! Client field names: recognizes fields that describe the client's address or certificate.
//!
//! Every proxy, CDN and TLS terminator has its own names for these (`CF-Connecting-IP`,
//! `X-Client-S-DN`, `Cert-Subject`), and services trust the names that they were written for. A
//! list of such names is never complete. So the parts of a name decide, which separators divide:
//!
//! * the last of several parts is `ip`, `ipv4`, `ipv6`, `clientip` or `socketip`;
//! * a part is `cert` or `certificate`, or either with `client` directly before it;
//! * a part is `client`, and another one `dn`, `cn`, `verify` or `serial`.
//!
//! `X-Client-Id`, `X-Client-Version` and similar names have no such meaning, and pass.

use super::alias_class;

/// Besides `client`, these parts show that a field describes a certificate.
const CERTIFICATE_PARTS: [&str; 4] = ["dn", "cn", "verify", "serial"];

/// Whether a field of this name describes the client's address or certificate. Called for every
/// field of every request.
pub(super) fn describes_client(name: &[u8]) -> bool {
    ends_in_ip(name) || contains_cert_or_client(name) && describes_certificate(name)
}

/// The last byte rules out most names.
fn ends_in_ip(name: &[u8]) -> bool {
    let words: &[&[u8]] = match name {
        [.., b'i' | b'I', b'p' | b'P'] => &[b"ip", b"clientip", b"socketip"],
        [.., b'v' | b'V', b'4' | b'6'] => &[b"ipv4", b"ipv6"],
        _ => return false,
    };
    words.iter().any(|word| {
        let (before, last) = name.split_at(name.len().saturating_sub(word.len()));
        last.eq_ignore_ascii_case(word)
            && matches!(before, [_, .., separator] if alias_class(*separator) == b'-')
    })
}

fn describes_certificate(name: &[u8]) -> bool {
    let has = |word: &str| {
        let mut parts = name.split(|&byte| alias_class(byte) == b'-');
        parts.any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
    };
    ["cert", "clientcert", "certificate", "clientcertificate"].iter().any(|word| has(word))
        || has("client") && CERTIFICATE_PARTS.iter().any(|word| has(word))
}

/// Whether `cert` or the beginning of `client` is anywhere in a name. A search for the letter `c`,
/// eight bytes at a time, rules out most names.
fn contains_cert_or_client(name: &[u8]) -> bool {
    const EACH: u64 = u64::MAX / 255;
    let is_word = |at: usize| {
        let word = name.get(at..).and_then(<[u8]>::first_chunk::<4>);
        word.is_some_and(|word| word.eq_ignore_ascii_case(b"cert") || word.eq_ignore_ascii_case(b"clie"))
    };
    let (eights, rest) = name.as_chunks::<8>();
    for (index, eight) in eights.iter().enumerate() {
        // A byte that is `c` in either case becomes zero, and only a zero byte borrows from its own
        // high bit. The byte after one may borrow as well, which only costs a comparison.
        let differs = (u64::from_le_bytes(*eight) | (EACH * 0x20)) ^ (EACH * u64::from(b'c'));
        let mut found = differs.wrapping_sub(EACH) & !differs & (EACH * 0x80);
        while found != 0 {
            if is_word(index * 8 + found.trailing_zeros() as usize / 8) {
                return true;
            }
            found &= found - 1;
        }
    }
    let first = name.len() - rest.len();
    rest.iter().enumerate().any(|(at, byte)| byte | 0x20 == b'c' && is_word(first + at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_found_wherever_they_stand() {
        for word in ["cert", "CERT", "client", "Clie"] {
            for before in 0..20 {
                for after in 0..10 {
                    let name = format!("{}{word}{}", "c".repeat(before), "x".repeat(after));
                    assert!(contains_cert_or_client(name.as_bytes()), "{name}");
                }
            }
        }
        for name in [
            "",
            "c",
            "cer",
            "accept",
            "cookie",
            "cache-control",
            "x-csrf-token",
            "sec-ch-ua",
            "CCCCCCCCCCCCCCC",
        ] {
            assert!(!contains_cert_or_client(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn an_address_is_told_by_the_last_of_several_parts() {
        for (name, is) in [
            ("x-ip", true),
            ("X_Ip", true),
            ("X-Azure-ClientIP", true),
            ("x.socketip", true),
            ("CF-Connecting-IPv6", true),
            ("x_ipv4", true),
            ("-ip", false),
            ("-ipv4", false),
            ("-clientip", false),
            ("ip", false),
            ("ipv6", false),
            ("ship", false),
            ("x-trip", false),
            ("x-ipv5", false),
            ("x-div4", false),
            ("x-otherclientip", false),
            ("p", false),
        ] {
            assert_eq!(ends_in_ip(name.as_bytes()), is, "{name}");
        }
    }
}
