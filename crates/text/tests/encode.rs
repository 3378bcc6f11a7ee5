//! Text to ids and back through the public door, on small vocabularies.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use apprentice_text::{EncodeOptions, Text, TokenKind, Vocabulary};
use common::{byte_level, sentence_piece, spell};

const PLAIN: EncodeOptions = EncodeOptions { special: false, bos: false };
const SPECIAL: EncodeOptions = EncodeOptions { special: true, bos: false };
const PROMPT: EncodeOptions = EncodeOptions { special: false, bos: true };

fn check(vocabulary: Vocabulary, input: &str, options: EncodeOptions, expected: &[&str]) {
    let text = Text::new(vocabulary).unwrap();
    let ids = text.encode(input, options);
    assert_eq!(spell(&text, &ids), expected, "{input:?} {options:?}");
}

#[test]
fn control_tokens_only_on_request_user_defined_always() {
    let vocabulary = || byte_level("qwen2", &["i m"]);
    let control = &["<", "|", "im", "_", "e", "n", "d", "|", ">"];
    check(vocabulary(), "<|im_end|>", PLAIN, control);
    check(vocabulary(), "<|im_end|>", SPECIAL, &["<|im_end|>"]);
    check(vocabulary(), "a<tool>b", PLAIN, &["a", "<tool>", "b"]);
}

#[test]
fn merges_stay_within_words_and_fragments() {
    let merges = ["Ġ a", "Ġa b", "1 2", "b Ċ"];
    check(byte_level("smollm", &merges), "ab ab12b\n", PLAIN, &["a", "b", "Ġab", "1", "2", "b", "Ċ"]);
    check(byte_level("qwen2", &merges), " a<tool>b", PLAIN, &["Ġa", "<tool>", "b"]);
    check(byte_level("qwen2", &merges), " <tool>ab", PLAIN, &["Ġ", "<tool>", "a", "b"]);
}

#[test]
fn marks_of_a_prompt() {
    check(byte_level("smollm", &["x x"]), "a", PROMPT, &["a"]);
    let with = |add_bos, add_eos| Vocabulary { add_bos, add_eos, ..byte_level("smollm", &["x x"]) };
    check(with(Some(true), None), "a", PROMPT, &["<|im_start|>", "a"]);
    check(with(Some(true), Some(true)), "", PROMPT, &["<|im_start|>", "<|im_end|>"]);
    check(with(Some(true), Some(true)), "a", PLAIN, &["a"]);
    check(sentence_piece(&["▁", "a"]), "a", PROMPT, &["<s>", "▁", "a"]);
    check(Vocabulary { add_bos: Some(false), ..sentence_piece(&["▁", "a"]) }, "a", PROMPT, &["▁", "a"]);
}

#[test]
fn space_before_text_and_after_tokens() {
    let vocabulary = || sentence_piece(&["▁a", "a", "▁"]);
    check(vocabulary(), "a a", PLAIN, &["▁a", "▁a"]);
    check(vocabulary(), "a\n\na", PLAIN, &["▁a", "\n\n", "▁a"]);
    check(vocabulary(), "a</s>a", SPECIAL, &["▁a", "</s>", "▁a"]);
    check(Vocabulary { add_space_prefix: Some(false), ..vocabulary() }, "a a", PLAIN, &["a", "▁a"]);
    check(vocabulary(), "", PLAIN, &[]);
}

#[test]
fn sentence_piece_falls_back_to_bytes() {
    check(sentence_piece(&["▁"]), "é", PLAIN, &["▁", "<0xC3>", "<0xA9>"]);
    let mut unspelt = sentence_piece(&["▁"]);
    unspelt.tokens.retain(|token| token != "<0xA9>");
    (unspelt.kinds, unspelt.scores) = (Vec::new(), Vec::new());
    check(unspelt, "é", PLAIN, &["▁", "<0xC3>", "<unk>"]);
}

#[test]
fn of_equal_texts_the_last_is_written() {
    let mut vocabulary = byte_level("smollm", &["x x"]);
    vocabulary.tokens.push("a".into());
    vocabulary.kinds.push(TokenKind::Normal);
    let last = vocabulary.tokens.len() as u32 - 1;
    assert_eq!(Text::new(vocabulary).unwrap().encode("aba", PLAIN), [last, u32::from(b'b'), last]);
}

/// Decoding gives the text back, whole and streamed id by id.
fn check_round_trip(vocabulary: Vocabulary, input: &str) {
    let text = Text::new(vocabulary).unwrap();
    let ids = text.encode(input, SPECIAL);
    assert_eq!(text.decode(&ids, true).unwrap(), input);
    let mut decoder = text.decoder(true);
    let mut streamed = String::new();
    for id in &ids {
        streamed += &decoder.push(*id).unwrap();
    }
    streamed += &decoder.finish();
    assert!(streamed == input || streamed.strip_prefix(' ') == Some(input), "{streamed:?} {input:?}");
}

#[test]
fn texts_come_back() {
    let texts = [
        "",
        "a",
        " a  b\r\n\t",
        "é 中 😀\u{200d}👍🏽 \u{202e}x",
        "\u{0}\u{1b}[0m\u{7f}",
        "<tool>\n\n<|im_end|> ▁x",
    ];
    for input in texts {
        check_round_trip(byte_level("smollm", &["Ġ a", "Ã ©"]), input);
        check_round_trip(byte_level("qwen2", &["Ġ a", "Ã ©"]), input);
    }
    for input in ["", "a", " a  b\r\n\t", "é 中 😀\u{200d}👍🏽 \u{202e}x", "\u{0}\u{1b}[0m\u{7f}", "a\n\n\n"]
    {
        let vocabulary =
            Vocabulary { add_space_prefix: Some(false), ..sentence_piece(&["▁", "a", "▁a"]) };
        check_round_trip(vocabulary, input);
        check_round_trip(sentence_piece(&["▁", "a", "▁a"]), input.trim_matches('\n'));
    }
}

#[test]
fn what_kinds_write() {
    let mut vocabulary = byte_level("smollm", &["x x"]);
    let kinds =
        [TokenKind::Unused, TokenKind::Undefined, TokenKind::Unknown, TokenKind::Byte, TokenKind::Byte];
    let first = vocabulary.tokens.len() as u32;
    vocabulary.tokens.extend(["[PAD]", "[X]", "<unk>", "<0x41>", "<0xZZ>"].map(String::from));
    vocabulary.kinds.extend(kinds);
    let text = Text::new(vocabulary).unwrap();
    let ids: Vec<u32> = (first..first + 5).collect();
    assert_eq!(text.decode(&ids, false).unwrap(), "A");
    assert_eq!(text.decode(&ids, true).unwrap(), "<unk>A");
    assert!(
        text.decode(&[u32::from(b'a'), first + 5], true).unwrap_err().to_string().starts_with("token 1:")
    );
}

#[test]
fn ends_of_generation() {
    let ends = |vocabulary: Vocabulary| {
        let text = Text::new(vocabulary).unwrap();
        spell(&text, text.end_ids())
    };
    let vocabulary = byte_level("smollm", &["x x"]);
    assert_eq!(ends(vocabulary.clone()), ["<|im_end|>"]);
    assert_eq!(
        ends(Vocabulary { eos: Some(65), eot: Some(66), eom: Some(9999), ..vocabulary }),
        ["A", "B", "<|im_end|>"]
    );
    assert_eq!(ends(sentence_piece(&["a"])), ["</s>", "<end_of_turn>"]);
}
