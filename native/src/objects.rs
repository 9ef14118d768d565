//! Claim-check objects: messages that TiCDC put into a store, `{"key":…,"value":…}` with base64 of what Kafka would have got, or
//! the value as it is.

use crate::texts::base64;

/// Bytes of memory that are kept from one object to the next, for each of key and value.
const KEPT: usize = 4 << 20;

/// The event that an object has to be of.
pub struct Expected {
    pub ordinal: i32,
    pub commit_ts: i64,
    /// The row's identity.
    pub key: Vec<u8>,
    /// The forms that its row may have.
    pub forms: Vec<i32>,
}

/// The message in an object.
#[derive(Default)]
pub struct Unwrapped {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Unwrapped {
    /// Take the message out of *content*; a key that is null is empty. None where it is not as TiCDC writes it. What was read
    /// before must have been cleared.
    pub fn read(&mut self, content: &[u8]) -> Option<()> {
        let rest = content.strip_prefix(b"{\"key\":")?;
        let rest = match rest.strip_prefix(b"null") {
            Some(rest) => rest,
            None => text(rest, &mut self.key)?,
        };
        let rest = text(rest.strip_prefix(b",\"value\":")?, &mut self.value)?;
        (rest == b"}").then_some(())
    }

    /// Forget the message.
    pub fn clear(&mut self) {
        for part in [&mut self.key, &mut self.value] {
            part.clear();
            part.shrink_to(KEPT);
        }
    }
}

/// Append what the text in front of *bytes* is the base64 of; what follows it.
fn text<'a>(bytes: &'a [u8], to: &mut Vec<u8>) -> Option<&'a [u8]> {
    let bytes = bytes.strip_prefix(b"\"")?;
    let (text, rest) = bytes.split_at_checked(memchr::memchr(b'"', bytes)?)?;
    base64(text, to)?;
    Some(&rest[1..])
}
