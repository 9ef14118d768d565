//! Identities of rows and row versions, byte for byte those of `changelog/files/identity.py`.

use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// What names the rows of a table: MessagePack of (schema, table), and of the key columns' names.
pub struct Names {
    pub table: Vec<u8>,
    pub key: Vec<u8>,
}

/// The identities of one row, given the MessagePack of each key cell in the order of the key columns' names.
pub fn identify(names: &Names, cells: &[Vec<u8>], seed: u64, scratch: &mut Vec<u8>) -> ([u8; 16], [u8; 16]) {
    scratch.clear();
    scratch.extend_from_slice(&names.table);
    scratch.extend_from_slice(&names.key);
    header(scratch, cells.len(), 0x90, 15, [None, Some(0xdc), Some(0xdd)]);
    for cell in cells {
        scratch.extend_from_slice(cell);
    }
    let key = xxh3_128(&scratch[names.table.len()..]);
    let version = xxh3_128_with_seed(scratch, seed);
    (key.to_be_bytes(), version.to_be_bytes())
}

pub fn pack_text(to: &mut Vec<u8>, text: &[u8]) {
    header(to, text.len(), 0xa0, 31, [Some(0xd9), Some(0xda), Some(0xdb)]);
    to.extend_from_slice(text);
}

pub fn pack_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    // No short form: what one byte can count is above it always.
    match bytes.len() {
        len @ 0..=0xff => to.extend_from_slice(&[0xc4, len as u8]),
        len @ 0x100..=0xffff => {
            to.push(0xc5);
            to.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            to.push(0xc6);
            to.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
    to.extend_from_slice(bytes);
}

pub fn pack_float(to: &mut Vec<u8>, value: f64) {
    to.push(0xcb);
    to.extend_from_slice(&value.to_be_bytes());
}

/// The integer of *magnitude*, below zero where *negative*.
pub fn pack_integer(to: &mut Vec<u8>, negative: bool, magnitude: u64) {
    if !negative {
        match magnitude {
            0..=0x7f => to.push(magnitude as u8),
            0x80..=0xff => to.extend_from_slice(&[0xcc, magnitude as u8]),
            0x100..=0xffff => {
                to.push(0xcd);
                to.extend_from_slice(&(magnitude as u16).to_be_bytes());
            }
            0x1_0000..=0xffff_ffff => {
                to.push(0xce);
                to.extend_from_slice(&(magnitude as u32).to_be_bytes());
            }
            _ => {
                to.push(0xcf);
                to.extend_from_slice(&magnitude.to_be_bytes());
            }
        }
        return;
    }
    let value = (magnitude as i64).wrapping_neg();
    match magnitude {
        0..=0x20 => to.push(value as u8),
        0x21..=0x80 => to.extend_from_slice(&[0xd0, value as u8]),
        0x81..=0x8000 => {
            to.push(0xd1);
            to.extend_from_slice(&(value as i16).to_be_bytes());
        }
        0x8001..=0x8000_0000 => {
            to.push(0xd2);
            to.extend_from_slice(&(value as i32).to_be_bytes());
        }
        _ => {
            to.push(0xd3);
            to.extend_from_slice(&value.to_be_bytes());
        }
    }
}

fn header(to: &mut Vec<u8>, len: usize, short: u8, longest: usize, codes: [Option<u8>; 3]) {
    match (len, codes) {
        (len, _) if len <= longest => to.push(short | len as u8),
        (len @ 0..=0xff, [Some(code), ..]) => to.extend_from_slice(&[code, len as u8]),
        (len @ 0..=0xffff, [_, Some(code), _]) => {
            to.push(code);
            to.extend_from_slice(&(len as u16).to_be_bytes());
        }
        (len, [.., code]) => {
            to.push(code.unwrap_or_default());
            to.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}
