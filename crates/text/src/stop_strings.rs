//! Stop strings: a reply ends before the first of them, though its text comes in pieces.
//!
//! A stop string may be spread over several pieces, so text that may still become one is held back until it is one or
//! cannot be any more: the longest end of the text that some stop string begins with. Of several, the one that is
//! complete first counts, and of those that are complete at once the one that begins first. So what comes out does not
//! depend on how the text was cut.
//!
//! Each string is followed by the automaton of Knuth, Morris and Pratt 1977: a byte costs a constant time, whatever
//! the strings are.

use crate::error::TextError;

/// Watches the text of one reply. A clone of a fresh one watches another.
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    strings: Vec<Watched>,
    /// The end of the text, which is not written yet.
    held: String,
    stopped: bool,
}

/// A stop string, and how much of it the text ends in.
#[derive(Clone, Debug)]
struct Watched {
    bytes: Vec<u8>,
    /// For each count of first bytes but none: the longest shorter beginning of the string that they end in.
    fallback: Vec<usize>,
    /// Bytes of the longest beginning of the string that the text ends in.
    matched: usize,
}

impl StopStrings {
    /// Watches for `strings`; without any, text goes through as it is.
    ///
    /// # Errors
    /// [`TextError::EmptyStopString`]: an empty string is in every text.
    pub fn new(strings: impl IntoIterator<Item = impl AsRef<str>>) -> Result<StopStrings, TextError> {
        let watched = strings.into_iter().enumerate().map(|(index, string)| match string.as_ref() {
            "" => Err(TextError::EmptyStopString { index }),
            string => Ok(Watched::new(string)),
        });
        Ok(StopStrings { strings: watched.collect::<Result<_, _>>()?, ..StopStrings::default() })
    }

    /// The text that `piece` sets free, whole characters only, and whether a stop string has come. After that nothing
    /// more comes out.
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        if self.stopped {
            return (String::new(), true);
        }
        let held_before = self.held.len();
        self.held += piece;
        for (index, byte) in piece.bytes().enumerate() {
            if let Some(length) = self.advance(byte) {
                // A stop string begins in what is held: it was held back from its first byte on.
                let mut text = std::mem::take(&mut self.held);
                text.truncate(held_before + index + 1 - length);
                self.stopped = true;
                return (text, true);
            }
        }
        // Both ends of a cut are characters: what is held begins as a stop string does.
        let held = self.strings.iter().map(|string| string.matched).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - held);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The text that was held back in vain, at the end of a reply that no stop string ended.
    pub fn finish(&mut self) -> String {
        self.strings.iter_mut().for_each(|string| string.matched = 0);
        std::mem::take(&mut self.held)
    }

    /// Whether a stop string has come.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Takes a byte; gives the bytes of the longest stop string that it completes.
    fn advance(&mut self, byte: u8) -> Option<usize> {
        self.strings.iter_mut().filter_map(|string| string.advance(byte)).max()
    }
}

impl Watched {
    fn new(string: &str) -> Watched {
        let bytes = string.as_bytes().to_vec();
        let mut fallback = vec![0];
        for (index, byte) in bytes.iter().enumerate().skip(1) {
            let longest = longer(&bytes, &fallback, fallback[index - 1], *byte);
            fallback.push(longest);
        }
        Watched { bytes, fallback, matched: 0 }
    }

    fn advance(&mut self, byte: u8) -> Option<usize> {
        self.matched = longer(&self.bytes, &self.fallback, self.matched, byte);
        Some(self.matched).filter(|matched| *matched == self.bytes.len())
    }
}

/// Bytes of the longest beginning of `bytes` that a text ends in, which ended in the first `matched` and goes on with
/// `byte`. `matched` is below the length of `bytes`.
fn longer(bytes: &[u8], fallback: &[usize], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && bytes[matched] != byte {
        matched = fallback[matched - 1];
    }
    matched + usize::from(bytes[matched] == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out at each piece and then at the end. Nothing may come after a stop.
    fn check(strings: &[&str], pieces: &[&str], expected: &[&str], stopped: bool) {
        let mut stop = StopStrings::new(strings).unwrap();
        let mut found: Vec<String> = pieces.iter().map(|piece| stop.push(piece).0).collect();
        found.push(stop.finish());
        assert_eq!(found, expected, "{strings:?} {pieces:?}");
        assert_eq!(stop.stopped(), stopped, "{strings:?} {pieces:?}");
    }

    #[test]
    fn text_goes_through_where_there_is_nothing_to_stop_at() {
        check(&[], &["a", "", "b"], &["a", "", "b", ""], false);
        check(&["x"], &["ab", "c"], &["ab", "c", ""], false);
    }

    #[test]
    fn a_beginning_is_held_back_until_it_is_known() {
        check(&["###"], &["a#", "#", "b"], &["a", "", "##b", ""], false);
        check(&["###"], &["a#", "#", "#b", "c"], &["a", "", "", "", ""], true);
        check(&["###"], &["a##"], &["a", "##"], false);
        check(&["abab"], &["aba", "abab"], &["", "aba", ""], true);
        check(&["aab"], &["aaaa", "b"], &["aa", "", ""], true);
    }

    #[test]
    fn the_one_complete_first_ends_the_reply() {
        check(&["abcd", "bc"], &["xab", "cd"], &["x", "a", ""], true);
        check(&["abc", "bc", "c"], &["xabcd"], &["x", ""], true);
        check(&["b", "bc"], &["abc"], &["a", ""], true);
        check(&["User:", "\n\n"], &["hi\n", "\nUser:"], &["hi", "", ""], true);
    }

    #[test]
    fn characters_stay_whole() {
        check(&["é"], &["aè", "é"], &["aè", "", ""], true);
        check(&["😀😀"], &["a😀", "😁"], &["a", "😀😁", ""], false);
        check(&["→é"], &["→", "→", "è"], &["", "→", "→è", ""], false);
    }

    #[test]
    fn an_empty_string_is_refused() {
        let error = StopStrings::new(["a", ""]).unwrap_err();
        assert!(matches!(error, TextError::EmptyStopString { index: 1 }), "{error:?}");
    }

    /// The text before the stop string that is complete first, by looking at every beginning of the text.
    fn naive<'a>(strings: &[String], text: &'a str) -> (&'a str, bool) {
        for end in text.char_indices().map(|(index, character)| index + character.len_utf8()) {
            let completed = strings.iter().filter(|string| text[..end].ends_with(string.as_str()));
            if let Some(length) = completed.map(String::len).max() {
                return (&text[..end - length], true);
            }
        }
        (text, false)
    }

    /// The most that may be out after `text`: all but an end that a stop string begins with.
    fn naive_free<'a>(strings: &[String], text: &'a str) -> &'a str {
        let mut ends = text.char_indices().map(|(index, _)| index);
        let begins = |end: &str| strings.iter().any(|string| string.starts_with(end));
        &text[..ends.find(|index| begins(&text[*index..])).unwrap_or(text.len())]
    }

    #[test]
    fn random_texts_agree_with_a_plain_search() {
        let seed = 3u64;
        let mut state = seed;
        let mut below = |count: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % count
        };
        let mut stops = 0;
        for round in 0..20_000 {
            let mut word = |length: u64| -> String {
                (0..length).map(|_| ['a', 'b', 'é', 'è'][below(4) as usize]).collect()
            };
            let (count, lengths) = (round % 4, [1, 2, 3, 5, 8]);
            let strings: Vec<String> = (0..count).map(|index| word(lengths[(round + index) % 5])).collect();
            let pieces: Vec<String> = (0..12).map(|index| word([0, 1, 2, 4][(round + index) % 4])).collect();
            let at = format!("seed {seed} round {round} {strings:?} {pieces:?}");
            let whole = pieces.concat();
            let (expected, stopped) = naive(&strings, &whole);
            let mut stop = StopStrings::new(&strings).unwrap();
            let (mut text, mut given) = (String::new(), String::new());
            for piece in &pieces {
                let (free, stopped) = stop.push(piece);
                given += piece;
                text += &free;
                if !stopped {
                    assert_eq!(text, naive_free(&strings, &given), "{at}");
                }
            }
            text += &stop.finish();
            assert_eq!((text.as_str(), stop.stopped()), (expected, stopped), "{at}");
            stops += usize::from(stopped);
        }
        assert!((5_000..15_000).contains(&stops), "{stops} of the texts stop");
    }
}
