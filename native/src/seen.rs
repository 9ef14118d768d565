//! Which row versions of a split came already, as `changelog/files/seen.py` keeps them, in less than half the memory.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The keys are hashes themselves.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Identities of row versions, each with the fingerprint of its first copy.
#[pyclass]
#[derive(Default)]
pub struct Seen(HashMap<u128, u128, BuildHasherDefault<AsItIs>>);

#[pymethods]
impl Seen {
    #[new]
    fn new() -> Self {
        Seen::default()
    }

    /// Per row with one of these identities and fingerprints of 16 bytes, 1 where no row before it said the same, else 0; None where
    /// all are new.
    fn fresh<'py>(
        &mut self,
        py: Python<'py>,
        versions: &[u8],
        fingerprints: &[u8],
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if versions.len() != fingerprints.len() || versions.len() % 16 != 0 {
            return Err(PyValueError::new_err("identities and fingerprints are of 16 bytes, and as many"));
        }
        let rows = versions.chunks_exact(16).map(number).zip(fingerprints.chunks_exact(16).map(number));
        self.0.reserve(versions.len() / 16);
        let fresh: Vec<u8> = rows
            .map(|(version, fingerprint)| match self.0.entry(version) {
                Entry::Vacant(place) => {
                    place.insert(fingerprint);
                    1
                }
                Entry::Occupied(first) => u8::from(*first.get() != fingerprint),
            })
            .collect();
        Ok(fresh.contains(&0).then(|| PyBytes::new(py, &fresh)))
    }
}

fn number(bytes: &[u8]) -> u128 {
    u128::from_ne_bytes(bytes.try_into().unwrap_or_default())
}
