//! The Huffman code of HPACK (RFC 7541 §5.2 and appendix B), for decoding.
//!
//! Owns: decoding one string, strictly. It is made to be small, not fast: a connection decodes only a
//! string that it is about to remember ([`super::repeated_strings`]).

/// Length of each symbol's code in bits (RFC 7541 appendix B); the last is EOS. The code is canonical:
/// codes of one length are consecutive, in the order of their symbols, and those of the next length
/// follow. So the lengths determine the codes.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// Longest code in bits.
const MAX_LENGTH: usize = 30;
const EOS: u16 = 256;

/// The symbols ordered by their codes, and for each length of a code how many there are.
struct Code {
    symbols: [u16; LENGTHS.len()],
    counts: [u16; MAX_LENGTH + 1],
}

static CODE: Code = Code::new();

impl Code {
    #[allow(clippy::cast_possible_truncation, reason = "there are 257 symbols")]
    const fn new() -> Self {
        let mut code = Self { symbols: [0; LENGTHS.len()], counts: [0; MAX_LENGTH + 1] };
        let (mut length, mut at) = (1, 0);
        while length <= MAX_LENGTH {
            let mut symbol = 0;
            while symbol < LENGTHS.len() {
                if LENGTHS[symbol] as usize == length {
                    code.symbols[at] = symbol as u16;
                    code.counts[length] += 1;
                    at += 1;
                }
                symbol += 1;
            }
            length += 1;
        }
        code
    }
}

/// Decodes a string; `None`: it is invalid, or longer than `most` bytes.
pub(crate) fn decode(encoded: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    // The bits of the present code, the first code of that length, and the place of its symbol.
    let (mut bits, mut length, mut first, mut at) = (0u32, 0, 0u32, 0u32);
    for byte in encoded {
        for shift in (0..8).rev() {
            bits = bits << 1 | u32::from(byte >> shift & 1);
            length += 1;
            first <<= 1;
            let count = u32::from(*CODE.counts.get(length)?);
            match bits.checked_sub(first).filter(|index| *index < count) {
                Some(index) => {
                    let symbol = *CODE.symbols.get(usize::try_from(at + index).ok()?)?;
                    if symbol == EOS || decoded.len() == most {
                        return None;
                    }
                    decoded.push(u8::try_from(symbol).ok()?);
                    (bits, length, first, at) = (0, 0, 0, 0);
                }
                None => {
                    first += count;
                    at += count;
                }
            }
        }
    }
    // The padding is the beginning of EOS, less than a byte.
    (length < 8 && bits == (1 << length) - 1).then_some(decoded)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use super::*;

    static CODES: LazyLock<Vec<String>> = LazyLock::new(|| (0..=EOS).map(code_of).collect());

    /// Encodes a string.
    fn encode(string: &[u8]) -> Vec<u8> {
        let mut bits = String::new();
        for symbol in string {
            bits.push_str(&CODES[usize::from(*symbol)]);
        }
        while !bits.len().is_multiple_of(8) {
            bits.push('1');
        }
        bits.as_bytes().chunks(8).map(to_byte).collect()
    }

    /// A string literal (RFC 7541 §5.2), in Huffman code or as it is.
    pub(crate) fn string_literal(text: &[u8], is_encoded: bool) -> Vec<u8> {
        let (bytes, bit) = if is_encoded { (encode(text), 0x80) } else { (text.to_vec(), 0) };
        let mut out = Vec::new();
        match u8::try_from(bytes.len()).ok().filter(|length| *length < 0x7f) {
            Some(length) => out.push(bit | length),
            None => {
                out.push(bit | 0x7f);
                let mut rest = bytes.len() - 0x7f;
                while rest >= 0x80 {
                    out.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
                    rest >>= 7;
                }
                out.push(u8::try_from(rest).unwrap());
            }
        }
        out.extend(bytes);
        out
    }

    fn to_byte(bits: &[u8]) -> u8 {
        bits.iter().fold(0, |byte, bit| byte << 1 | (bit - b'0'))
    }

    /// The code of a symbol in bits, by the rule of RFC 1951 §3.2.2.
    fn code_of(symbol: u16) -> String {
        let length = LENGTHS[usize::from(symbol)];
        let before = |other: &u8| *other < length;
        let shorter: u64 = LENGTHS.iter().filter(|l| before(l)).map(|l| 1u64 << (length - l)).sum();
        let same: u64 = LENGTHS[..usize::from(symbol)].iter().map(|l| u64::from(*l == length)).sum();
        format!("{:0width$b}", shorter + same, width = usize::from(length))
    }

    #[test]
    fn codes_are_those_of_the_rfc() {
        for (symbol, code) in [
            (b'0', "00000"),
            (b't', "01001"),
            (b' ', "010100"),
            (b'X', "11111100"),
            (b'!', "1111111000"),
            (b'\\', "1111111111111110000"),
            (249, "1111111111111111111111111110"),
            (10, "111111111111111111111111111100"),
        ] {
            assert_eq!(code_of(symbol.into()), code, "{symbol}");
        }
        assert_eq!(code_of(EOS), "1".repeat(30));
        // RFC 7541 appendix C.4.1 and C.6.1.
        let examples: [(&[u8], &str); 3] = [
            (&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff], "www.example.com"),
            (&[0x64, 0x02], "302"),
            (&[0xae, 0xc3, 0x77, 0x1a, 0x4b], "private"),
        ];
        for (encoded, text) in examples {
            assert_eq!(decode(encoded, 100).unwrap(), text.as_bytes());
            assert_eq!(encode(text.as_bytes()), encoded);
        }
    }

    #[test]
    fn every_string_is_decoded_as_it_was_encoded() {
        let all: Vec<u8> = (0..=255).collect();
        for start in 0..256 {
            for length in [0, 1, 2, 3, 17, 256 - start] {
                let string = &all[start..(start + length).min(256)];
                let encoded = encode(string);
                assert_eq!(decode(&encoded, string.len()).as_deref(), Some(string));
                assert_eq!(decode(&encoded, string.len().wrapping_sub(1)).is_some(), string.is_empty());
            }
        }
    }

    #[test]
    fn invalid_padding_and_eos_are_refused() {
        for encoded in [
            &[0b0000_0000][..],              // '0', then zeros
            &[0b0000_0110],                  // '0', then not the beginning of EOS
            &[0b0000_0111, 0xff],            // '0', then eleven bits
            &[0xff],                         // eight bits
            &[0xff, 0xff, 0xff, 0xff],       // EOS
            &[0xff, 0xff, 0xff, 0xff, 0x00], // EOS, then more
        ] {
            assert_eq!(decode(encoded, 100), None, "{encoded:x?}");
        }
        assert_eq!(decode(&[0b0000_0111], 100).as_deref(), Some(&b"0"[..]));
        assert_eq!(decode(&[], 0).as_deref(), Some(&b""[..]));
    }
}
