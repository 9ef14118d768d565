//! Canal-JSON: rows as TiCDC writes them with the TiDB extension.
//!
//!     {"id":0,"database":…,"table":…,"pkNames":…,"isDdl":false,"type":…,"es":…,"ts":…,"sql":"","sqlType":{…},"mysqlType":{…},
//!     "old":null,"data":[{…}],"_tidb":{"commitTs":…}}
//!
//! What stands before `es` names the table and the kind of change, and with it the forms that may follow.

use crate::json::{is_plain, natural, Scanner};
use crate::moments::Zone;
use crate::rows::{Cell, Cells, Change, Form, Head, Target};
use crate::Took;
use memchr::memmem::Finder;
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_128_with_seed;

const LOGICAL_BITS: u32 = 18;

/// Finds messages that may hold a DDL without reading them.
pub struct DdlSearch {
    member: Finder<'static>,
    escape: Finder<'static>,
}

impl DdlSearch {
    pub fn new() -> Self {
        DdlSearch { member: Finder::new(b"\"isDdl\""), escape: Finder::new(b"\\u00") }
    }

    /// Whether there is a member `isDdl` that begins as `true` does, or a letter that is escaped and could be one of it.
    pub fn may_be_in(&self, value: &[u8]) -> bool {
        let is_true = |at: usize| {
            let rest = after_space(&value[at + self.member.needle().len()..]);
            rest.strip_prefix(b":").is_some_and(|rest| after_space(rest).starts_with(b"t"))
        };
        self.member.find_iter(value).any(is_true)
            || self.escape.find_iter(value).any(|at| matches!(value.get(at + 4), Some(b'4'..=b'7')))
    }
}

/// *bytes* behind what Python calls white space.
fn after_space(bytes: &[u8]) -> &[u8] {
    let space = bytes.iter().take_while(|byte| matches!(byte, b' ' | 9..=13)).count();
    &bytes[space..]
}

/// What rows of one form look like on the wire.
pub struct CanalForm {
    pub form: Form,
    pub change: Change,
    /// By column, `,"name":`.
    members: Vec<Vec<u8>>,
    /// By column, its member of `mysqlType`.
    types: Vec<Vec<u8>>,
    beginnings: Beginnings,
    /// Whether `old` may lack columns, which then did not change.
    partial_old: bool,
    seed: u64,
    codes: Codes,
}

impl CanalForm {
    pub fn new(form: Form, change: Change, names: &[Vec<u8>], types: &[Vec<u8>], partial_old: bool, seed: u64) -> Self {
        let members: Vec<_> = names.iter().map(|name| [b",\"", name.as_slice(), b"\":"].concat()).collect();
        let typed = |(member, text): (&Vec<u8>, &Vec<u8>)| [&member[1..], b"\"", text, b"\""].concat();
        let types: Vec<_> = members.iter().zip(types).map(typed).collect();
        let beginnings = Beginnings::new(&types);
        CanalForm { form, change, members, types, beginnings, partial_old, seed, codes: Codes::default() }
    }
}

/// Tells by its first bytes which of some texts comes.
struct Beginnings {
    /// Of as many bytes as all texts have.
    mask: u128,
    /// Without one for all texts, `NONE` is all that is found.
    factor: u64,
    numbers: [u8; 256],
}

impl Beginnings {
    const NONE: u8 = u8::MAX;

    fn new(texts: &[Vec<u8>]) -> Self {
        let bytes = texts.iter().map(Vec::len).min().unwrap_or(0).min(16) as u32;
        let mask = u128::MAX.checked_shr(128 - 8 * bytes).unwrap_or(0);
        let mut found = Beginnings { mask, factor: 0x9e37_79b9_7f4a_7c15, numbers: [Self::NONE; 256] };
        for _ in 0..64 {
            let differ = texts.iter().enumerate().all(|(number, text)| {
                let place = found.place(Scanner::new(text, 0).word());
                let free = found.numbers[place] == Self::NONE;
                found.numbers[place] = number as u8;
                free
            });
            if differ {
                return found;
            }
            found.numbers = [Self::NONE; 256];
            found.factor = found.factor.wrapping_mul(0xd134_2543_de82_ef95) | 1;
        }
        found
    }

    fn place(&self, word: u128) -> usize {
        let word = word & self.mask;
        let mixed = (word as u64 ^ (word >> 64) as u64).wrapping_mul(self.factor);
        (mixed >> 56) as usize
    }

    /// The number of the only text that can come.
    fn find(&self, at: &Scanner) -> Option<usize> {
        let number = self.numbers[self.place(at.word())];
        (number != Self::NONE).then_some(usize::from(number))
    }
}

/// The forms that were registered, by what rows begin with.
#[derive(Default)]
pub struct Canal {
    forms: Vec<CanalForm>,
    starts: HashMap<Vec<u8>, usize>,
    /// By number: the start, and the forms that have it.
    alike: Vec<(Vec<u8>, Vec<usize>)>,
    recent: [usize; 4],
}

/// What stood as `sqlType` in rows of one form before: there are few, and one that was read need not be read again.
#[derive(Default)]
struct Codes(Vec<Vec<u8>>);

impl Codes {
    fn skip(&mut self, at: &mut Scanner) -> Option<()> {
        if self.0.iter().any(|met| at.try_eat(met)) {
            return Some(());
        }
        let start = at.at;
        codes(at)?;
        if self.0.len() == 8 {
            self.0.remove(0);
        }
        self.0.push(at.since(start).to_vec());
        Some(())
    }
}

impl Canal {
    pub fn add(&mut self, start: Vec<u8>, form: CanalForm) {
        let alike = match self.starts.get(&start) {
            Some(at) => *at,
            None => {
                self.alike.push((start.clone(), Vec::new()));
                self.starts.insert(start, self.alike.len() - 1);
                self.alike.len() - 1
            }
        };
        self.alike[alike].1.insert(0, self.forms.len());
        self.forms.push(form);
    }

    /// Read *value* into *targets*; None where Python has to.
    pub fn read(
        &mut self,
        value: &[u8],
        offset: i64,
        window: (i64, i64),
        targets: &mut [Target],
        zone: &mut Zone,
        took: &mut Took,
    ) -> Option<()> {
        let alike = self.alike_of(value)?;
        if !is_plain(value) {
            return None;
        }
        let Canal { forms, alike: starts, .. } = self;
        let start = starts[alike].0.len();
        starts[alike].1.iter().find_map(|at| {
            let form = &mut forms[*at];
            let number = form.form.target;
            took.touch(number, &targets[number]);
            let found = read_row(form, value, start, offset, window, &mut targets[number], zone, took);
            if found.is_none() {
                took.undo(targets);
            }
            found
        })
    }

    fn alike_of(&mut self, value: &[u8]) -> Option<usize> {
        let at_start = |start: &[u8]| value.starts_with(start) && value[start.len()..].starts_with(b",\"es\":");
        let recent = self.recent.iter().position(|at| self.alike.get(*at).is_some_and(|(start, _)| at_start(start)));
        let found = match recent {
            Some(place) => {
                let found = self.recent[place];
                self.recent.copy_within(..place, 1);
                found
            }
            None => {
                let end = memchr::memmem::find(value, b",\"es\":")?;
                let found = *self.starts.get(&value[..end])?;
                self.recent.copy_within(..3, 1);
                found
            }
        };
        self.recent[0] = found;
        Some(found)
    }
}

#[allow(clippy::too_many_arguments)]
fn read_row(
    canal: &mut CanalForm,
    value: &[u8],
    start: usize,
    offset: i64,
    window: (i64, i64),
    target: &mut Target,
    zone: &mut Zone,
    took: &mut Took,
) -> Option<()> {
    let (commit_ts, end) = commit_ts(value)?;
    let form = &canal.form;
    form.span.contains(&commit_ts).then_some(())?;
    let mut at = Scanner::new(value, start);
    at.eat(b",\"es\":")?;
    let es = natural(at.integer()?)?;
    (commit_ts as u64 >> LOGICAL_BITS == es).then_some(())?;
    at.eat(b",\"ts\":")?;
    at.integer()?;
    at.eat(b",\"sql\":\"\",\"sqlType\":")?;
    canal.codes.skip(&mut at)?;
    at.eat(b",\"mysqlType\":")?;
    check_types(canal, &mut at)?;
    let images = at.at;
    let mut old = Vec::new();
    if canal.change == Change::Update {
        at.eat(b",\"old\":[")?;
        old = image(canal, &mut at, canal.partial_old)?;
        at.eat(b"],\"data\":[")?;
    } else {
        at.eat(b",\"old\":null,\"data\":[")?;
    }
    let data = image(canal, &mut at, false)?;
    (at.at == end).then_some(())?;
    let inside = window.0 <= commit_ts && commit_ts < window.1;
    if inside && form.wanted {
        let fingerprint = xxh3_128_with_seed(&value[images..], canal.seed ^ es).to_be_bytes();
        let head = Head { commit_ts, offset, ordinal: 0, physical: None, fingerprint };
        took.make_room(form.bytes)?;
        target.change(form, &head, canal.change, old, &data, zone)?;
    } else {
        check_escapes(&data)?;
        check_escapes(&old)?;
    }
    took.row(commit_ts, inside, form.wanted);
    Some(())
}

/// The commitTs at the end of *value*, and where the images end.
fn commit_ts(value: &[u8]) -> Option<(i64, usize)> {
    let rest = value.strip_suffix(b"}}")?;
    let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = rest.len() - digits;
    let commit_ts = i64::try_from(natural(&value[rest..rest + digits])?).ok()?;
    let end = value[..rest].strip_suffix(b"],\"_tidb\":{\"commitTs\":")?.len();
    Some((commit_ts, end))
}

/// Skip `sqlType`: names and numbers.
fn codes(at: &mut Scanner) -> Option<()> {
    at.eat(b"{")?;
    if at.try_eat(b"}") {
        return Some(());
    }
    loop {
        let name = at.text()?;
        (!name.escaped).then_some(())?;
        at.eat(b":")?;
        at.integer()?;
        if !at.try_eat(b",") {
            return at.eat(b"}");
        }
    }
}

/// Check `mysqlType`: each column once, in any order.
fn check_types(canal: &CanalForm, at: &mut Scanner) -> Option<()> {
    at.eat(b"{")?;
    let mut met = 0u128;
    let columns = canal.members.len();
    // Most often the next one is near the last: maps of Go begin anywhere, but go round.
    let mut next = 0;
    for member in 0..columns {
        if member > 0 {
            at.eat(b",")?;
        }
        let comes = |column: &usize| at.comes(&canal.types[*column]);
        let found = canal.beginnings.find(at).filter(comes);
        let found = found.or_else(|| (next..columns).chain(0..next).find(comes))?;
        at.at += canal.types[found].len();
        if met >> found & 1 == 1 {
            return None;
        }
        met |= 1 << found;
        next = found + 1;
    }
    at.eat(b"}")
}

/// An image: its columns in order. Where *partial*, some may be missing, which are None.
fn image<'a>(canal: &CanalForm, at: &mut Scanner<'a>, partial: bool) -> Option<Vec<Cell<'a>>> {
    let mut cells = Vec::with_capacity(canal.members.len());
    at.eat(b"{")?;
    let mut first = true;
    for member in &canal.members {
        if !at.try_eat(if first { &member[1..] } else { member }) {
            partial.then_some(())?;
            cells.push(None);
            continue;
        }
        first = false;
        cells.push(Some(match at.peek() {
            Some(b'"') => Some(at.text()?),
            _ => {
                at.eat(b"null")?;
                None
            }
        }));
    }
    at.eat(b"}")?;
    Some(cells)
}

/// Whether all escapes in *cells*, which nobody wants, are ones that mean something.
fn check_escapes(cells: &Cells) -> Option<()> {
    let mut scratch = Vec::new();
    for raw in cells.iter().flatten().flatten().filter(|raw| raw.escaped) {
        scratch.clear();
        crate::json::unescape(raw.bytes, &mut scratch)?;
    }
    Some(())
}
