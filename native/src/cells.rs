//! Cells: the text that the wire has, as the typed value that `changelog/cells/convert.py` makes of it.
//!
//! Only ordinary values. Whatever would not fit the type, or is no value of it, is `None`: Python says what becomes of it.

use crate::columns::Column;
use crate::identity::{pack_bytes, pack_float, pack_integer, pack_text};
use crate::json::{natural, unescape, Raw};
use crate::moments::{self, Zone};
use crate::texts::{base64, latin1, unquote, unquote_escaped};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ops::{Add, Mul};

/// How a cell is read, and what it becomes.
pub enum Kind {
    /// Of a column that the changelog leaves out.
    Skip,
    Integer {
        width: usize,
        low: i64,
        high: u64,
    },
    Float32,
    Float64,
    /// Unscaled, below `limit`.
    Decimal {
        limit: i128,
        scale: usize,
    },
    DecimalText,
    Date,
    Time,
    /// With at most so many characters; of the changefeed's zone where `zoned`.
    Moment {
        longest: usize,
        zoned: bool,
    },
    Text,
    /// Bytes, each as the character of its number.
    Latin1,
    /// Bytes as Go quotes them.
    Quoted,
    Base64,
    /// Base64 of UTF-8.
    Base64Text,
    Enum(Vec<String>),
    Set(Vec<String>),
}

/// What Python says of a kind: its name, a width or length, the lowest and highest integer or the digits, and names.
pub type KindSpec = (String, usize, i64, u64, Vec<String>);

impl Kind {
    pub fn new((name, size, low, high, names): KindSpec) -> PyResult<Self> {
        Ok(match name.as_str() {
            "skip" => Kind::Skip,
            "integer" => Kind::Integer { width: size, low, high },
            "float32" => Kind::Float32,
            "float64" => Kind::Float64,
            "decimal" => {
                let limit = u32::try_from(size).ok().and_then(|precision| 10i128.checked_pow(precision));
                let limit = limit.ok_or_else(|| PyValueError::new_err("no decimal has so many digits"))?;
                Kind::Decimal { limit, scale: high as usize }
            }
            "decimal_text" => Kind::DecimalText,
            "date" => Kind::Date,
            "time" => Kind::Time,
            "datetime" => Kind::Moment { longest: size, zoned: false },
            "timestamp" => Kind::Moment { longest: size, zoned: true },
            "text" => Kind::Text,
            "latin1" => Kind::Latin1,
            "quoted" => Kind::Quoted,
            "base64" => Kind::Base64,
            "base64_text" => Kind::Base64Text,
            "enum" => Kind::Enum(names),
            "set" => Kind::Set(names),
            _ => return Err(PyValueError::new_err(format!("no kind of cell: {name}"))),
        })
    }

    /// Bytes of a value in its column; 0 for any number of them.
    pub fn width(&self) -> usize {
        match self {
            Kind::Integer { width, .. } => *width,
            Kind::Float32 | Kind::Date => 4,
            Kind::Float64 | Kind::Time | Kind::Moment { .. } => 8,
            Kind::Decimal { .. } => 16,
            _ => 0,
        }
    }

    /// Whether Open Protocol writes it as a number of JSON.
    pub fn is_number(&self) -> bool {
        matches!(self, Kind::Integer { .. } | Kind::Float32 | Kind::Float64 | Kind::Enum(_) | Kind::Set(_))
    }

    /// Append the value of *raw* to *column*.
    pub fn put(&self, raw: Raw, column: &mut Column, zone: &mut Zone) -> Option<()> {
        if raw.escaped && !matches!(self, Kind::Text | Kind::Latin1 | Kind::Quoted) {
            return None;
        }
        let text = raw.bytes;
        match self {
            Kind::Skip => return None,
            Kind::Integer { width, low, high } => {
                let (negative, magnitude) = integer(text)?;
                let fits = if negative { magnitude <= low.unsigned_abs() && *low < 0 } else { magnitude <= *high };
                let value = if negative { magnitude.wrapping_neg() } else { magnitude };
                column.fixed(fits.then_some(&value.to_le_bytes()[..*width])?);
            }
            Kind::Float32 => {
                let value = real(text)? as f32;
                column.fixed(&value.is_finite().then_some(value)?.to_le_bytes());
            }
            Kind::Float64 => column.fixed(&real(text)?.to_le_bytes()),
            Kind::Decimal { limit, scale } => column.fixed(&decimal(text, *limit, *scale)?.to_le_bytes()),
            Kind::DecimalText => {
                is_decimal(text).then_some(())?;
                column.data.extend_from_slice(text);
                column.finish()?;
            }
            Kind::Date => column.fixed(&moments::date(text)?.to_le_bytes()),
            Kind::Time => column.fixed(&moments::time(text)?.to_le_bytes()),
            Kind::Moment { longest, zoned } => {
                let local = (text.len() <= *longest).then(|| moments::moment(text))??;
                let value = if *zoned { zone.utc(local)? } else { local };
                column.fixed(&value.to_le_bytes());
            }
            Kind::Text => {
                if raw.escaped {
                    unescape(text, &mut column.data)?;
                } else {
                    column.data.extend_from_slice(text);
                }
                column.finish()?;
            }
            Kind::Latin1 => {
                if raw.escaped {
                    column.spare.clear();
                    unescape(text, &mut column.spare)?;
                    latin1(&column.spare, &mut column.data)?;
                } else {
                    latin1(text, &mut column.data)?;
                }
                column.finish()?;
            }
            Kind::Quoted => {
                let start = column.data.len();
                if raw.escaped && unquote_escaped(text, &mut column.data).is_none() {
                    column.data.truncate(start);
                    column.spare.clear();
                    unescape(text, &mut column.spare)?;
                    unquote(&column.spare, &mut column.data)?;
                } else if !raw.escaped {
                    unquote(text, &mut column.data)?;
                }
                column.finish()?;
            }
            Kind::Base64 | Kind::Base64Text => {
                let start = column.data.len();
                base64(text, &mut column.data)?;
                if matches!(self, Kind::Base64Text) {
                    std::str::from_utf8(&column.data[start..]).ok()?;
                }
                column.finish()?;
            }
            Kind::Enum(names) => {
                let (_, number) = integer(text).filter(|(negative, _)| !negative)?;
                if number > 0 {
                    let name = names.get(usize::try_from(number).ok()? - 1)?;
                    column.data.extend_from_slice(name.as_bytes());
                } else if names.iter().any(String::is_empty) {
                    return None; // the text of that element
                }
                column.finish()?;
            }
            Kind::Set(names) => {
                let (_, mask) = integer(text).filter(|(negative, _)| !negative)?;
                (names.len() >= 64 || mask >> names.len() == 0).then_some(())?;
                let start = column.data.len();
                let mut members = 0;
                for (bit, name) in names.iter().enumerate() {
                    if mask >> bit & 1 == 1 {
                        if members > 0 {
                            column.data.push(b',');
                        }
                        column.data.extend_from_slice(name.as_bytes());
                        members += 1;
                    }
                }
                if members > 0 && column.data.len() == start {
                    return None; // the text of a set without members
                }
                column.finish()?;
            }
        }
        Some(())
    }

    /// Append, as MessagePack, the neutral form of *raw*, whose value was put into *column* last.
    pub fn pack(&self, raw: Raw, column: &Column, to: &mut Vec<u8>) -> Option<()> {
        match self {
            Kind::Skip => return None,
            Kind::Integer { .. } | Kind::Enum(_) | Kind::Set(_) => {
                let (negative, magnitude) = integer(raw.bytes)?;
                pack_integer(to, negative, magnitude);
            }
            Kind::Float32 | Kind::Float64 => pack_float(to, real(raw.bytes)?),
            Kind::Text | Kind::Base64Text => pack_text(to, column.last()),
            Kind::Latin1 | Kind::Quoted | Kind::Base64 => pack_bytes(to, column.last()),
            _ => pack_text(to, raw.bytes),
        }
        Some(())
    }
}

/// Whether it is below zero, and its magnitude; no leading zeros, no `-0`, no `+`.
fn integer(text: &[u8]) -> Option<(bool, u64)> {
    match text.strip_prefix(b"-") {
        Some(digits) => Some((true, natural(digits).filter(|magnitude| *magnitude > 0)?)),
        None => Some((false, natural(text)?)),
    }
}

/// A number without exponent. Not `-0`, nor long integers: parsers differ in how they make them.
fn real(text: &[u8]) -> Option<f64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits.split(|byte| *byte == b'.').next()?;
    natural(whole)?;
    if whole.len() == digits.len() {
        (digits.len() <= 15).then_some(())?;
    } else {
        let fraction = &digits[whole.len() + 1..];
        (!fraction.is_empty() && fraction.iter().all(u8::is_ascii_digit)).then_some(())?;
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (value.is_finite() && !(value == 0.0 && value.is_sign_negative())).then_some(value)
}

/// The unscaled value of a decimal, which must be below *limit*.
fn decimal(text: &[u8], limit: i128, scale: usize) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let point = digits.iter().position(|byte| *byte == b'.').unwrap_or(digits.len());
    let fraction = digits.get(point + 1..).unwrap_or_default();
    let ends_well = point == digits.len() || !fraction.is_empty();
    (ends_well && point > 0 && digits.len() <= 38 && fraction.len() <= scale).then_some(())?;
    let all = digits[..point].iter().chain(fraction);
    let mut value = if digits.len() < 20 { i128::from(number::<u64>(all)?) } else { number::<i128>(all)? };
    if fraction.len() < scale {
        value = value.checked_mul(10i128.checked_pow((scale - fraction.len()) as u32)?)?;
    }
    (value < limit).then_some(if negative { -value } else { value })
}

/// The number of *digits*, of which there are no more than fit.
fn number<'a, T>(mut digits: impl Iterator<Item = &'a u8>) -> Option<T>
where
    T: From<u8> + Add<Output = T> + Mul<Output = T>,
{
    digits.try_fold(T::from(0), |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit <= 9).then(|| number * T::from(10) + T::from(digit))
    })
}

/// Whether *text* is a decimal as MySQL writes it.
fn is_decimal(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let mut parts = digits.split(|byte| *byte == b'.');
    let whole = parts.next().is_some_and(|part| are_digits(part, 65));
    whole && parts.next().is_none_or(|part| are_digits(part, 30)) && parts.next().is_none()
}

fn are_digits(text: &[u8], most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.iter().all(u8::is_ascii_digit)
}
