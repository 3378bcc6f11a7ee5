//! Tokens known by their text: what ends a generation, and marks that files sometimes list as ordinary tokens.
//!
//! Model files rarely name all their ends (Qwen's name `<|im_end|>` and mean `<|endoftext|>` too), so texts that have
//! one meaning in every published vocabulary are recognised.

use crate::vocabulary::TokenKind;

/// Whether a control token of this text ends a generation. `</s>` and `<eos>` are not among them: where they end
/// anything the file's `eos_token_id` says so, elsewhere they are HTML.
pub(crate) fn ends_generation(text: &str) -> bool {
    matches!(
        text,
        "<|im_end|>"
            | "<|endoftext|>"
            | "<|end_of_text|>"
            | "<|eot_id|>"
            | "<|eom_id|>"
            | "<|end|>"
            | "<|return|>"
            | "<|call|>"
            | "<|flush|>"
            | "<|calls|>"
            | "<end_of_turn>"
            | "<turn|>"
            | "<end_of_utterance>"
            | "<EOT>"
            | "_<EOT>"
            | "[EOT]"
            | "[EOS]"
            | "<｜end▁of▁sentence｜>"
            | "<|fim_pad|>"
            | "<|repo_name|>"
            | "<|file_sep|>"
    )
}

/// How a token is looked for in text: as a control token, as a user-defined one, or not at all.
///
/// It is its kind that decides, except for texts that are control tokens whatever the file calls them, and four marks
/// that are matched always; the reference tokenisers decide alike. How a token is *written* is a matter of its kind
/// alone.
pub(crate) fn matched_as(text: &str, kind: TokenKind) -> Option<TokenKind> {
    if matches!(text, "<|channel|>" | "<|message|>" | "<|start|>" | "<|constrain|>") {
        return Some(TokenKind::UserDefined);
    }
    if is_control_text(text) || matches!(kind, TokenKind::Control | TokenKind::Unknown) {
        return Some(TokenKind::Control);
    }
    (kind == TokenKind::UserDefined).then_some(kind)
}

fn is_control_text(text: &str) -> bool {
    ends_generation(text)
        || matches!(
            text,
            "</s>"
                | "<eos>"
                | "<|tool_response>"
                | "[e~["
                | "<|fim_prefix|>"
                | "<fim-prefix>"
                | "<fim_prefix>"
                | "<｜fim▁begin｜>"
                | "<PRE>"
                | "▁<PRE>"
                | "<|code_prefix|>"
                | "<|prefix|>"
                | "<|fim_suffix|>"
                | "<fim-suffix>"
                | "<fim_suffix>"
                | "<｜fim▁hole｜>"
                | "<SUF>"
                | "▁<SUF>"
                | "<|code_suffix|>"
                | "<|suffix|>"
                | "<|fim_middle|>"
                | "<fim-middle>"
                | "<fim_middle>"
                | "<｜fim▁end｜>"
                | "<MID>"
                | "▁<MID>"
                | "<|code_middle|>"
                | "<|middle|>"
                | "<fim-pad>"
                | "<fim_pad>"
                | "<PAD>"
                | "[PAD]"
                | "<|fim_repo|>"
                | "<fim-repo>"
                | "<REPO>"
                | "<reponame>"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, kind: TokenKind, expected: Option<TokenKind>) {
        assert_eq!(matched_as(text, kind), expected, "{text:?} {kind:?}");
    }

    #[test]
    fn kind_decides() {
        check("word", TokenKind::Normal, None);
        check("word", TokenKind::Unused, None);
        check("<0x41>", TokenKind::Byte, None);
        check("<x>", TokenKind::Control, Some(TokenKind::Control));
        check("<unk>", TokenKind::Unknown, Some(TokenKind::Control));
        check("\n\n", TokenKind::UserDefined, Some(TokenKind::UserDefined));
    }

    #[test]
    fn known_texts_override_it() {
        check("</s>", TokenKind::Normal, Some(TokenKind::Control));
        check("</s>", TokenKind::UserDefined, Some(TokenKind::Control));
        check("<|message|>", TokenKind::Control, Some(TokenKind::UserDefined));
    }

    #[test]
    fn ends_are_not_html() {
        assert!(ends_generation("<|im_end|>") && ends_generation("<end_of_turn>"));
        assert!(!ends_generation("</s>") && !ends_generation("<|im_start|>"));
    }
}
