//! Just enough JSON: what TiCDC writes, byte for byte. Anything else is `None`, and Python's to read.

/// A text between its quotes, as it stands in the bytes.
#[derive(Clone, Copy)]
pub struct Raw<'a> {
    pub bytes: &'a [u8],
    pub escaped: bool,
}

/// Reads bytes from the front. The bytes must be UTF-8 without control characters, see `is_plain`.
pub struct Scanner<'a> {
    bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Scanner<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Scanner { bytes, at }
    }

    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub fn comes(&self, expected: &[u8]) -> bool {
        self.bytes[self.at..].starts_with(expected)
    }

    /// The next 16 bytes as a number, zeros where there are fewer.
    pub fn word(&self) -> u128 {
        let rest = &self.bytes[self.at..];
        match rest.first_chunk() {
            Some(bytes) => u128::from_le_bytes(*bytes),
            None => rest.iter().rev().fold(0, |word, byte| word << 8 | u128::from(*byte)),
        }
    }

    /// The bytes from *start* to here.
    pub fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.at]
    }

    pub fn eat(&mut self, expected: &[u8]) -> Option<()> {
        self.try_eat(expected).then_some(())
    }

    pub fn try_eat(&mut self, expected: &[u8]) -> bool {
        let found = self.comes(expected);
        if found {
            self.at += expected.len();
        }
        found
    }

    /// The text that begins with the quote here.
    pub fn text(&mut self) -> Option<Raw<'a>> {
        self.eat(b"\"")?;
        let start = self.at;
        let mut escaped = false;
        loop {
            let found = find([b'"', b'\\'], &self.bytes[self.at..])?;
            self.at += found;
            if self.bytes[self.at] == b'"' {
                let bytes = &self.bytes[start..self.at];
                self.at += 1;
                return Some(Raw { bytes, escaped });
            }
            escaped = true;
            self.at += 2;
            if self.at > self.bytes.len() {
                return None;
            }
        }
    }

    /// A number without fraction or exponent, as it stands; no leading zeros, and no minus before a zero.
    pub fn integer(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.try_eat(b"-");
        let digits = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        let found = &self.bytes[start..self.at];
        let plain = self.at > digits && (self.bytes[digits] != b'0' || found == b"0");
        plain.then_some(found)
    }

    /// A number with or without fraction, as it stands; no exponent, no leading zeros, and no `-0` without fraction.
    pub fn number(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        if self.integer().is_none() && &self.bytes[start..self.at] != b"-0" {
            return None;
        }
        let whole = self.at;
        if self.try_eat(b".") {
            self.digits()?;
        }
        let found = &self.bytes[start..self.at];
        let ends = !matches!(self.peek(), Some(b'e' | b'E'));
        (ends && (self.at > whole || found != b"-0")).then_some(found)
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

/// Where the first of *wanted* is. Eight bytes at a time: most texts are short, for which a call of `memchr` costs more.
pub fn find<const N: usize>(wanted: [u8; N], bytes: &[u8]) -> Option<usize> {
    const SHORT: usize = 64;
    match wanted[..] {
        [one, other] if bytes.len() > SHORT => find_soon(wanted, &bytes[..SHORT])
            .or_else(|| memchr::memchr2(one, other, &bytes[SHORT..]).map(|at| SHORT + at)),
        _ => find_soon(wanted, bytes),
    }
}

fn find_soon<const N: usize>(wanted: [u8; N], bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let mut chunks = bytes.chunks_exact(8);
    for (number, chunk) in chunks.by_ref().enumerate() {
        let word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        let mut found = 0;
        for byte in wanted {
            // A byte that is zero here sets its highest bit; what stands above it may be set by mistake.
            let other = word ^ (ONES * u64::from(byte));
            found |= other.wrapping_sub(ONES) & !other & TOPS;
        }
        if found != 0 {
            return Some(number * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let rest = chunks.remainder();
    rest.iter().position(|byte| wanted.contains(byte)).map(|at| bytes.len() - rest.len() + at)
}

/// Whether *bytes* are UTF-8 without control characters, so that no text in it needs a closer look.
pub fn is_plain(bytes: &[u8]) -> bool {
    // Without a branch per byte, so that it is done many bytes at a time.
    let lowest = bytes.iter().fold(u8::MAX, |lowest, byte| lowest.min(*byte));
    lowest >= b' ' && simdutf8::basic::from_utf8(bytes).is_ok()
}

/// A number of ASCII digits alone, without leading zeros.
pub fn natural(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 20 || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    let mut number: u64 = 0;
    if digits.len() < 20 {
        for digit in digits {
            let value = digit.wrapping_sub(b'0');
            if value > 9 {
                return None;
            }
            number = number * 10 + u64::from(value);
        }
        return Some(number);
    }
    for digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(value))?;
    }
    Some(number)
}

/// Append what *raw* means to *to*. `None` for a surrogate, and for `\ufffd`: TiCDC writes it where bytes were lost.
pub fn unescape(raw: &[u8], to: &mut Vec<u8>) -> Option<()> {
    let mut rest = raw;
    while let Some(at) = find([b'\\'], rest) {
        to.extend_from_slice(&rest[..at]);
        let letter = *rest.get(at + 1)?;
        rest = &rest[at + 2..];
        let byte = match letter {
            b'"' | b'\\' | b'/' => letter,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let code = hex(rest.get(..4)?)?;
                rest = &rest[4..];
                let char = char::from_u32(code).filter(|char| *char != '\u{fffd}')?;
                to.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return None,
        };
        to.push(byte);
    }
    to.extend_from_slice(rest);
    Some(())
}

/// The value of each hexadecimal digit, 16 of what is none.
const HEX: [u8; 256] = {
    let mut values = [16; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value] as usize] = value as u8;
        values[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    values
};

/// The number of hexadecimal *digits*, of which there are at most eight.
pub fn hex(digits: &[u8]) -> Option<u32> {
    let (number, beyond) = digits.iter().fold((0u32, 0), |(number, beyond), digit| {
        let value = HEX[usize::from(*digit)];
        (number << 4 | u32::from(value & 15), beyond | value)
    });
    (beyond < 16).then_some(number)
}
