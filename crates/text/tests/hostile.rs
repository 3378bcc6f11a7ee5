//! Vocabularies that lie, and texts that would cost a square of their length.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::time::{Duration, Instant};

use apprentice_text::{EncodeOptions, Text, TextError, TokenKind, Vocabulary};
use common::{byte_level, sentence_piece};

/// `expected` is a part of the message.
fn check_refused(vocabulary: Vocabulary, expected: &str) {
    let error = Text::new(vocabulary).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains(expected), "expected {expected:?}, found {error:?}");
}

#[test]
fn refused_by_name() {
    let good = || byte_level("smollm", &["a b"]);
    check_refused(Vocabulary { model: "none".into(), ..good() }, "the file has no tokeniser (found none)");
    check_refused(Vocabulary { model: "bert".into(), ..good() }, "expected gpt2 or llama, found \"bert\"");
    check_refused(
        Vocabulary { pre: Some("llama-bpe".into()), ..good() },
        "expected smollm or qwen2, found llama-bpe",
    );
    check_refused(Vocabulary { pre: None, ..good() }, "expected smollm or qwen2, found nothing");
    check_refused(Vocabulary { merges: Vec::new(), ..good() }, "tokenizer.ggml.merges");
    check_refused(Vocabulary { merges: vec!["ab".into()], ..good() }, "merges[0]: expected two pieces");
    check_refused(Vocabulary { tokens: Vec::new(), kinds: Vec::new(), ..good() }, "tokenizer.ggml.tokens");
    check_refused(
        Vocabulary { kinds: vec![TokenKind::Normal; 3], ..good() },
        "token_type: expected 260 entries",
    );
    check_refused(
        Vocabulary { scores: vec![0.0; 3], ..sentence_piece(&["a"]) },
        "scores: expected 262 entries",
    );
    check_refused(
        Vocabulary { add_bos: Some(true), bos: Some(260), ..good() },
        "bos_token_id names no token",
    );
    check_refused(Vocabulary { add_eos: Some(true), eos: None, ..good() }, "eos_token_id names no token");
}

#[test]
fn errors_have_kinds() {
    let error = Text::new(Vocabulary { model: "none".into(), ..Vocabulary::default() }).err();
    assert!(matches!(&error, Some(TextError::NoTokenizer { .. })));
    let text = Text::new(byte_level("smollm", &["a b"])).unwrap();
    assert!(matches!(text.prompt(&Default::default()), Err(TextError::NoTemplate)));
}

#[test]
fn odd_vocabularies_still_spell() {
    let odd = [
        // Every id out of range, every text the same, no texts at all, numbers that are none.
        Vocabulary { bos: Some(u32::MAX), eos: Some(u32::MAX), ..byte_level("qwen2", &["a b"]) },
        Vocabulary { tokens: vec!["a".into(); 300], kinds: Vec::new(), ..byte_level("qwen2", &["a a"]) },
        Vocabulary { tokens: vec![String::new(); 300], kinds: Vec::new(), ..byte_level("qwen2", &["a  "]) },
        Vocabulary {
            kinds: vec![TokenKind::Control; 300],
            tokens: vec![String::new(); 300],
            ..byte_level("smollm", &["é é"])
        },
        Vocabulary { scores: vec![f32::NAN; 264], ..sentence_piece(&["a", "aa", "▁a"]) },
        Vocabulary { scores: vec![f32::INFINITY; 264], ..sentence_piece(&["a", "aa", "▁a"]) },
        Vocabulary { kinds: vec![TokenKind::UserDefined; 264], ..sentence_piece(&["a", "aa", "▁a"]) },
        Vocabulary { kinds: vec![TokenKind::Byte; 264], ..sentence_piece(&["a", "é", ""]) },
    ];
    for (index, vocabulary) in odd.into_iter().enumerate() {
        let count = vocabulary.tokens.len();
        let text = Text::new(vocabulary).unwrap_or_else(|error| panic!("{index}: {error}"));
        for special in [false, true] {
            let ids = text.encode("aaa a\n\né <0x41> [EMPTY_3] 😀", EncodeOptions { special, bos: true });
            assert!(ids.iter().all(|id| (*id as usize) < count), "{index}: {ids:?}");
            text.decode(&ids, special).unwrap_or_else(|error| panic!("{index}: {error}"));
        }
    }
}

/// A quarter of a megabyte of `unit` takes a fraction of a second; a square of its length would take minutes.
fn check_time(text: &Text, unit: &str) {
    let input = unit.repeat((1 << 18) / unit.len());
    let start = Instant::now();
    let ids = text.encode(&input, EncodeOptions { special: true, bos: false });
    let elapsed = start.elapsed();
    assert_eq!(text.decode(&ids, true).unwrap(), input, "{unit:?}");
    assert!(elapsed < Duration::from_secs(10), "{unit:?} took {elapsed:?}");
}

#[test]
fn long_texts_take_linear_time() {
    let merges = ["a a", "aa aa", "aaaa aaaa", "Ġ Ġ", "ĠĠ ĠĠ", "ð Ł", "ðŁ ĺ"];
    let units = [
        "a",
        " ",
        "\n",
        "😀",
        "1",
        "ab",
        " a",
        "\r\n",
        "e\u{301}",
        "<",
        "<|im_end|>",
        "<|im_",
        "'s",
        "a\u{200d}",
    ];
    for pre in ["smollm", "qwen2"] {
        let text = Text::new(byte_level(pre, &merges)).unwrap();
        units.iter().for_each(|unit| check_time(&text, unit));
    }
    let vocabulary = sentence_piece(&["a", "aa", "aaaa", "▁", "▁▁", "▁a"]);
    let text = Text::new(Vocabulary { add_space_prefix: Some(false), ..vocabulary }).unwrap();
    units.iter().for_each(|unit| check_time(&text, unit));
}
