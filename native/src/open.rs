//! Open Protocol: rows as TiCDC writes them.
//!
//!     key    version, then per event its length and {"ts":…,"scm":…,"tbl":…,"rid":…,"ptn":…,"t":1}, the last three in any order
//!     value  per event its length and {"u":{…}}, {"u":{…},"p":{…}} or {"d":{…}}; a column is {"t":…,"h":true,"f":…,"v":…}
//!
//! A message is read as a whole or not at all.

use crate::json::{is_plain, natural, Raw, Scanner};
use crate::moments::Zone;
use crate::rows::{Cell, Change, Form, Head, Target};
use crate::Took;
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_128_with_seed;

const VERSION: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 1];
/// Of a column's flags.
const NULLABLE: u64 = 0x40;

/// What rows of one form look like on the wire.
pub struct OpenForm {
    pub form: Form,
    pub change: Change,
    /// By column, all that stands before its value: `"name":{"t":…,"f":…,"v":`.
    pub members: Vec<Vec<u8>>,
    /// Whether `p` may lack columns, which then did not change.
    pub partial_old: bool,
    pub seed: u64,
}

/// The forms that were registered, by table.
#[derive(Default)]
pub struct Open {
    forms: Vec<OpenForm>,
    tables: HashMap<Vec<u8>, Vec<usize>>,
}

/// What the key says of one event.
struct About<'a> {
    commit_ts: i64,
    /// `"scm":…,"tbl":…`
    table: &'a [u8],
    physical: Option<i64>,
}

/// Where the message is and which commitTs are wanted.
#[derive(Clone, Copy)]
pub struct Place {
    pub offset: i64,
    pub window: (i64, i64),
}

impl Open {
    /// *table* is what keys of its rows hold: `"scm":…,"tbl":…`.
    pub fn add(&mut self, table: Vec<u8>, form: OpenForm) {
        self.tables.entry(table).or_default().insert(0, self.forms.len());
        self.forms.push(form);
    }

    /// Read the events of *key* and *value* into *targets*; None where Python has to, and what was read is undone.
    pub fn read(
        &self,
        key: &[u8],
        value: &[u8],
        place: Place,
        targets: &mut [Target],
        zone: &mut Zone,
        took: &mut Took,
    ) -> Option<()> {
        let (mut keys, mut values) = (key.strip_prefix(&VERSION)?, value);
        let mut ordinal = 0;
        while !keys.is_empty() {
            let (about, event) = (framed(&mut keys)?, framed(&mut values)?);
            if !is_plain(about) || !is_plain(event) {
                return None;
            }
            let about = about_of(about)?;
            let forms = self.tables.get(about.table)?;
            let change = change_of(event);
            forms.iter().filter(|at| self.forms[**at].change == change).find_map(|at| {
                let form = &self.forms[*at];
                let (old, cells) = images(form, &about, event)?;
                let inside = place.window.0 <= about.commit_ts && about.commit_ts < place.window.1;
                took.make_room(if inside && form.form.wanted { form.form.bytes } else { 0 })?;
                let target = &mut targets[form.form.target];
                took.touch(form.form.target, target);
                let rows = target.rows();
                let head = Head {
                    commit_ts: about.commit_ts,
                    offset: place.offset,
                    ordinal,
                    physical: about.physical,
                    fingerprint: xxh3_128_with_seed(event, form.seed ^ about.commit_ts as u64).to_be_bytes(),
                };
                let found = target.change(&form.form, &head, form.change, old, &cells, zone);
                // Rows that nobody wants are read alike: Python, too, judges their values.
                if found.is_none() || !inside || !form.form.wanted {
                    target.truncate(rows);
                }
                found?;
                took.row(about.commit_ts, inside, form.form.wanted);
                Some(())
            })?;
            ordinal += 1;
        }
        (ordinal > 0 && values.is_empty()).then_some(())
    }
}

/// The next part of *bytes*, before which its length stands.
fn framed<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (part, rest) = rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)?;
    *bytes = rest;
    Some(part)
}

fn about_of(key: &[u8]) -> Option<About<'_>> {
    let mut at = Scanner::new(key, 0);
    at.eat(b"{\"ts\":")?;
    let commit_ts = i64::try_from(natural(at.integer()?)?).ok()?;
    at.eat(b",")?;
    let start = at.at;
    at.eat(b"\"scm\":")?;
    at.text()?;
    at.eat(b",\"tbl\":")?;
    at.text()?;
    let table = &key[start..at.at];
    let (mut is_row, mut physical, mut row_id) = (false, None, false);
    while at.try_eat(b",") {
        if !is_row && at.try_eat(b"\"t\":1") {
            is_row = !matches!(at.peek(), Some(b'0'..=b'9' | b'.' | b'e' | b'E'));
            is_row.then_some(())?;
        } else if physical.is_none() && at.try_eat(b"\"ptn\":") {
            physical = Some(i64::try_from(natural(at.integer()?)?).ok()?);
        } else if !row_id && at.try_eat(b"\"rid\":") {
            at.integer()?;
            row_id = true;
        } else {
            return None;
        }
    }
    at.eat(b"}")?;
    (is_row && at.at == key.len()).then_some(About { commit_ts, table, physical })
}

/// What became of the row in *value*, if it is one: no text can hold these quotes.
fn change_of(value: &[u8]) -> Change {
    if value.starts_with(b"{\"d\":") {
        Change::Delete
    } else if memchr::memmem::find(value, b"}},\"p\":{").is_some() {
        Change::Update
    } else {
        Change::Put
    }
}

/// The images in *value*, the old and the only or new one, if it is of the form.
fn images<'a>(open: &OpenForm, about: &About, value: &'a [u8]) -> Option<(Vec<Cell<'a>>, Vec<Cell<'a>>)> {
    open.form.span.contains(&about.commit_ts).then_some(())?;
    let mut at = Scanner::new(value, 0);
    let mut old = Vec::new();
    at.eat(if open.change == Change::Delete { b"{\"d\":" } else { b"{\"u\":" })?;
    let cells = image(open, &mut at, false)?;
    if open.change == Change::Update {
        at.eat(b",\"p\":")?;
        old = image(open, &mut at, open.partial_old)?;
    }
    at.eat(b"}")?;
    (at.at == value.len()).then_some((old, cells))
}

/// Whether the column that *member* stands before may be NULL.
fn is_nullable(member: &[u8]) -> bool {
    let flags = member.strip_suffix(b",\"v\":").and_then(|head| head.rsplit(|&byte| byte == b':').next());
    let flags = flags.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|digits| digits.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & NULLABLE != 0)
}

/// An image: its columns in order. Where *partial*, some may be missing, which are None; a NULL that can be none is for Python.
fn image<'a>(open: &OpenForm, at: &mut Scanner<'a>, partial: bool) -> Option<Vec<Cell<'a>>> {
    let mut cells = Vec::with_capacity(open.members.len());
    at.eat(b"{")?;
    let mut first = true;
    for (member, column) in open.members.iter().zip(&open.form.columns) {
        let before = at.at;
        if !((first || at.try_eat(b",")) && at.try_eat(member)) {
            at.at = before;
            partial.then_some(())?;
            cells.push(None);
            continue;
        }
        first = false;
        cells.push(Some(if at.try_eat(b"null") {
            (!partial || is_nullable(member)).then_some(())?;
            None
        } else if column.kind.is_number() {
            Some(Raw { bytes: at.number()?, escaped: false })
        } else {
            Some(at.text()?)
        }));
        at.eat(b"}")?;
    }
    at.eat(b"}")?;
    Some(cells)
}
