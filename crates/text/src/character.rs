//! Classes of characters that pre-tokenisers tell apart: letters, numbers, white space and the rest.
//!
//! Letters and numbers are the general categories L and N of Unicode 15.1, the version that the reference tokenisers
//! carry: a character that came later belongs to the rest, so that ids do not change with a library's tables. White
//! space is the property of that name, which has not changed since.

use std::sync::LazyLock;

use regex_syntax::hir::{Class as HirClass, HirKind};

/// What a pre-tokeniser sees of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Letter,
    Number,
    Space,
    Other,
}

impl Class {
    /// The class of one character.
    pub(crate) fn of(character: char) -> Class {
        match ASCII.get(character as usize) {
            Some(class) => *class,
            None => lookup(character),
        }
    }
}

/// The bytes at the start of `text` whose characters all satisfy `holds`.
pub(crate) fn run(text: &str, holds: impl Fn(char) -> bool) -> usize {
    text.char_indices().find(|(_, character)| !holds(*character)).map_or(text.len(), |(index, _)| index)
}

static ASCII: LazyLock<[Class; 128]> =
    LazyLock::new(|| std::array::from_fn(|code| lookup(code as u8 as char)));
static LETTERS: LazyLock<Ranges> = LazyLock::new(|| Ranges::of(r"[\p{L}&&\p{age:15.1}]"));
static NUMBERS: LazyLock<Ranges> = LazyLock::new(|| Ranges::of(r"[\p{N}&&\p{age:15.1}]"));

fn lookup(character: char) -> Class {
    if LETTERS.contains(character) {
        Class::Letter
    } else if NUMBERS.contains(character) {
        Class::Number
    } else if character.is_whitespace() {
        Class::Space
    } else {
        Class::Other
    }
}

/// Ascending ranges of characters, both ends included.
struct Ranges(Vec<(char, char)>);

impl Ranges {
    /// The characters of a bracketed class; the tables behind it are compiled in.
    fn of(class: &str) -> Ranges {
        let parsed = regex_syntax::parse(class).expect("a constant class of known properties parses");
        match parsed.kind() {
            HirKind::Class(HirClass::Unicode(class)) => {
                Ranges(class.ranges().iter().map(|range| (range.start(), range.end())).collect())
            }
            other => unreachable!("a bracketed class parses as a class of characters, not as {other:?}"),
        }
    }

    fn contains(&self, character: char) -> bool {
        let after = self.0.partition_point(|(start, _)| *start <= character);
        after.checked_sub(1).is_some_and(|index| character <= self.0[index].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(class: Class, characters: &str) {
        for character in characters.chars() {
            assert_eq!(Class::of(character), class, "{character:?}");
        }
    }

    #[test]
    fn classes_of_examples() {
        check(Class::Letter, "aZéßЖ中한ʰǅª一\u{1123f}");
        check(Class::Number, "09²½Ⅷ٣〇");
        check(Class::Space, " \t\n\u{b}\u{c}\r\u{85}\u{a0}\u{1680}\u{2009}\u{2028}\u{202f}\u{3000}");
        check(Class::Other, "!_'\u{0}\u{1c}\u{301}\u{200b}\u{200d}\u{feff}😀\u{e000}\u{fffd}€");
    }

    #[test]
    fn tables_are_those_of_unicode_15_1() {
        let count = |class| ('\0'..=char::MAX).filter(|character| Class::of(*character) == class).count();
        assert_eq!(count(Class::Letter), 136_726);
        assert_eq!(count(Class::Number), 1_831);
        assert_eq!(count(Class::Space), 25);
        check(Class::Other, "\u{1c89}\u{a7cb}\u{10d40}"); // letters and a digit of Unicode 16
    }
}
