//! The rows of one resolved schema while they are collected, and what all rows of one form have in common.

use crate::cells::Kind;
use crate::columns::{bytes_of, Bits, Buffers, Column};
use crate::identity::{identify, Names};
use crate::json::Raw;
use crate::moments::Zone;
use crate::objects::Expected;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ops::RangeInclusive;

/// One column of a form. `to` is its place in the target, None where that lacks it.
pub struct FormColumn {
    pub kind: Kind,
    pub to: Option<usize>,
}

/// What all rows of one form have in common, whatever protocol they came by.
pub struct Form {
    pub number: i32,
    pub target: usize,
    pub columns: Vec<FormColumn>,
    /// Places of the key columns in `columns`, in the order of their names; empty where rows have no identity.
    pub key: Vec<usize>,
    /// The commitTs for which the form holds.
    pub span: RangeInclusive<i64>,
    /// Whether the run wants the table.
    pub wanted: bool,
    /// What a row takes in Arrow's arrays beside its texts.
    pub bytes: usize,
}

/// What became of a row.
#[derive(Clone, Copy, PartialEq)]
pub enum Change {
    /// There is a new image only.
    Put,
    Update,
    Delete,
}

/// Where a row is, and what it says besides its images.
pub struct Head {
    pub commit_ts: i64,
    pub offset: i64,
    pub ordinal: i32,
    pub physical: Option<i64>,
    pub fingerprint: [u8; 16],
}

/// A cell: None where it is missing, which only an old image may have, and then None for NULL.
pub type Cell<'a> = Option<Option<Raw<'a>>>;

/// The cells of an image in the order of the form's columns.
pub type Cells<'a> = [Cell<'a>];

/// Rows of one resolved schema.
pub struct Target {
    names: Option<Names>,
    before: Image,
    after: Image,
    commit_ts: Vec<i64>,
    offsets: Vec<i64>,
    ordinals: Vec<i32>,
    physical: Column,
    forms: Vec<i32>,
    keys: Vec<u8>,
    versions: Vec<u8>,
    fingerprints: Vec<u8>,
    cells: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

struct Image {
    columns: Vec<Column>,
    there: Bits,
    /// How many of the last rows have no image, for which the columns have nothing yet.
    missing: usize,
}

impl Image {
    fn new(widths: &[usize]) -> Self {
        Image { columns: widths.iter().map(|width| Column::new(*width)).collect(), there: Bits::default(), missing: 0 }
    }

    fn put(&mut self, form: &Form, cells: Option<&Cells>, zone: &mut Zone) -> Option<()> {
        self.there.push(cells.is_some());
        let Some(cells) = cells else {
            self.missing += 1;
            return Some(());
        };
        self.fill();
        for (described, cell) in form.columns.iter().zip(cells) {
            let Some(to) = described.to else { continue };
            match (*cell)? {
                Some(raw) => described.kind.put(raw, &mut self.columns[to], zone)?,
                None => self.columns[to].nulls(1),
            }
        }
        // Columns that this form lacks are NULL.
        if form.columns.len() < self.columns.len() || form.columns.iter().any(|column| column.to.is_none()) {
            let rows = self.there.len();
            self.columns.iter_mut().filter(|column| column.len() < rows).for_each(|column| column.nulls(1));
        }
        Some(())
    }

    /// Let the columns have as many rows as there are.
    fn fill(&mut self) {
        let missing = std::mem::take(&mut self.missing);
        if missing > 0 {
            self.columns.iter_mut().for_each(|column| column.nulls(missing));
        }
    }

    fn truncate(&mut self, rows: usize) {
        self.fill();
        self.there.truncate(rows);
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
    }
}

/// What `Target::take` gives: rows, both images (where they are, and their columns), then the columns of the changelog.
pub type Taken<'py> = (
    usize,
    (Option<Bound<'py, PyBytes>>, usize, Vec<Buffers<'py>>),
    (Option<Bound<'py, PyBytes>>, usize, Vec<Buffers<'py>>),
    Vec<Bound<'py, PyBytes>>,
    Buffers<'py>,
);

impl Target {
    pub fn new(widths: &[usize], names: Option<Names>) -> Self {
        Target {
            names,
            before: Image::new(widths),
            after: Image::new(widths),
            commit_ts: Vec::new(),
            offsets: Vec::new(),
            ordinals: Vec::new(),
            physical: Column::new(8),
            forms: Vec::new(),
            keys: Vec::new(),
            versions: Vec::new(),
            fingerprints: Vec::new(),
            cells: Vec::new(),
            scratch: Vec::new(),
        }
    }

    pub fn rows(&self) -> usize {
        self.offsets.len()
    }

    /// Whether it has a column *at* for values of *width* bytes.
    pub fn has(&self, at: usize, width: usize) -> bool {
        self.after.columns.get(at).is_some_and(|column| column.width == width)
    }

    /// Append a row. On None what was appended of it is left for `truncate`.
    fn put(
        &mut self,
        form: &Form,
        head: &Head,
        before: Option<&Cells>,
        after: Option<&Cells>,
        zone: &mut Zone,
    ) -> Option<()> {
        self.before.put(form, before, zone)?;
        self.after.put(form, after, zone)?;
        let (image, columns) = match after {
            Some(cells) => (cells, &self.after.columns),
            None => (before?, &self.before.columns),
        };
        if let Some(names) = &self.names {
            self.cells.resize_with(form.key.len(), Vec::new);
            for (packed, at) in self.cells.iter_mut().zip(&form.key) {
                packed.clear();
                let column = &form.columns[*at];
                // A NULL makes the row a damaged one, which Python sets aside.
                let raw = image[*at]??;
                column.kind.pack(raw, columns.get(column.to?)?, packed)?;
            }
            let seed = (head.commit_ts as u64) << 1 | u64::from(after.is_some());
            let (key, version) = identify(names, &self.cells, seed, &mut self.scratch);
            self.keys.extend_from_slice(&key);
            self.versions.extend_from_slice(&version);
        }
        self.fingerprints.extend_from_slice(&head.fingerprint);
        match head.physical {
            Some(number) => self.physical.fixed(&number.to_le_bytes()),
            None => self.physical.nulls(1),
        }
        self.commit_ts.push(head.commit_ts);
        self.ordinals.push(head.ordinal);
        self.forms.push(form.number);
        self.offsets.push(head.offset);
        Some(())
    }

    /// Append a row with *cells* in its only or new image; those of *old* that are missing did not change. None where the key did.
    pub fn change<'a>(
        &mut self,
        form: &Form,
        head: &Head,
        change: Change,
        mut old: Vec<Cell<'a>>,
        cells: &Cells<'a>,
        zone: &mut Zone,
    ) -> Option<()> {
        match change {
            Change::Put => self.put(form, head, None, Some(cells), zone),
            Change::Delete => self.put(form, head, Some(cells), None, zone),
            Change::Update => {
                old.iter_mut().zip(cells).for_each(|(old, new)| *old = old.or(*new));
                let bytes = |cell: Cell<'a>| cell.flatten().map(|raw| raw.bytes);
                form.key.iter().all(|at| bytes(old[*at]) == bytes(cells[*at])).then_some(())?;
                self.put(form, head, Some(&old), Some(cells), zone)
            }
        }
    }

    /// Take the row behind the first *rows* as the one that is *expected*. None where there is none, another, or more.
    pub fn confirm(&mut self, rows: usize, expected: &Expected) -> Option<()> {
        let is_it = self.offsets.len() == rows + 1
            && self.commit_ts.last() == Some(&expected.commit_ts)
            && self.forms.last().is_some_and(|form| expected.forms.contains(form))
            && self.keys.ends_with(&expected.key)
            && self.keys.len() == 16 * (rows + 1)
            && expected.key.len() == 16;
        is_it.then_some(())?;
        *self.ordinals.last_mut()? = expected.ordinal;
        Some(())
    }

    /// Forget all rows but the first *rows*, and what was left of one that could not be appended.
    pub fn truncate(&mut self, rows: usize) {
        self.before.truncate(rows);
        self.after.truncate(rows);
        self.physical.truncate(rows);
        self.commit_ts.truncate(rows);
        self.offsets.truncate(rows);
        self.ordinals.truncate(rows);
        self.forms.truncate(rows);
        self.keys.truncate(rows * 16);
        self.versions.truncate(rows * 16);
        self.fingerprints.truncate(rows * 16);
    }

    /// All rows; none are left, but the memory for as many.
    pub fn take<'py>(&mut self, py: Python<'py>) -> Taken<'py> {
        let rows = self.rows();
        let image = |image: &mut Image| {
            image.fill();
            let (there, nulls) = image.there.take(py);
            (there, nulls, image.columns.iter_mut().map(|column| column.take(py)).collect())
        };
        let (before, after) = (image(&mut self.before), image(&mut self.after));
        let columns = vec![
            bytes_of(py, &self.commit_ts, i64::to_ne_bytes),
            bytes_of(py, &self.offsets, i64::to_ne_bytes),
            bytes_of(py, &self.ordinals, i32::to_ne_bytes),
            bytes_of(py, &self.forms, i32::to_ne_bytes),
            PyBytes::new(py, &self.keys),
            PyBytes::new(py, &self.versions),
            PyBytes::new(py, &self.fingerprints),
        ];
        let physical = self.physical.take(py);
        self.truncate(0);
        (rows, before, after, columns, physical)
    }
}
