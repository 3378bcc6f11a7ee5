//! The alphabet of byte-level BPE: one visible character for each byte.
//!
//! A byte that prints in Latin-1 (`!`..`~`, `¡`..`¬`, `®`..`ÿ`) is its own character; the other 68, in ascending
//! order, are U+0100 and following. So a space is `Ġ` and a newline `Ċ`. Source: Radford et al. 2019 (GPT-2).

use std::sync::LazyLock;

/// The character that stands for a byte.
pub(crate) fn character(byte: u8) -> char {
    ALPHABET[byte as usize]
}

/// The byte that a character stands for, if it is one of the alphabet.
pub(crate) fn byte(character: char) -> Option<u8> {
    let code = u32::from(character);
    match u8::try_from(code) {
        Ok(byte) => is_visible(byte).then_some(byte),
        Err(_) => HIDDEN.get(code.checked_sub(FIRST_HIDDEN)? as usize).copied(),
    }
}

const FIRST_HIDDEN: u32 = 0x100;

/// The bytes without a character of their own, ascending.
static HIDDEN: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..=u8::MAX).filter(|byte| !is_visible(*byte)).collect());

static ALPHABET: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut alphabet: [char; 256] = std::array::from_fn(|code| code as u8 as char);
    for (character, byte) in ('\u{100}'..).zip(HIDDEN.iter()) {
        alphabet[*byte as usize] = character;
    }
    alphabet
});

fn is_visible(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        for code in 0..=u8::MAX {
            assert_eq!(byte(character(code)), Some(code));
        }
        assert_eq!(ALPHABET.iter().collect::<std::collections::HashSet<_>>().len(), 256);
    }

    #[test]
    fn known_characters() {
        for (code, expected) in
            [(b' ', 'Ġ'), (b'\n', 'Ċ'), (0, 'Ā'), (0x7f, 'ġ'), (0xad, 'Ń'), (b'a', 'a'), (0xff, 'ÿ')]
        {
            assert_eq!(character(code), expected);
        }
        for character in [' ', '\u{ad}', '\u{144}', '中', char::MAX] {
            assert_eq!(byte(character), None, "{character:?}");
        }
    }
}
