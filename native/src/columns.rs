//! Arrow arrays while they grow, as the plain buffers that Arrow's columnar format says.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// One bit per row.
#[derive(Default)]
pub struct Bits {
    bytes: Vec<u8>,
    len: usize,
}

impl Bits {
    pub fn push(&mut self, bit: bool) {
        let at = self.len & 7;
        if at == 0 {
            self.bytes.push(u8::from(bit));
        } else if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << at;
        }
        self.len += 1;
    }

    /// *count* bits that are not set.
    pub fn push_unset(&mut self, count: usize) {
        self.len += count;
        self.bytes.resize(self.len.div_ceil(8), 0);
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.bytes.truncate(self.len.div_ceil(8));
        if let (Some(last), 1..) = (self.bytes.last_mut(), self.len & 7) {
            *last &= (1 << (self.len & 7)) - 1;
        }
    }

    /// The bits, or None where all are set; and how many are not set.
    pub fn take<'py>(&mut self, py: Python<'py>) -> (Option<Bound<'py, PyBytes>>, usize) {
        let ones: usize = self.bytes.iter().map(|byte| byte.count_ones() as usize).sum();
        let unset = self.len - ones;
        let bytes = (unset > 0).then(|| PyBytes::new(py, &self.bytes));
        self.truncate(0);
        (bytes, unset)
    }
}

/// Validity or None where nothing is null, the number of nulls, offsets of values of any length or None, and the values.
pub type Buffers<'py> = (Option<Bound<'py, PyBytes>>, usize, Option<Bound<'py, PyBytes>>, Bound<'py, PyBytes>);

/// One column: of values of *width* bytes, or of any length where that is 0.
pub struct Column {
    pub width: usize,
    pub data: Vec<u8>,
    /// For what becomes a value in two steps.
    pub spare: Vec<u8>,
    ends: Vec<i32>,
    valid: Bits,
}

impl Column {
    pub fn new(width: usize) -> Self {
        let ends = if width == 0 { vec![0] } else { Vec::new() };
        Column { width, data: Vec::new(), spare: Vec::new(), ends, valid: Bits::default() }
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.valid.len()
    }

    pub fn nulls(&mut self, count: usize) {
        if self.width == 0 {
            self.ends.resize(self.ends.len() + count, self.end());
        } else {
            self.data.resize(self.data.len() + count * self.width, 0);
        }
        self.valid.push_unset(count);
    }

    /// A value of the column's width.
    pub fn fixed(&mut self, value: &[u8]) {
        debug_assert_eq!(value.len(), self.width);
        self.data.extend_from_slice(value);
        self.valid.push(true);
    }

    /// End a value whose bytes were appended to `data`. None where the column gets too long for Arrow.
    pub fn finish(&mut self) -> Option<()> {
        self.ends.push(i32::try_from(self.data.len()).ok()?);
        self.valid.push(true);
        Some(())
    }

    /// The bytes of the last value, which is of any length.
    pub fn last(&self) -> &[u8] {
        let start = self.ends[self.ends.len() - 2];
        &self.data[start as usize..]
    }

    fn end(&self) -> i32 {
        self.ends[self.ends.len() - 1]
    }

    pub fn truncate(&mut self, rows: usize) {
        if self.width == 0 {
            self.ends.truncate(rows + 1);
            self.data.truncate(self.end() as usize);
        } else {
            self.data.truncate(rows * self.width);
        }
        self.valid.truncate(rows);
    }

    /// The buffers; the column is empty then, and keeps its memory.
    pub fn take<'py>(&mut self, py: Python<'py>) -> Buffers<'py> {
        let (valid, nulls) = self.valid.take(py);
        let data = PyBytes::new(py, &self.data);
        let ends = (self.width == 0).then(|| bytes_of(py, &self.ends, |end| end.to_ne_bytes()));
        self.truncate(0);
        (valid, nulls, ends, data)
    }
}

/// *numbers* as the bytes of an array.
pub fn bytes_of<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    numbers: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> Bound<'py, PyBytes> {
    let all: Vec<u8> = numbers.iter().flat_map(|number| bytes(*number)).collect();
    PyBytes::new(py, &all)
}
