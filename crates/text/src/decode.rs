//! A stream of ids as text, whole characters only.
//!
//! A character may be spread over several tokens. Its bytes wait until the last one is there; bytes that can become
//! no character are U+FFFD, as many as a lossy conversion of the whole would give.

use std::sync::Arc;

use crate::error::TextError;
use crate::tokenizer::Tokenizer;

/// Writes the text of one stream of ids. Concatenating what it returns gives the text of all of them.
pub struct Decoder {
    tokenizer: Arc<Tokenizer>,
    special: bool,
    /// Bytes of a character that is not complete, at most three.
    pending: Vec<u8>,
    /// Whether the next text begins with a space that encoding put there.
    skip_space: bool,
    /// Ids taken so far.
    position: usize,
}

impl Decoder {
    /// `at_start`: whether the first id is the first of its text, so that the space which encoding put before it is
    /// left out.
    pub(crate) fn new(tokenizer: Arc<Tokenizer>, special: bool, at_start: bool) -> Decoder {
        let skip_space = at_start && tokenizer.adds_space();
        Decoder { tokenizer, special, pending: Vec::new(), skip_space, position: 0 }
    }

    /// The characters that `id` completes; often a word, sometimes nothing.
    ///
    /// # Errors
    /// [`TextError::TokenId`] for an id outside the vocabulary; the decoder is as it was.
    pub fn push(&mut self, id: u32) -> Result<String, TextError> {
        let bytes = self.tokenizer.bytes(id, self.special).ok_or(TextError::TokenId {
            position: self.position,
            vocab: self.tokenizer.vocab(),
            found: id,
        })?;
        self.position += 1;
        let mut bytes = bytes.as_ref();
        if self.skip_space && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            self.skip_space = false;
        }
        self.pending.extend_from_slice(bytes);
        Ok(take_complete(&mut self.pending))
    }

    /// What is left at the end: U+FFFD for a character that was never completed, otherwise nothing.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        rest
    }
}

/// Removes and returns all of `bytes` but a character at its end that may still be completed.
fn take_complete(bytes: &mut Vec<u8>) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut done = 0;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        done += chunk.valid().len();
        let invalid = chunk.invalid();
        let incomplete = || std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
        if done + invalid.len() == bytes.len() && incomplete() {
            break; // at the very end, the start of a character
        }
        if !invalid.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            done += invalid.len();
        }
    }
    bytes.drain(..done);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` one by one; `expected` is what comes out at each, then at the end.
    fn check(bytes: &[u8], expected: &[&str]) {
        let mut pending = Vec::new();
        let mut found: Vec<String> = bytes
            .iter()
            .map(|byte| {
                pending.push(*byte);
                take_complete(&mut pending)
            })
            .collect();
        found.push(String::from_utf8_lossy(&pending).into_owned());
        assert_eq!(found, expected, "{bytes:02x?}");
        assert_eq!(found.concat(), String::from_utf8_lossy(bytes), "{bytes:02x?}");
    }

    #[test]
    fn characters_come_out_whole() {
        check(b"ab", &["a", "b", ""]);
        check("é😀".as_bytes(), &["", "é", "", "", "", "😀", ""]);
    }

    #[test]
    fn broken_characters_are_replaced_when_they_are_known_to_be_broken() {
        check(&[0xff], &["\u{fffd}", ""]);
        check(&[0xe4, 0xbd, b'a'], &["", "", "\u{fffd}a", ""]);
        check(&[0xf0, 0x9f, 0x98], &["", "", "", "\u{fffd}"]);
        check(&[0xc3, 0xc3, 0xa9], &["", "\u{fffd}", "é", ""]);
        check(&[0xed, 0xa0, 0x80], &["", "\u{fffd}\u{fffd}", "\u{fffd}", ""]);
    }

    #[test]
    fn all_cuts_of_noise_agree_with_a_lossy_conversion() {
        let seed = 11u64;
        let mut state = seed;
        for round in 0..2000 {
            let mut pending = Vec::new();
            let (mut all, mut text) = (Vec::new(), String::new());
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let byte = [b'a', 0x80, 0xa9, 0xc3, 0xe4, 0xf0, 0x9f, 0xff][(state >> 61) as usize];
                all.push(byte);
                pending.push(byte);
                if state >> 60 & 1 == 0 {
                    text += &take_complete(&mut pending);
                }
            }
            text += &take_complete(&mut pending);
            text += &String::from_utf8_lossy(&pending);
            assert_eq!(text, String::from_utf8_lossy(&all), "seed {seed} round {round} {all:02x?}");
        }
    }
}
