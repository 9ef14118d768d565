//! Dates and times as MySQL writes them, as numbers. Only dates that the calendar has, from the year 1 on.

use pyo3::prelude::*;
use std::collections::HashMap;

const DAY: i64 = 86_400_000_000;

/// Offsets of local times from UTC, by local day, as Python finds them.
pub struct Zone {
    ask: Py<PyAny>,
    known: HashMap<i64, Option<i64>>,
    last: Option<(i64, i64)>,
}

impl Zone {
    /// *ask* tells, for a local day since 1970, by how many microseconds local time is ahead of UTC throughout that day, or None.
    pub fn new(ask: Py<PyAny>) -> Self {
        Zone { ask, known: HashMap::new(), last: None }
    }

    /// Microseconds since 1970 in UTC; None on days on which clocks are changed.
    pub fn utc(&mut self, local: i64) -> Option<i64> {
        let day = local.div_euclid(DAY);
        if let Some((known, offset)) = self.last {
            if known == day {
                return Some(local - offset);
            }
        }
        let offset = match self.known.get(&day) {
            Some(found) => *found,
            None => {
                let found = Python::attach(|py| self.ask.call1(py, (day,))?.extract(py)).ok()?;
                self.known.insert(day, found);
                found
            }
        }?;
        self.last = Some((day, offset));
        Some(local - offset)
    }
}

/// Days since 1970 of `YYYY-MM-DD`.
pub fn date(text: &[u8]) -> Option<i32> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *text else {
        return None;
    };
    let year = two(y1, y2)? * 100 + two(y3, y4)?;
    let (month, day) = (two(m1, m2)?, two(d1, d2)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year == 0 || day == 0 || day > days {
        return None;
    }
    // Years that begin in March, so that the leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    Some(before + (month * 153 + 2) / 5 + day - 1 - 719_468)
}

/// Microseconds since 1970 of `YYYY-MM-DD hh:mm:ss` with up to six fraction digits.
pub fn moment(text: &[u8]) -> Option<i64> {
    let (day, clock) = text.split_at_checked(10)?;
    let clock = clock.strip_prefix(b" ")?;
    let hours = two(*clock.first()?, *clock.get(1)?).filter(|hours| *hours < 24)?;
    Some(i64::from(date(day)?) * DAY + after_hours(hours, &clock[2..])?)
}

/// Microseconds of `[-]hh[h]:mm:ss` with up to six fraction digits.
pub fn time(text: &[u8]) -> Option<i64> {
    let clock = text.strip_prefix(b"-").unwrap_or(text);
    let long = usize::from(*clock.get(2)? != b':');
    let mut hours = two(clock[0], clock[1])?;
    if long == 1 {
        hours = hours * 10 + two(b'0', clock[2])?;
    }
    let micros = after_hours(hours, clock.get(2 + long..)?)?;
    Some(if clock.len() < text.len() { -micros } else { micros })
}

/// Microseconds of *hours* and the `:mm:ss[.ffffff]` after them.
fn after_hours(hours: i32, text: &[u8]) -> Option<i64> {
    let [b':', m1, m2, b':', s1, s2, ref fraction @ ..] = *text else {
        return None;
    };
    let (minutes, seconds) = (two(m1, m2)?, two(s1, s2)?);
    if minutes > 59 || seconds > 59 {
        return None;
    }
    let mut micros = 0;
    if let [b'.', digits @ ..] = fraction {
        if digits.is_empty() || digits.len() > 6 {
            return None;
        }
        for at in 0..6 {
            micros = micros * 10 + digits.get(at).map_or(Some(0), |digit| two(b'0', *digit))?;
        }
    } else if !fraction.is_empty() {
        return None;
    }
    let whole = i64::from(hours) * 3600 + i64::from(minutes) * 60 + i64::from(seconds);
    Some(whole * 1_000_000 + i64::from(micros))
}

fn two(tens: u8, ones: u8) -> Option<i32> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| i32::from(tens) * 10 + i32::from(ones))
}
