//! Special tokens in text: user-defined and control tokens are found first, what lies between them is tokenised.
//!
//! The longest text goes first over the whole input, then the next longest over what remains, each from the left and
//! without overlap; of equal lengths the lower id. That is not the leftmost-longest match: in `<a>>` with the tokens
//! `<a` and `a>>`, the second wins. One pass finds which tokens occur at all, so a vocabulary of thousands costs no
//! more than the few that a text contains.

use std::cmp::Reverse;
use std::ops::Range;

use aho_corasick::AhoCorasick;
use memchr::memmem;

use crate::error::TextError;

/// The special tokens of a vocabulary, in the order in which they are looked for.
pub(crate) struct Specials {
    tokens: Vec<Special>,
    automaton: AhoCorasick,
}

/// A token that is matched in text before anything is cut.
pub(crate) struct Special {
    /// Its id.
    pub(crate) id: u32,
    /// Its text.
    pub(crate) text: Box<str>,
    /// Whether it is matched only where special tokens are read: a control token, not a user-defined one.
    pub(crate) control: bool,
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A special token.
    Token(u32),
    /// Bytes of the text, at borders of characters.
    Raw(Range<usize>),
}

impl Specials {
    /// Sorts the tokens and makes them searchable. Empty texts are left out.
    ///
    /// # Errors
    /// [`TextError::SpecialTokens`] if there are more than can be searched for.
    pub(crate) fn new(mut tokens: Vec<Special>) -> Result<Specials, TextError> {
        tokens.retain(|token| !token.text.is_empty());
        tokens.sort_by_key(|token| (Reverse(token.text.len()), token.id));
        let automaton = AhoCorasick::new(tokens.iter().map(|token| token.text.as_bytes())).map_err(|_| {
            let bytes = tokens.iter().map(|token| token.text.len()).sum();
            TextError::SpecialTokens { count: tokens.len(), bytes }
        })?;
        Ok(Specials { tokens, automaton })
    }

    /// The parts of `text` in order; control tokens are found only with `special`.
    pub(crate) fn split(&self, text: &str, special: bool) -> Vec<Part> {
        let mut parts = Vec::new();
        if !text.is_empty() {
            parts.push(Part::Raw(0..text.len()));
        }
        for token in self.occurring(text, special) {
            let finder = memmem::Finder::new(token.text.as_bytes());
            let mut next = Vec::with_capacity(parts.len() + 2);
            for part in parts {
                match part {
                    Part::Token(_) => next.push(part),
                    Part::Raw(range) => {
                        let mut start = range.start;
                        for found in finder.find_iter(text[range.clone()].as_bytes()) {
                            let found = range.start + found;
                            push_raw(&mut next, start..found);
                            next.push(Part::Token(token.id));
                            start = found + token.text.len();
                        }
                        push_raw(&mut next, start..range.end);
                    }
                }
            }
            parts = next;
        }
        parts
    }

    /// The tokens whose text occurs somewhere, in the order in which they are looked for.
    fn occurring(&self, text: &str, special: bool) -> impl Iterator<Item = &Special> {
        let mut occurs = vec![false; self.tokens.len()];
        if !self.tokens.is_empty() {
            for found in self.automaton.find_overlapping_iter(text) {
                occurs[found.pattern().as_usize()] = true;
            }
        }
        let wanted = move |token: &Special| special || !token.control;
        self.tokens
            .iter()
            .zip(occurs)
            .filter(move |(token, occurs)| *occurs && wanted(token))
            .map(|(token, _)| token)
    }
}

fn push_raw(parts: &mut Vec<Part>, range: Range<usize>) {
    if !range.is_empty() {
        parts.push(Part::Raw(range));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens are numbered from 0; the parts are written as `id` or the raw text.
    fn check(tokens: &[(&str, bool)], text: &str, special: bool, expected: &[&str]) {
        let tokens = tokens.iter().zip(0..);
        let tokens =
            tokens.map(|((text, control), id)| Special { id, text: (*text).into(), control: *control });
        let specials = Specials::new(tokens.collect()).unwrap();
        let parts = specials.split(text, special).into_iter().map(|part| match part {
            Part::Token(id) => id.to_string(),
            Part::Raw(range) => text[range].to_string(),
        });
        assert_eq!(parts.collect::<Vec<_>>(), expected, "{text:?} special {special}");
    }

    #[test]
    fn control_only_when_special_user_defined_always() {
        let tokens = [("<s>", true), ("<t>", false)];
        check(&tokens, "", true, &[]);
        check(&tokens, "a<s>b<t><t>", true, &["a", "0", "b", "1", "1"]);
        check(&tokens, "a<s>b<t><t>", false, &["a<s>b", "1", "1"]);
        check(&[], "a<s>", true, &["a<s>"]);
    }

    #[test]
    fn longest_first_over_the_whole_text() {
        check(&[("<a", true), ("a>>", true)], "<a>>", true, &["<", "1"]);
        check(
            &[("\n", false), ("\n\n", false), ("\n\n\n", false)],
            "\n\n\n\n\nx\n\n",
            false,
            &["2", "1", "x", "1"],
        );
    }

    #[test]
    fn hidden_tokens_do_not_take_part() {
        check(&[("<ab>", true), ("ab", false)], "<ab>", false, &["<", "1", ">"]);
        check(&[("<ab>", true), ("ab", false)], "<ab>", true, &["0"]);
    }

    #[test]
    fn equal_texts_and_empty_texts() {
        check(&[("", true), ("x", true), ("x", true)], "axa", true, &["a", "1", "a"]);
    }

    #[test]
    fn borders_are_characters() {
        check(&[("é", true), ("😀", true)], "aé😀ü", true, &["a", "0", "1", "ü"]);
    }
}
