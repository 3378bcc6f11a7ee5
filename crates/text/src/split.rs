//! Pre-tokenisers: text is cut into words, and byte-level BPE never merges across a cut.
//!
//! The published patterns are
//!
//! ```text
//! smollm  \p{N}, then what lies between by
//!         's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//! qwen2   '[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}
//!         | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//! ```
//!
//! and they are read here by hand, an alternative a step: each looks at a character at most twice, so the time is
//! linear whatever the text, which a backtracking matcher of look-ahead does not promise.

use crate::character::{Class, run};

/// A way to cut text into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreTokenizer {
    /// Digits one by one, then the words of GPT-2.
    Smollm,
    /// Contractions in either case; a word takes one leading character; newlines end punctuation.
    Qwen2,
}

impl PreTokenizer {
    /// The pre-tokeniser of a name in `tokenizer.ggml.pre`.
    pub(crate) fn from_name(name: &str) -> Option<PreTokenizer> {
        match name {
            "smollm" => Some(PreTokenizer::Smollm),
            "qwen2" => Some(PreTokenizer::Qwen2),
            _ => None,
        }
    }

    /// Calls `word` with each word of `text`, in order; together they are `text`.
    pub(crate) fn words<'t>(self, text: &'t str, mut word: impl FnMut(&'t str)) {
        match self {
            PreTokenizer::Smollm => {
                let mut rest = text;
                while !rest.is_empty() {
                    // A number ends the segment before it, so that segment's last blanks have nothing after them.
                    let (segment, after) = rest.split_at(run(rest, |c| Class::of(c) != Class::Number));
                    each(segment, gpt2_word, &mut word);
                    let (number, after) = after.split_at(first_length(after));
                    if !number.is_empty() {
                        word(number);
                    }
                    rest = after;
                }
            }
            PreTokenizer::Qwen2 => each(text, qwen2_word, &mut word),
        }
    }
}

/// Cuts `text` by a function that gives the length of its first word, in bytes and at least one character.
fn each<'t>(mut text: &'t str, length: impl Fn(&str) -> usize, word: &mut impl FnMut(&'t str)) {
    while !text.is_empty() {
        let (first, rest) = text.split_at(length(text));
        word(first);
        text = rest;
    }
}

fn gpt2_word(text: &str) -> usize {
    if let Some(length) = contraction(text, |c| c) {
        return length;
    }
    let space = usize::from(text.starts_with(' '));
    if let Some(class) = text[space..].chars().next().map(Class::of).filter(|class| *class != Class::Space) {
        return space + run(&text[space..], |c| Class::of(c) == class);
    }
    blank_word(text)
}

fn qwen2_word(text: &str) -> usize {
    if let Some(length) = contraction(text, |c| c.to_ascii_lowercase()) {
        return length;
    }
    let mut characters = text.chars();
    let Some(first) = characters.next() else { return 0 };
    let class = Class::of(first);
    let letters_from = match class {
        Class::Letter => Some(0),
        Class::Number => return first.len_utf8(),
        Class::Space | Class::Other if first == '\r' || first == '\n' => None,
        Class::Space | Class::Other => {
            characters.next().filter(|c| Class::of(*c) == Class::Letter).map(|_| first.len_utf8())
        }
    };
    if let Some(from) = letters_from {
        return from + run(&text[from..], |c| Class::of(c) == Class::Letter);
    }
    let space = usize::from(text.starts_with(' '));
    let marks = space + run(&text[space..], |c| Class::of(c) == Class::Other);
    if marks > space {
        return marks + run(&text[marks..], |c| c == '\r' || c == '\n');
    }
    let blank = run(text, |c| Class::of(c) == Class::Space);
    match text[..blank].rfind(['\r', '\n']) {
        Some(last) => last + 1,
        None => blank_word(text),
    }
}

/// `\s+(?!\S)|\s+` where `text` begins with a blank: its blanks, without the last of several where a word follows.
fn blank_word(text: &str) -> usize {
    let blank = run(text, |c| Class::of(c) == Class::Space);
    let last = text[..blank].chars().next_back().map_or(0, char::len_utf8);
    if blank < text.len() && blank > last { blank - last } else { blank }
}

/// `'s|'t|'re|'ve|'m|'ll|'d` at the start of `text`, its letters first changed by `fold`.
fn contraction(text: &str, fold: impl Fn(char) -> char) -> Option<usize> {
    let mut letters = text.strip_prefix('\'')?.chars().map(fold);
    match (letters.next()?, letters.next()) {
        ('s' | 't' | 'm' | 'd', _) => Some(2),
        ('r' | 'v', Some('e')) | ('l', Some('l')) => Some(3),
        _ => None,
    }
}

/// The bytes of the first character.
fn first_length(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words are written with `|` between them.
    fn check(pre: PreTokenizer, expected: &str) {
        let text = expected.replace('|', "");
        let mut words = Vec::new();
        pre.words(&text, |word| words.push(word));
        assert_eq!(words.join("|"), expected, "{pre:?}");
    }

    #[test]
    fn smollm_words() {
        for expected in [
            "",
            "Hello|,| world|!",
            "I|'m| you|'re| he|'s| o|'|clock| I|'|M",
            "a| b|  | c|\n\n|\n|d|  ",
            "x| |1|2|3|   |4| years",
            " '|s|’|s",
            "a|\t|b|\t| c",
            "½|²|٣|x| |½",
            " 你好|，|世界| 😀| 🚀🚀",
            "e|\u{301}|t",
            "\u{a0}|b|\u{2003}|c|\u{200b}|d|\u{3000}|\u{3000}|x",
            "a|\r\n|\r|b",
        ] {
            check(PreTokenizer::Smollm, expected);
        }
    }

    #[test]
    fn qwen2_words() {
        for expected in [
            "",
            "Hello|,| world|!",
            "I|'M| YOU|'Re|'LL| o|'clock|''|S|'S",
            "a| b|  | c|\n\n\n|d|  ",
            "x| |1|2|3|  | |4| years",
            "\tx|.y|(z|)\r\n\n\r\n| \n| | w",
            "\u{3000}x|\u{a0}y|\u{301}t|\u{301}!",
            "  \n \n| | x| !!\n|x| !!\r\n\n|\t",
            " 😀|x| 😀\n",
            "½|²| |½",
        ] {
            check(PreTokenizer::Qwen2, expected);
        }
    }

    #[test]
    fn unknown_names_are_none() {
        assert_eq!(PreTokenizer::from_name("smollm"), Some(PreTokenizer::Smollm));
        assert_eq!(PreTokenizer::from_name("qwen2"), Some(PreTokenizer::Qwen2));
        assert_eq!(PreTokenizer::from_name("default"), None);
    }
}
