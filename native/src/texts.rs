//! How the two protocols write bytes as text.

use crate::json::{find, hex};

/// Append the bytes whose numbers are those of the characters of *text*, which is UTF-8.
pub fn latin1(text: &[u8], to: &mut Vec<u8>) -> Option<()> {
    let start = to.len();
    to.resize(start + text.len(), 0);
    let (mut at, mut high, mut beyond) = (start, 0, false);
    // Without branches: of random bytes half take two, and no processor can tell which.
    for byte in text {
        let leads = *byte >= 0xc0;
        let follows = byte & 0xc0 == 0x80;
        beyond |= leads & (byte & 0xfe != 0xc2);
        to[at] = if follows { high | byte & 0x3f } else { *byte };
        high = byte << 6;
        at += usize::from(!leads);
    }
    to.truncate(at);
    (!beyond).then_some(())
}

/// Append the bytes that Go's `strconv.Quote` wrote as *text*, the surrounding quotes left out.
pub fn unquote(text: &[u8], to: &mut Vec<u8>) -> Option<()> {
    let mut rest = text;
    while let Some(at) = find([b'\\', b'"', b'\n'], rest) {
        to.extend_from_slice(&rest[..at]);
        if rest[at] != b'\\' {
            return None;
        }
        let letter = *rest.get(at + 1)?;
        rest = &rest[at + 2..];
        let digits = match letter {
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            _ => 0,
        };
        let code = if digits > 0 { hex(rest.get(..digits)?)? } else { 0 };
        rest = &rest[digits..];
        match letter {
            b'x' => to.push(code as u8),
            b'u' | b'U' => to.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes()),
            b'a' => to.push(7),
            b'b' => to.push(8),
            b'f' => to.push(12),
            b'n' => to.push(b'\n'),
            b'r' => to.push(b'\r'),
            b't' => to.push(b'\t'),
            b'v' => to.push(11),
            b'\\' | b'"' => to.push(letter),
            _ => return None,
        }
    }
    to.extend_from_slice(rest);
    Some(())
}

/// As `unquote` of what *raw* means in JSON, in one go. None also for all but the escapes that most bytes have.
pub fn unquote_escaped(raw: &[u8], to: &mut Vec<u8>) -> Option<()> {
    let mut rest = raw;
    while let Some(at) = find([b'\\'], rest) {
        to.extend_from_slice(&rest[..at]);
        let (byte, after) = match &rest[at..] {
            [b'\\', b'\\', b'x', high, low, after @ ..] => (hex(&[*high, *low])? as u8, after),
            [b'\\', b'\\', b'n', after @ ..] => (b'\n', after),
            [b'\\', b'\\', b'r', after @ ..] => (b'\r', after),
            [b'\\', b'\\', b't', after @ ..] => (b'\t', after),
            [b'\\', b'u', b'0', b'0', b'3', b'c', after @ ..] => (b'<', after),
            [b'\\', b'u', b'0', b'0', b'3', b'e', after @ ..] => (b'>', after),
            [b'\\', b'u', b'0', b'0', b'2', b'6', after @ ..] => (b'&', after),
            _ => return None,
        };
        to.push(byte);
        rest = after;
    }
    to.extend_from_slice(rest);
    Some(())
}

/// Append the bytes that *text* is the base64 of, padded as it has to be. On None `to` may hold some of them.
pub fn base64(text: &[u8], to: &mut Vec<u8>) -> Option<()> {
    base64_simd::STANDARD.decode_append(text, to).ok()
}
