//! The hot loop of ticdc-replay: rows of forms that Python has met, from the bytes of messages to Arrow's buffers.
//!
//! It is exact, or it does not take a message: whatever is not just as TiCDC writes an ordinary row is handed back whole, and the
//! codecs in Python read it. They are the reference; tests hold both to the same bytes. There is no unsafe code here, and a panic
//! is caught, counted, and its message handed back.

#![forbid(unsafe_code)]

mod canal;
mod cells;
mod columns;
mod identity;
mod json;
mod moments;
mod objects;
mod open;
mod rows;
mod seen;
mod texts;

use canal::{Canal, CanalForm};
use cells::{Kind, KindSpec};
use identity::Names;
use moments::Zone;
use objects::{Expected, Unwrapped};
use open::{Open, OpenForm, Place};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use pyo3::Borrowed;
use rows::{Change, Form, FormColumn, Target};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What was taken of a list of messages.
#[derive(Default)]
pub struct Took {
    left: Vec<usize>,
    first: Vec<i64>,
    last: Vec<i64>,
    rows: usize,
    outside: usize,
    filtered: usize,
    panics: usize,
    message: Option<(i64, i64)>,
    uncounted: (usize, usize, usize),
    touched: Vec<(usize, usize)>,
    /// Bytes that rows may still become, and how many those of the message that is read become.
    room: usize,
    uncounted_bytes: usize,
}

impl Took {
    /// Note how long a target is before the message that is read adds to it.
    pub fn touch(&mut self, number: usize, target: &Target) {
        if self.touched.iter().all(|(touched, _)| *touched != number) {
            self.touched.push((number, target.rows()));
        }
    }

    /// Take back what was read of the message.
    pub fn undo(&mut self, targets: &mut [Target]) {
        for (number, rows) in self.touched.drain(..) {
            targets[number].truncate(rows);
        }
        self.message = None;
        self.uncounted = (0, 0, 0);
        self.uncounted_bytes = 0;
    }

    /// Count the bytes that a row which is collected becomes. None where there is no room for them.
    pub fn make_room(&mut self, bytes: usize) -> Option<()> {
        self.uncounted_bytes = self.uncounted_bytes.saturating_add(bytes);
        (self.uncounted_bytes <= self.room).then_some(())
    }

    /// Count a row of the message that is being read.
    pub fn row(&mut self, commit_ts: i64, inside: bool, wanted: bool) {
        let (first, last) = self.message.unwrap_or((commit_ts, commit_ts));
        self.message = Some((first.min(commit_ts), last.max(commit_ts)));
        self.uncounted.0 += 1;
        self.uncounted.1 += usize::from(!inside);
        self.uncounted.2 += usize::from(inside && !wanted);
    }

    /// Check that the message has a single row, which is collected and the one *expected*.
    fn only_row(&self, targets: &mut [Target], expected: &Expected) -> Option<()> {
        let [(number, rows)] = self.touched[..] else { return None };
        (self.uncounted.0 == 1).then_some(())?;
        targets[number].confirm(rows, expected)
    }

    /// End a message that was *taken*, or not.
    fn end(&mut self, at: usize, taken: bool) {
        let (first, last) = self.message.take().unwrap_or((-1, 0));
        let (rows, outside, filtered) = std::mem::take(&mut self.uncounted);
        self.room -= std::mem::take(&mut self.uncounted_bytes);
        self.touched.clear();
        self.first.push(first);
        self.last.push(last);
        self.rows += rows;
        self.outside += outside;
        self.filtered += filtered;
        if !taken {
            self.left.push(at);
        }
    }
}

/// The last commitTs that a record made at *recorded_ms* can say, as `latest_commit_ts` of `domain/limits.py` says it.
fn latest_commit_ts(recorded_ms: i64) -> i64 {
    const MAX_AHEAD_MS: i64 = 10 * 365 * 86_400_000;
    const CLOCKS_ARE_SET_MS: i64 = 1_420_070_400_000;
    match recorded_ms < CLOCKS_ARE_SET_MS {
        true => i64::MAX,
        false => recorded_ms.saturating_add(MAX_AHEAD_MS).checked_mul(1 << 18).unwrap_or(i64::MAX),
    }
}

/// Where a message has its offset, its time, its key and its value.
const OFFSET: usize = 2;
const RECORDED_MS: usize = 3;
const KEY: usize = 4;
const VALUE: usize = 5;

/// Name, `mysqlType`, place in the target or None, kind.
type CanalColumn = (Vec<u8>, Vec<u8>, Option<usize>, KindSpec);

type Result<'py> = (Vec<usize>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, usize, usize, usize, usize);

/// Reads the messages of one split into rows of known forms.
#[pyclass]
struct Decoder {
    window: (i64, i64),
    zone: Zone,
    targets: Vec<Target>,
    canal: Canal,
    open: Open,
    unwrapped: Unwrapped,
    max_bytes: usize,
    /// What is left of `max_bytes`.
    room: usize,
    panic_at: Option<i64>,
}

#[pymethods]
impl Decoder {
    /// *first* and *end* (TSO) are the window. *ahead* tells, for a local day since 1970, how many microseconds local time is ahead
    /// of UTC, None where that is not so all day. Rows that wait become at most *max_bytes*, as their forms tell; a message that
    /// would be more is left to Python. At the offset *panic_at* it panics: a test of what then happens.
    #[new]
    #[pyo3(signature = (first, end, ahead, max_bytes, panic_at=None))]
    fn new(first: i64, end: i64, ahead: Py<PyAny>, max_bytes: usize, panic_at: Option<i64>) -> Self {
        Decoder {
            window: (first, end),
            zone: Zone::new(ahead),
            targets: Vec::new(),
            canal: Canal::default(),
            open: Open::default(),
            unwrapped: Unwrapped::default(),
            max_bytes,
            room: max_bytes,
            panic_at,
        }
    }

    /// A new place for rows: columns of values of *widths* bytes, 0 for any number. *names* are MessagePack of the table's and the
    /// key columns' names, None where rows have no identity.
    fn add_target(&mut self, widths: Vec<usize>, names: Option<(Vec<u8>, Vec<u8>)>) -> PyResult<usize> {
        if widths.iter().any(|width| *width > 16) {
            return Err(PyValueError::new_err("no value has more than 16 bytes"));
        }
        let names = names.map(|(table, key)| Names { table, key });
        self.targets.push(Target::new(&widths, names));
        Ok(self.targets.len() - 1)
    }

    /// Take rows of Canal-JSON from now on that begin with *start* and have *columns*: name, mysqlType, place in the target or
    /// None, kind. The commitTs for which that holds are *span*, both ends included. Each row becomes *bytes* beside its texts.
    #[allow(clippy::too_many_arguments)]
    fn add_canal_form(
        &mut self,
        number: i32,
        target: usize,
        start: Vec<u8>,
        change: &str,
        columns: Vec<CanalColumn>,
        key: Vec<usize>,
        span: (i64, i64),
        wanted: bool,
        bytes: usize,
        partial_old: bool,
        seed: u64,
    ) -> PyResult<()> {
        let change = change_of(change)?;
        let mut names = Vec::new();
        let mut types = Vec::new();
        let mut described = Vec::new();
        for (name, type_, to, kind) in columns {
            names.push(name);
            types.push(type_);
            described.push((to, kind));
        }
        let form = self.form(number, target, described, key, span, wanted, bytes)?;
        self.canal.add(start, CanalForm::new(form, change, &names, &types, partial_old, seed));
        Ok(())
    }

    /// Take rows of Open Protocol from now on of *table*, `"scm":…,"tbl":…`, that have *columns*: what stands before the value, place
    /// in the target or None, kind. The rest is as ``add_canal_form`` has it.
    #[allow(clippy::too_many_arguments)]
    fn add_open_form(
        &mut self,
        number: i32,
        target: usize,
        table: Vec<u8>,
        change: &str,
        columns: Vec<(Vec<u8>, Option<usize>, KindSpec)>,
        key: Vec<usize>,
        span: (i64, i64),
        wanted: bool,
        bytes: usize,
        partial_old: bool,
        seed: u64,
    ) -> PyResult<()> {
        let change = change_of(change)?;
        let (members, described): (Vec<_>, Vec<_>) =
            columns.into_iter().map(|(member, to, kind)| (member, (to, kind))).unzip();
        let form = self.form(number, target, described, key, span, wanted, bytes)?;
        self.open.add(table, OpenForm { form, change, members, partial_old, seed });
        Ok(())
    }

    /// Read *messages*, tuples as ``RawMessage`` is. Gives the positions of those left to Python; per message, as bytes of int64,
    /// the first and last commitTs of its rows (-1 and 0 for one left, or without rows); and the numbers of rows, of those outside
    /// the window, of those of tables not wanted, and of panics.
    fn read_canal<'py>(&mut self, messages: &Bound<'py, PyList>) -> PyResult<Result<'py>> {
        self.read(messages, |decoder, _, value, offset, took| {
            decoder.canal.read(value, offset, decoder.window, &mut decoder.targets, &mut decoder.zone, took)
        })
    }

    /// As ``read_canal``, of Open Protocol.
    fn read_open<'py>(&mut self, messages: &Bound<'py, PyList>) -> PyResult<Result<'py>> {
        self.read(messages, |decoder, key, value, offset, took| {
            let place = Place { offset, window: decoder.window };
            decoder.open.read(key, value, place, &mut decoder.targets, &mut decoder.zone, took)
        })
    }

    /// Read the one row of the claim-check object *content*, JSON around a message where it is *wrapped*, else its value: the row
    /// that *offset* and *ordinal* refer to, of this *commit_ts* and identity *key*, in one of *forms*. Whether it was taken, and
    /// whether that ended in a panic. It is not counted as a row.
    #[allow(clippy::too_many_arguments)]
    fn read_canal_object(
        &mut self,
        content: &[u8],
        wrapped: bool,
        offset: i64,
        ordinal: i32,
        commit_ts: i64,
        key: Vec<u8>,
        forms: Vec<i32>,
    ) -> (bool, bool) {
        let expected = Expected { ordinal, commit_ts, key, forms };
        self.read_object(content, wrapped, offset, &expected, |decoder, key, value, took| {
            key.is_empty().then_some(())?;
            decoder.canal.read(value, offset, decoder.window, &mut decoder.targets, &mut decoder.zone, took)
        })
    }

    /// As ``read_canal_object``, of Open Protocol, where all objects are wrapped.
    fn read_open_object(
        &mut self,
        content: &[u8],
        offset: i64,
        ordinal: i32,
        commit_ts: i64,
        key: Vec<u8>,
        forms: Vec<i32>,
    ) -> (bool, bool) {
        let expected = Expected { ordinal, commit_ts, key, forms };
        self.read_object(content, true, offset, &expected, |decoder, key, value, took| {
            let place = Place { offset, window: decoder.window };
            decoder.open.read(key, value, place, &mut decoder.targets, &mut decoder.zone, took)
        })
    }

    /// How many rows were collected.
    #[getter]
    fn rows(&self) -> usize {
        self.targets.iter().map(Target::rows).sum()
    }

    /// The rows of each target that has some, by its number; none are left.
    fn take<'py>(&mut self, py: Python<'py>) -> Vec<(usize, rows::Taken<'py>)> {
        self.room = self.max_bytes;
        let full = self.targets.iter_mut().enumerate().filter(|(_, target)| target.rows() > 0);
        full.map(|(number, target)| (number, target.take(py))).collect()
    }
}

impl Decoder {
    /// *read*, of key, value and offset, each of *messages*.
    fn read<'py>(
        &mut self,
        messages: &Bound<'py, PyList>,
        read: impl Fn(&mut Self, &[u8], &[u8], i64, &mut Took) -> Option<()>,
    ) -> PyResult<Result<'py>> {
        let mut took = Took { room: self.room, ..Took::default() };
        for (at, message) in messages.iter().enumerate() {
            let message = message.cast::<PyTuple>()?;
            let offset = message.get_borrowed_item(OFFSET)?.extract()?;
            let latest = latest_commit_ts(message.get_borrowed_item(RECORDED_MS)?.extract()?);
            let (key, value) = (message.get_borrowed_item(KEY)?.cast(), message.get_borrowed_item(VALUE)?.cast());
            // What is None is without bytes, and no row of either protocol.
            let key = key.as_ref().map(|key: &Borrowed<'_, '_, PyBytes>| key.as_bytes()).unwrap_or_default();
            let value = value.as_ref().map(|value: &Borrowed<'_, '_, PyBytes>| value.as_bytes()).unwrap_or_default();
            self.guarded(at, offset, &mut took, |decoder, took| {
                read(decoder, key, value, offset, took)?;
                took.message.is_none_or(|(_, last)| last <= latest).then_some(())
            });
        }
        Ok(result(messages.py(), took))
    }

    /// *read*, of key and value, the row that is *expected* from an object; whether it was taken, and whether that panicked.
    fn read_object(
        &mut self,
        content: &[u8],
        wrapped: bool,
        offset: i64,
        expected: &Expected,
        read: impl Fn(&mut Self, &[u8], &[u8], &mut Took) -> Option<()>,
    ) -> (bool, bool) {
        let mut took = Took { room: self.room, ..Took::default() };
        let mut unwrapped = std::mem::take(&mut self.unwrapped);
        self.guarded(0, offset, &mut took, |decoder, took| {
            let (key, value) = match wrapped {
                true => {
                    unwrapped.read(content)?;
                    (unwrapped.key.as_slice(), unwrapped.value.as_slice())
                }
                false => (&b""[..], content),
            };
            read(decoder, key, value, took)?;
            took.only_row(&mut decoder.targets, expected)
        });
        unwrapped.clear();
        self.unwrapped = unwrapped;
        (took.left.is_empty(), took.panics > 0)
    }

    /// Read the message *at* by *read*, and undo what it did of it where it gives None or panics.
    fn guarded(
        &mut self,
        at: usize,
        offset: i64,
        took: &mut Took,
        read: impl FnOnce(&mut Self, &mut Took) -> Option<()>,
    ) {
        let found = catch_unwind(AssertUnwindSafe(|| {
            let found = read(self, took);
            assert!(Some(offset) != self.panic_at, "a test wants a panic here");
            found
        }));
        took.panics += usize::from(found.is_err());
        let taken = matches!(found, Ok(Some(())));
        if !taken {
            took.undo(&mut self.targets);
        }
        took.end(at, taken);
        self.room = took.room;
    }

    #[allow(clippy::too_many_arguments)]
    fn form(
        &self,
        number: i32,
        target: usize,
        columns: Vec<(Option<usize>, KindSpec)>,
        key: Vec<usize>,
        span: (i64, i64),
        wanted: bool,
        bytes: usize,
    ) -> PyResult<Form> {
        let columns = columns
            .into_iter()
            .map(|(to, kind)| Ok(FormColumn { kind: Kind::new(kind)?, to }))
            .collect::<PyResult<Vec<_>>>()?;
        let place = self.targets.get(target);
        let fits = |column: &FormColumn| {
            column.to.is_none_or(|to| place.is_some_and(|target| target.has(to, column.kind.width())))
        };
        let has_key = key.iter().all(|at| columns.get(*at).is_some_and(|column| column.to.is_some()));
        if place.is_none() || !columns.iter().all(fits) || !has_key || columns.len() > 128 {
            return Err(PyValueError::new_err("the target has no such columns"));
        }
        Ok(Form { number, target, columns, key, span: span.0..=span.1, wanted, bytes })
    }
}

fn change_of(name: &str) -> PyResult<Change> {
    match name {
        "put" => Ok(Change::Put),
        "update" => Ok(Change::Update),
        "delete" => Ok(Change::Delete),
        _ => Err(PyValueError::new_err(format!("no kind of change: {name}"))),
    }
}

fn result<'py>(py: Python<'py>, took: Took) -> Result<'py> {
    (
        took.left,
        columns::bytes_of(py, &took.first, i64::to_ne_bytes),
        columns::bytes_of(py, &took.last, i64::to_ne_bytes),
        took.rows,
        took.outside,
        took.filtered,
        took.panics,
    )
}

/// The positions of those of *values*, messages of Canal-JSON, that may hold a DDL, as `_may_be_ddl` of `codecs/canal/codec.py` says it.
#[pyfunction]
fn may_be_ddl(values: Vec<Bound<'_, PyBytes>>) -> Vec<usize> {
    let search = canal::DdlSearch::new();
    let may = |(_, value): &(usize, &Bound<'_, PyBytes>)| search.may_be_in(value.as_bytes());
    values.iter().enumerate().filter(may).map(|(at, _)| at).collect()
}

/// What the library may ask of this extension. Counted up with each change that an older library, or an older extension,
/// would stumble over; `extension.py` compares it.
const INTERFACE: u32 = 7;

#[pymodule]
fn ticdc_replay_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<Decoder>()?;
    module.add_function(wrap_pyfunction!(may_be_ddl, module)?)?;
    module.add_class::<seen::Seen>()
}
