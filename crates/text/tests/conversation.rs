//! Conversations as tokens, and the runs of their replies.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use apprentice_text::{Conversation, Message, Text, TextError, Vocabulary};
use common::{byte_level, sentence_piece, spell};

const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

fn chat(template: &str) -> Text {
    let vocabulary = byte_level("smollm", &["Ċ Ċ", "o k"]);
    Text::new(Vocabulary { chat_template: Some(template.into()), ..vocabulary }).unwrap()
}

fn conversation(messages: &[(&str, &str)]) -> Conversation {
    Conversation::new(messages.iter().map(|(role, content)| Message::new(*role, *content)).collect())
}

/// `expected` are the spellings of each reply's run, joined.
fn check(text: &Text, messages: &[(&str, &str)], expected: &[&str]) {
    let conversation = conversation(messages);
    let encoded = text.conversation(&conversation).unwrap();
    let replies = encoded.replies.iter().map(|run| spell(text, &encoded.tokens[run.clone()]).concat());
    assert_eq!(replies.collect::<Vec<_>>(), expected);
    assert_eq!(text.decode(&encoded.tokens, true).unwrap(), text.render(&conversation, false).unwrap());
    for (run, message) in
        encoded.replies.iter().zip(messages.iter().enumerate().filter(|(_, m)| m.0 == "assistant"))
    {
        let before = Conversation::new(conversation.messages[..message.0].to_vec());
        assert_eq!(encoded.tokens[..run.start], text.prompt(&before).unwrap());
    }
}

#[test]
fn a_reply_ends_with_its_end_token_not_with_the_newline() {
    let text = chat(CHATML);
    check(&text, &[], &[]);
    check(&text, &[("user", "hi")], &[]);
    check(&text, &[("user", "hi"), ("assistant", "ok")], &["ok<|im_end|>"]);
    let turns = [("system", "s"), ("user", "a"), ("assistant", "b\n"), ("user", "c"), ("assistant", "")];
    check(&text, &turns, &["bĊ<|im_end|>", "<|im_end|>"]);
    check(&text, &[("assistant", "first")], &["first<|im_end|>"]);
}

#[test]
fn a_template_without_an_end_token_gives_the_whole_rest() {
    let plain = "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}\
                 {% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";
    check(&chat(plain), &[("user", "hi"), ("assistant", "ok")], &["ok;"]);
}

/// `expected` is the whole message.
fn check_unsound(template: &str, messages: &[(&str, &str)], expected: &str) {
    let error = chat(template).conversation(&conversation(messages)).unwrap_err();
    assert!(matches!(error, TextError::Unsound { .. } | TextError::EmptyReply { .. }), "{error:?}");
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_merge_across_the_border_is_unsound() {
    // The reply's newlines are one word with the prompt's; the last of them stays out of it.
    let expected = "message 1: the prompt before this reply is not a prefix of the conversation: token 20: \
                    expected 10, found 256";
    check_unsound(CHATML, &[("user", "hi"), ("assistant", "\n\nok")], expected);
}

#[test]
fn a_template_that_rewrites_the_past_is_unsound() {
    let counts = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}";
    let expected = "message 1: the prompt before this reply is not a prefix of the conversation: token 0: \
                    expected 49, found 50";
    check_unsound(counts, &[("user", "hi"), ("assistant", "ok")], expected);
    let forgets = "{% for m in messages %}{% if m.role != 'assistant' or loop.last %}{{ m.content }}{% endif %}\
                   {% endfor %}";
    let messages = [("user", "hi"), ("assistant", "ok"), ("user", "x")];
    let expected = "message 1: the prompt before this reply is not a prefix of the conversation: token 2: \
                    expected 257, found 120";
    check_unsound(forgets, &messages, expected);
}

#[test]
fn a_reply_needs_a_token_before_it_and_one_of_its_own() {
    let only = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let expected = "message 0: expected a reply of at least one token after a prompt, found tokens 0..1";
    check_unsound(only, &[("assistant", "ok")], expected);
    let expected = "message 1: expected a reply of at least one token after a prompt, found tokens 2..2";
    check_unsound(only, &[("user", "hi"), ("assistant", "")], expected);
}

#[test]
fn begin_of_sequence_stands_once() {
    let ids = |template: &str| {
        let vocabulary = sentence_piece(&["▁", "h", "i"]);
        let text = Text::new(Vocabulary { chat_template: Some(template.into()), ..vocabulary }).unwrap();
        spell(&text, &text.prompt(&conversation(&[("user", "hi")])).unwrap())
    };
    assert_eq!(ids("{{ bos_token }}{{ messages[0].content }}"), ["<s>", "▁", "h", "i"]);
    assert_eq!(ids("{{ messages[0].content }}{{ eos_token }}"), ["<s>", "▁", "h", "i", "</s>"]);
}

#[test]
fn the_time_is_what_the_conversation_says() {
    let text = chat("{{ strftime_now('%Y-%m-%d') }}");
    let dated = Conversation { unix_seconds: Some(951_782_400), ..Conversation::default() };
    assert_eq!(text.render(&dated, false).unwrap(), "2000-02-29");
    assert!(text.render(&Conversation::default(), false).unwrap().as_str() > "2024");
}

#[test]
fn a_broken_template_leaves_the_tokeniser() {
    let text = chat("{% if %}");
    assert!(text.has_template());
    assert!(matches!(text.prompt(&Conversation::default()), Err(TextError::Template { line: 1, .. })));
    assert_eq!(text.encode("ok", Default::default()), [257]);
}
