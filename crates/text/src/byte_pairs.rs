//! Byte-level BPE: a word's bytes become one symbol each, and listed pairs merge in the order of the list.
//!
//! Each text that a symbol can have is a *piece* with a number: first the 256 characters of the byte alphabet, then
//! both sides and the result of every merge. So a merge is one look-up of two numbers, whatever their length.
//! Source: Sennrich et al. 2016; Radford et al. 2019.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::byte_level;
use crate::error::TextError;
use crate::merge::Merger;
use crate::split::PreTokenizer;

/// The tables of one vocabulary.
pub(crate) struct BytePairs {
    pre: PreTokenizer,
    merges: HashMap<(u32, u32), Merge>,
    /// The token of each piece.
    tokens: Vec<Option<u32>>,
    /// What is written for a piece that is no token: the tokens of its ASCII characters. Bytes whose character is not
    /// ASCII are dropped, as the reference tokenisers drop them; no such byte occurs in ordinary text.
    broken: HashMap<u32, Vec<u32>>,
}

/// How soon two pieces merge, and the piece that they become.
#[derive(Clone, Copy)]
struct Merge {
    rank: u32,
    piece: u32,
}

impl BytePairs {
    /// Numbers all pieces of `merges`; `token` gives the id of a text.
    ///
    /// # Errors
    /// [`TextError::Merge`] for an entry without a space, [`TextError::TooMany`] if the pieces outnumber 32 bits.
    pub(crate) fn new(
        pre: PreTokenizer,
        merges: &[String],
        token: impl Fn(&str) -> Option<u32>,
    ) -> Result<BytePairs, TextError> {
        // Every merge adds at most three pieces to the 256 of the bytes.
        let limit = (u32::MAX as usize - 256) / 3;
        if merges.len() > limit {
            return Err(TextError::TooMany { key: "tokenizer.ggml.merges", limit, found: merges.len() });
        }
        let mut pieces = Pieces::default();
        for byte in 0..=u8::MAX {
            pieces.number(byte_level::character(byte).to_string());
        }
        let mut table = HashMap::with_capacity(merges.len());
        for (rank, merge) in (0u32..).zip(merges) {
            let (left, right) = parts(merge).ok_or_else(|| TextError::Merge {
                index: rank as usize,
                found: merge.chars().take(80).collect(),
            })?;
            let piece = pieces.number([left, right].concat());
            let pair = (pieces.number(left.to_string()), pieces.number(right.to_string()));
            // A pair that is listed twice merges by its first place.
            table.entry(pair).or_insert(Merge { rank, piece });
        }
        let mut tokens = vec![None; pieces.numbers.len()];
        let mut broken = HashMap::new();
        for (text, piece) in &pieces.numbers {
            tokens[*piece as usize] = token(text);
            if tokens[*piece as usize].is_none() {
                let ascii = text.chars().filter(char::is_ascii);
                broken.insert(*piece, ascii.filter_map(|c| token(c.encode_utf8(&mut [0; 4]))).collect());
            }
        }
        Ok(BytePairs { pre, merges: table, tokens, broken })
    }

    /// Appends the tokens of `text`.
    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let mut merger = Merger::new();
        let mut symbols = Vec::new();
        self.pre.words(text, |word| {
            symbols.clear();
            symbols.extend(word.bytes().map(u32::from)); // the pieces of bytes are numbered by the byte
            merger.run(&mut symbols, |left, right| {
                self.merges.get(&(left, right)).map(|merge| (Reverse(merge.rank), merge.piece))
            });
            for piece in &symbols {
                match self.tokens[*piece as usize] {
                    Some(token) => ids.push(token),
                    None => ids.extend(self.broken.get(piece).into_iter().flatten()),
                }
            }
        });
    }
}

/// The numbers of texts, in the order in which they were first seen.
#[derive(Default)]
struct Pieces {
    numbers: HashMap<String, u32>,
}

impl Pieces {
    fn number(&mut self, text: String) -> u32 {
        // The caller has bounded the count of texts.
        let next = self.numbers.len() as u32;
        *self.numbers.entry(text).or_insert(next)
    }
}

/// The two sides of a merge; the left one may begin with a space.
fn parts(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let space = first + merge[first..].find(' ')?;
    Some((&merge[..space], &merge[space + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: [&str; 10] = ["a", "b", "c", "ab", "bc", "abc", "Ġ", "Ġa", "Ã", "Ã©"];
    const MERGES: [&str; 6] = ["b c", "a b", "a bc", "Ġ a", "Ã ©", "x y"];

    fn check(text: &str, expected: &[&str]) {
        let merges = MERGES.map(String::from);
        let token = |text: &str| TOKENS.iter().position(|token| *token == text).map(|id| id as u32);
        let pairs = BytePairs::new(PreTokenizer::Smollm, &merges, token).unwrap();
        let mut ids = Vec::new();
        pairs.encode(text, &mut ids);
        let found: Vec<_> = ids.iter().map(|id| TOKENS[*id as usize]).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn merges_by_rank() {
        check("", &[]);
        check("ab", &["ab"]);
        check("abc", &["abc"]);
        check("bcab", &["bc", "ab"]);
        check("a ab a", &["a", "Ġ", "ab", "Ġa"]);
    }

    #[test]
    fn bytes_of_one_character() {
        check("é", &["Ã©"]);
        check("ã", &["Ã"]); // its second byte has no token and is dropped
    }

    #[test]
    fn piece_without_token_is_its_ascii_characters() {
        check("xy", &[]);
        let token = |text: &str| ["x", "y"].iter().position(|token| *token == text).map(|id| id as u32);
        let pairs = BytePairs::new(PreTokenizer::Qwen2, &["x y".to_string()], token).unwrap();
        let mut ids = Vec::new();
        pairs.encode("xyx", &mut ids);
        assert_eq!(ids, [0, 1, 0]);
    }

    #[test]
    fn hostile_merges() {
        for found in ["", "a", "ab", " ", "é"] {
            let error = BytePairs::new(PreTokenizer::Smollm, &["a b".into(), found.into()], |_| None).err();
            assert!(matches!(error, Some(TextError::Merge { index: 1, .. })), "{found:?}: {error:?}");
        }
        let odd = ["a ", "  ", "a b c", "é é", "a b"].map(String::from);
        let pairs = BytePairs::new(PreTokenizer::Smollm, &odd, |_| Some(7)).unwrap();
        let mut ids = Vec::new();
        pairs.encode("a b c é", &mut ids);
        assert!(ids.iter().all(|id| *id == 7));
    }
}
