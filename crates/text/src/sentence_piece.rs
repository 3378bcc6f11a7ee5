//! SentencePiece BPE: characters merge into longer tokens, the highest score first; what is no token is its bytes.
//!
//! A space is written `▁` (U+2581). There are no words: pairs merge across the whole text. Two neighbours may merge
//! when their joined text is a token. A character that is no token is written as the tokens `<0x00>`..`<0xFF>` of its
//! UTF-8 bytes. Source: Kudo and Richardson 2018.

use std::collections::HashMap;

use crate::merge::Merger;

/// What stands for a space inside a token.
pub(crate) const SPACE_MARK: char = '\u{2581}';

/// The tables of one vocabulary.
pub(crate) struct SentencePiece {
    /// The id and score of each token's text.
    tokens: HashMap<Box<str>, (u32, Score)>,
    /// The token of each byte, or what stands for it.
    bytes: [Option<u32>; 256],
    /// Bytes of the longest token: no longer text is worth a look-up.
    longest_bytes: usize,
}

impl SentencePiece {
    /// Takes `(text, id, score)` of each token; of equal texts the last counts. `unknown` stands for a byte that has
    /// no token; without it such a byte is dropped.
    pub(crate) fn new(
        tokens: impl Iterator<Item = (Box<str>, u32, f32)>,
        unknown: Option<u32>,
    ) -> SentencePiece {
        let tokens: HashMap<_, _> = tokens.map(|(text, id, score)| (text, (id, Score::new(score)))).collect();
        let id = |text: &str| tokens.get(text).map(|(id, _)| *id);
        let bytes = std::array::from_fn(|byte| {
            let raw = (byte as u8 as char).to_string();
            id(&format!("<0x{byte:02X}>")).or_else(|| id(&raw).filter(|_| raw.is_ascii())).or(unknown)
        });
        let longest_bytes = tokens.keys().map(|text| text.len()).max().unwrap_or(0);
        SentencePiece { tokens, bytes, longest_bytes }
    }

    /// Appends the tokens of `text`, with a space before it if `space_before`.
    pub(crate) fn encode(&self, text: &str, space_before: bool, ids: &mut Vec<u32>) {
        let spaces = text.bytes().filter(|byte| *byte == b' ').count();
        let mut marked = String::with_capacity(text.len() + SPACE_MARK.len_utf8() * (spaces + 1));
        if space_before {
            marked.push(SPACE_MARK);
        }
        marked.extend(text.chars().map(|character| if character == ' ' { SPACE_MARK } else { character }));
        let mut symbols: Vec<(usize, usize)> =
            marked.char_indices().map(|(start, character)| (start, start + character.len_utf8())).collect();
        Merger::new().run(&mut symbols, |(start, _): (usize, usize), (_, end): (usize, usize)| {
            if end - start > self.longest_bytes {
                return None;
            }
            self.tokens.get(&marked[start..end]).map(|(_, score)| (*score, (start, end)))
        });
        for (start, end) in symbols {
            let text = &marked[start..end];
            match self.tokens.get(text) {
                Some((id, _)) => ids.push(*id),
                None => ids.extend(text.bytes().filter_map(|byte| self.bytes[byte as usize])),
            }
        }
    }
}

/// A score in a total order; a score that is not a number has a place too.
#[derive(Clone, Copy)]
struct Score(f32);

impl Score {
    /// Adding zero makes the two zeros one.
    fn new(score: f32) -> Score {
        Score(score + 0.0)
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Score {}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: [(&str, f32); 12] = [
        ("a", -9.0),
        ("b", -9.0),
        ("c", -9.0),
        ("ab", -1.0),
        ("bc", -0.5),
        ("abc", -3.0),
        ("▁", -9.0),
        ("▁a", -2.0),
        ("▁▁", -0.0),
        ("<0xC3>", 0.0),
        ("<0xA9>", 0.0),
        ("cc", f32::NAN),
    ];
    const UNKNOWN: u32 = 99;

    fn check(text: &str, space_before: bool, expected: &[&str]) {
        let tokens = TOKENS.iter().zip(0..).map(|((text, score), id)| (Box::from(*text), id, *score));
        let piece = SentencePiece::new(tokens, Some(UNKNOWN));
        let mut ids = Vec::new();
        piece.encode(text, space_before, &mut ids);
        let name = |id: &u32| TOKENS.get(*id as usize).map_or("?", |(text, _)| *text);
        assert_eq!(ids.iter().map(name).collect::<Vec<_>>(), expected, "{text:?}");
    }

    #[test]
    fn merges_by_score() {
        check("", false, &[]);
        check("ab", false, &["ab"]);
        check("abc", false, &["abc"]); // bc first, then a + bc
        check("a b", false, &["a", "▁", "b"]);
        check("  a", false, &["▁▁", "a"]);
        check("cccc", false, &["cc", "cc"]);
    }

    #[test]
    fn space_before_the_text() {
        check("a", true, &["▁a"]);
        check("", true, &["▁"]);
    }

    #[test]
    fn no_token_is_bytes_or_unknown() {
        check("é", false, &["<0xC3>", "<0xA9>"]);
        check("aéz", false, &["a", "<0xC3>", "<0xA9>", "?"]);
    }

    #[test]
    fn empty_vocabulary() {
        let mut ids = Vec::new();
        SentencePiece::new(std::iter::empty(), None).encode("a b é", true, &mut ids);
        assert!(ids.is_empty());
    }
}
