//! PEM form of a private key (RFC 7468 §10): one `PRIVATE KEY` block, nothing else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";
/// Characters of a line (RFC 7468 §2).
const LINE: usize = 64;

/// Encodes `der` as PEM.
pub(super) fn encode(der: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut body = Zeroizing::new(vec![0; der.len().div_ceil(3) * 4]);
    let length = STANDARD.encode_slice(der, &mut body).unwrap_or_default();
    let mut pem = Zeroizing::new(Vec::with_capacity(length + length / LINE + BEGIN.len() + END.len() + 4));
    pem.extend_from_slice(BEGIN.as_bytes());
    pem.push(b'\n');
    for line in body[..length].chunks(LINE) {
        pem.extend_from_slice(line);
        pem.push(b'\n');
    }
    pem.extend_from_slice(END.as_bytes());
    pem.push(b'\n');
    pem
}

/// The bytes in the PEM block; `None` when the text is not exactly one block.
pub(super) fn decode(pem: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let text = std::str::from_utf8(pem).ok()?.trim();
    let body = text.strip_prefix(BEGIN)?.strip_suffix(END)?;
    let body: Zeroizing<Vec<u8>> =
        Zeroizing::new(body.bytes().filter(|b| !b.is_ascii_whitespace()).collect());
    STANDARD.decode(&*body).ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn armour_goes_on_and_off() {
        for length in [0, 1, 47, 48, 49, 150] {
            let der: Vec<u8> = (0..length).collect();
            let pem = encode(&der);
            assert_eq!(decode(&pem).unwrap().as_slice(), der, "{length}");
            assert!(pem.split(|b| *b == b'\n').all(|line| line.len() <= LINE));
        }
        let crlf = String::from_utf8(encode(b"abc").to_vec()).unwrap().replace('\n', "\r\n");
        assert_eq!(decode(crlf.as_bytes()).unwrap().as_slice(), b"abc");
    }

    #[test]
    fn anything_but_one_block_is_refused() {
        let block = String::from_utf8(encode(b"abc").to_vec()).unwrap();
        for text in [
            String::new(),
            format!("{block}{block}"),
            format!("subject: x\n{block}"),
            block.replace("PRIVATE KEY", "RSA PRIVATE KEY"),
            block.replace("YWJj", "YW*j"),
            block.replace("END", "BEGIN"),
        ] {
            assert!(decode(text.as_bytes()).is_none(), "{text}");
        }
    }
}
