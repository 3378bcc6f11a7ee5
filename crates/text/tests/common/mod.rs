//! Small vocabularies that spell everything, for tests without a model file.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(dead_code, reason = "each test file compiles this module and uses its own part of it")]

use apprentice_text::{Text, TokenKind, Vocabulary};

/// Byte-level BPE: 256 bytes, the results of `merges`, then `<|im_start|>`, `<|im_end|>` and the user's `<tool>`.
pub fn byte_level(pre: &str, merges: &[&str]) -> Vocabulary {
    let visible = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut tokens: Vec<String> = (0..=u8::MAX).map(|byte| char::from(byte).to_string()).collect();
    for (hidden, byte) in (0..=u8::MAX).filter(|byte| !visible(byte)).enumerate() {
        tokens[usize::from(byte)] = char::from_u32(0x100 + hidden as u32).unwrap().to_string();
    }
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    let specials = [("<|im_start|>", TokenKind::Control), ("<|im_end|>", TokenKind::Control)];
    for (text, kind) in specials.into_iter().chain([("<tool>", TokenKind::UserDefined)]) {
        tokens.push(text.to_string());
        kinds.push(kind);
    }
    let id = |text: &str| tokens.iter().position(|token| token == text).map(|id| id as u32);
    Vocabulary {
        model: "gpt2".into(),
        pre: Some(pre.into()),
        bos: id("<|im_start|>"),
        eos: id("<|im_end|>"),
        merges: merges.iter().map(|merge| merge.to_string()).collect(),
        tokens,
        kinds,
        ..Vocabulary::default()
    }
}

/// SentencePiece: marks, 256 bytes, `pieces` with scores falling in their order, and the user's newlines.
pub fn sentence_piece(pieces: &[&str]) -> Vocabulary {
    let mut tokens: Vec<(String, TokenKind)> = vec![
        ("<unk>".into(), TokenKind::Unknown),
        ("<s>".into(), TokenKind::Control),
        ("</s>".into(), TokenKind::Control),
        ("<end_of_turn>".into(), TokenKind::Control),
        ("\n\n".into(), TokenKind::UserDefined),
    ];
    tokens.extend((0..=u8::MAX).map(|byte| (format!("<0x{byte:02X}>"), TokenKind::Byte)));
    let first = tokens.len();
    tokens.extend(pieces.iter().map(|piece| (piece.to_string(), TokenKind::Normal)));
    Vocabulary {
        model: "llama".into(),
        scores: (0..tokens.len()).map(|id| if id < first { 0.0 } else { first as f32 - id as f32 }).collect(),
        kinds: tokens.iter().map(|(_, kind)| *kind).collect(),
        tokens: tokens.into_iter().map(|(text, _)| text).collect(),
        ..Vocabulary::default()
    }
}

/// The spellings of `ids`.
pub fn spell(text: &Text, ids: &[u32]) -> Vec<String> {
    ids.iter().map(|id| text.spelling(*id).unwrap_or("?").to_string()).collect()
}
