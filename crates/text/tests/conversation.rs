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
    let expected = "message 1: the prompt before this reply is not a prefix of the conversation: token 20, line 3: \
                    expected \"<|im_start|>assistant\\n\", found \"<|im_start|>assistant\\n\\n\\nok<|im_end|>\\n\"";
    check_unsound(CHATML, &[("user", "hi"), ("assistant", "\n\nok")], expected);
}

#[test]
fn a_template_that_rewrites_the_past_is_unsound() {
    let counts = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}";
    let expected = "message 1: the prompt before this reply is not a prefix of the conversation: token 0, line 1: \
                    expected \"1hi\", found \"2hiok\"";
    check_unsound(counts, &[("user", "hi"), ("assistant", "ok")], expected);
    let forgets = "{% for m in messages %}{% if m.role != 'assistant' or loop.last %}{{ m.content }}{% endif %}\
                   {% endfor %}";
    let messages = [("user", "hi"), ("assistant", "ok"), ("user", "x")];
    let expected = "message 1: the conversation up to this reply is not a prefix of the conversation: token 2, \
                    line 1: expected \"hiok\", found \"hix\"";
    check_unsound(forgets, &messages, expected);
}

#[test]
fn thoughts_that_are_stripped_later_are_unsound_and_the_last_ones_are_not() {
    let strips = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' and \
                  not loop.last %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}\
                  {{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}\
                  {% endif %}";
    let thought = "<think>so</think>ok";
    check(&chat(strips), &[("user", "a"), ("assistant", thought)], &["<think>so</think>ok<|im_end|>"]);
    let turns = [("user", "a"), ("assistant", thought), ("user", "b"), ("assistant", "c")];
    let expected = "message 1: the conversation up to this reply is not a prefix of the conversation: token 20, \
                    line 4: expected \"<think>so</think>ok<|im_end|>\\n\", found \"ok<|im_end|>\\n<|im_start|>user\\n\
                    b<|im_end|\"...";
    check_unsound(strips, &turns, expected);
    // Without thoughts nothing is stripped.
    let turns = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")];
    check(&chat(strips), &turns, &["b<|im_end|>", "d<|im_end|>"]);
}

#[test]
fn an_error_shows_the_part_of_a_long_line_that_differs() {
    let long = "x".repeat(200);
    let counts = "{{ '\n' + messages[0].content + (messages | length) | string + messages[0].content }}";
    let expected = format!(
        "message 1: the prompt before this reply is not a prefix of the conversation: token 201, line 2: \
         expected ...\"{0}1{1}\"..., found ...\"{0}2{1}\"...",
        &long[..40],
        &long[..39],
    );
    check_unsound(counts, &[("user", &long), ("assistant", "ok")], &expected);
}

/// ChatML whose replies stand in a block, from after the role to before the newline.
const MARKED: &str = "{%- for m in messages %}\n{{- '<|im_start|>' + m.role + '\n' }}\n\
{%- if m.role == 'assistant' %}\n{%- generation %}\n{{- m.content + '<|im_end|>' }}{% endgeneration %}\n\
{%- else %}\n{{- m.content + '<|im_end|>' }}\n{%- endif %}\n{{- '\n' }}\n{%- endfor %}\n\
{%- if add_generation_prompt %}\n{{- '<|im_start|>assistant\n' }}\n{%- endif %}";

#[test]
fn a_generation_block_says_what_a_reply_is() {
    let turns = [("system", "s"), ("user", "a"), ("assistant", "b\n"), ("user", "c"), ("assistant", "")];
    check(&chat(MARKED), &turns, &["bĊ<|im_end|>", "<|im_end|>"]);
    let (marked, plain) = (chat(MARKED), chat(CHATML));
    assert_eq!(
        marked.conversation(&conversation(&turns)).unwrap(),
        plain.conversation(&conversation(&turns)).unwrap()
    );

    // The end is learnt only if it is in the block; a prompt is never learnt.
    let inner = MARKED.replace(
        "{{- m.content + '<|im_end|>' }}{% endgeneration %}",
        "{{- m.content }}{% endgeneration %}<|im_end|>",
    );
    check(&chat(&inner), &turns[..3], &["bĊ"]);
    let outer = MARKED.replace("{{- '<|im_start|>' + m.role", "{% generation %}{{- '<|im_start|>' + m.role");
    let outer =
        outer.replace("{%- generation %}", "").replace("{%- endfor %}", "{%- endgeneration %}{%- endfor %}");
    let outer = outer.replace("{% endgeneration %}\n{%- else", "{%- else");
    let learnt = chat(&outer).conversation(&conversation(&turns)).unwrap();
    assert_eq!(learnt, plain.conversation(&conversation(&turns)).unwrap());
}

#[test]
fn a_reply_without_a_generation_block_is_not_learnt() {
    let last = MARKED.replace("m.role == 'assistant'", "m.role == 'assistant' and loop.last");
    let turns = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "ok")];
    let encoded = chat(&last).conversation(&conversation(&turns)).unwrap();
    let whole = chat(CHATML).conversation(&conversation(&turns)).unwrap();
    assert_eq!((encoded.tokens, encoded.replies), (whole.tokens, whole.replies[1..].to_vec()));
}

#[test]
fn a_generation_block_does_not_hide_an_unsound_template() {
    let strips = MARKED.replace(
        "{{- m.content + '<|im_end|>' }}{% end",
        "{{- (m.content if loop.last else 'x') + '<|im_end|>' }}{% end",
    );
    let turns = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")];
    let expected = "message 1: the conversation up to this reply is not a prefix of the conversation: token 20, \
                    line 4: expected \"b<|im_end|>\\n\", found \"x<|im_end|>\\n<|im_start|>user\\nc<|im_end|>\"...";
    check_unsound(&strips, &turns, expected);
    let within = MARKED.replace(
        "{{- m.content + '<|im_end|>' }}{% endgeneration %}",
        "{{- m.content }}ok{% endgeneration %}",
    );
    let within = within.replace("{%- generation %}\n{{- m.content }}o", "{{- m.content }}o{%- generation %}");
    let error = chat(&within).conversation(&conversation(&turns[..2])).unwrap_err();
    assert!(error.to_string().contains("the text before this reply's generation block"), "{error}");
}

#[test]
fn a_generation_block_that_is_read_again_is_refused() {
    let reads = "{% for m in messages %}{% set text %}{% generation %}{{ m.content }}{% endgeneration %}{% endset %}\
                 {{ text | length }}{% endfor %}";
    let error = chat(reads).conversation(&conversation(&[("user", "a"), ("assistant", "b")])).unwrap_err();
    assert!(matches!(error, TextError::GenerationBlock), "{error:?}");
}

/// `expected` is the spelling of the reply.
fn check_reply(text: &Text, messages: &[(&str, &str)], reply: &str, expected: &str) {
    let prompt = conversation(messages);
    let encoded = text.reply(&prompt, reply).unwrap();
    assert_eq!(encoded.prompt, text.prompt(&prompt).unwrap());
    assert_eq!(spell(text, &encoded.reply).concat(), expected);
    let answered: Vec<_> = messages.iter().copied().chain([("assistant", reply)]).collect();
    let whole = text.conversation(&conversation(&answered)).unwrap();
    let last = whole.replies.last().unwrap().clone();
    assert_eq!(whole.tokens[..last.start], encoded.prompt);
    assert_eq!(whole.tokens[last], encoded.reply);
}

#[test]
fn a_corrected_reply_follows_its_prompt_and_ends() {
    let text = chat(CHATML);
    check_reply(&text, &[("user", "hi")], "ok", "ok<|im_end|>");
    check_reply(&text, &[("user", "hi")], "", "<|im_end|>");
    check_reply(&text, &[("user", "a"), ("assistant", "b"), ("user", "c")], "d", "d<|im_end|>");
    let error = text.reply(&conversation(&[("user", "hi")]), "\n\nok").unwrap_err();
    assert!(matches!(error, TextError::Unsound { message: 1, position: 20, line: 3, .. }), "{error:?}");
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
