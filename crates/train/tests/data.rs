//! Files of data: what is let pass, what a sample is, and what refuses a file, by its line.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use apprentice_engine::Objective;
use apprentice_text::{EncodeOptions, Text};
use apprentice_train::Dataset;
use common::{TEMPLATE, conversations, data, rules, text};

const GOOD: &str =
    r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;

/// A file whose second line is `line` is refused with this, and its place.
fn refused(line: impl AsRef<[u8]>, expected: &str) {
    let bytes = [GOOD.as_bytes(), b"\n", line.as_ref(), b"\n", GOOD.as_bytes()].concat();
    let shown = String::from_utf8_lossy(line.as_ref()).chars().take(80).collect::<String>();
    let error = data(bytes, Objective::All).err().unwrap_or_else(|| panic!("{shown}: taken")).to_string();
    assert!(error.starts_with("data.jsonl:2: ") && error.contains(expected), "{shown}: {error}");
    assert!(!error.contains('\n') && error.len() < 600, "{error}");
}

#[test]
fn marks_of_editors_are_let_pass() {
    let expected = data(format!("{GOOD}\n{GOOD}\n"), Objective::All).unwrap().samples;
    for (bytes, lines) in [
        (format!("{GOOD}\n{GOOD}"), [1, 2]),
        (format!("\u{feff}{GOOD}\r\n{GOOD}\r\n"), [1, 2]),
        (format!("\n\n{GOOD}\n  \t\r\n{GOOD}\n\n\n"), [3, 5]),
    ] {
        let found = data(&bytes, Objective::All).unwrap().samples;
        assert_eq!(found.iter().map(|sample| sample.line).collect::<Vec<_>>(), lines);
        assert!(found.iter().zip(&expected).all(|(found, expected)| found.tokens == expected.tokens
            && found.labels == expected.labels
            && found.spans == expected.spans));
    }
}

#[test]
fn lines_that_are_no_samples() {
    refused("{\"messages\"", "expected JSON, found EOF");
    refused("{\"a\": NaN}", "expected JSON");
    refused("7", "line: expected an object, found 7");
    refused(b"\xff\xfe", "expected UTF-8 text, found another byte at 0");
    refused([b"{\"prompt\": \"caf\xe9\"".as_slice(), b"}"].concat(), "another byte at 15");
    refused(r#"{"messages": []}"#, "expected at least one of the assistant, found none");
    refused(r#"{"messages": [{"role": "user", "content": "a"}]}"#, "at least one of the assistant");
    refused(
        r#"{"messages": [{"role": "assistant", "content": 1}]}"#,
        "messages[0].content: expected a string",
    );
    refused(
        r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}]}"#,
        "all labels are masked",
    );
    refused(r#"{"prompt": "a", "completion": ""}"#, "all labels are masked: the completion is empty");
    refused(r#"{"prompt": "", "completion": "b"}"#, "nothing comes before the completion");
    refused(
        r#"{"prompt": "a o", "completion": "u b"}"#,
        "tokens change when the completion follows them, from token 2",
    );
    refused(r#"{"prompt": "a ", "completion": "x b"}"#, "from token 1 on");
    refused(
        format!(r#"{{"prompt": "a", "completion": "{}"}}"#, "b".repeat(400)),
        "402 tokens, the context has 320",
    );
    refused("[".repeat(1 << 20), "recursion limit");
    refused(vec![b'x'; (64 << 20) + 1], "67108865 bytes, a line has at most 67108864");
    refused(
        r#"{"messages": [{"role": "user", "content": "a", "tool_calls": [1]}]}"#,
        "tool_calls: not supported",
    );
}

#[test]
fn files_without_a_sample() {
    for bytes in ["", "\n \n\r\n", "\u{feff}"] {
        let error = data(bytes, Objective::All).unwrap_err().to_string();
        assert_eq!(error, "data.jsonl: expected at least one line with a sample, found none");
    }
    let missing = Dataset::read("none.jsonl".as_ref(), &text(TEMPLATE), &rules(Objective::All));
    assert!(missing.unwrap_err().to_string().starts_with("none.jsonl: "));
}

#[test]
fn templates_whose_prompts_are_no_prefixes() {
    let numbered = "{{ messages | length }}{% for message in messages %}<|im_start|>{{ message.content }}<|im_end|>{% endfor %}";
    let check = |template: &str, expected: &str| {
        let file = format!("{GOOD}\n{GOOD}");
        let found = Dataset::parse("f".as_ref(), file.as_bytes(), &text(template), &rules(Objective::All));
        let error = found.unwrap_err().to_string();
        assert!(error.starts_with("f:1: ") && error.contains(expected), "{error}");
    };
    check(numbered, "the prompt before this reply");
    check("{{ raise_exception('no') }}", "the chat template refuses the conversation: no");
    check("{% for x in messages %}", "chat_template");
}

/// The text of the rows that a span predicts.
fn learnt(text: &Text, sample: &apprentice_train::Sample) -> Vec<String> {
    let spans = sample.spans.iter().map(|rows| {
        let labels = sample.labels[rows.clone()].iter().filter(|label| **label >= 0);
        text.decode(&labels.map(|label| *label as u32).collect::<Vec<_>>(), true).unwrap()
    });
    spans.collect()
}

#[test]
fn replies_are_learnt_with_the_token_that_ends_them() {
    let text = text(TEMPLATE);
    let line = r#"{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "one"},
        {"role": "user", "content": "r"}, {"role": "assistant", "content": "two"}]}"#;
    let line = line.replace('\n', " ");
    let all = data(&line, Objective::All).unwrap();
    assert_eq!(learnt(&text, &all.samples[0]), ["one<|im_end|>two<|im_end|>"]);
    let replies = data(&line, Objective::Reply).unwrap();
    assert_eq!(learnt(&text, &replies.samples[0]), ["one<|im_end|>", "two<|im_end|>"]);
    assert_eq!(all.labelled(), replies.labelled());
    let weighted = line.replace(r#""content": "one""#, r#""content": "one", "weight": 0"#);
    let last = data(&weighted, Objective::Reply).unwrap();
    assert_eq!(learnt(&text, &last.samples[0]), ["two<|im_end|>"]);
    let rows = last.samples[0].spans[0].clone();
    assert_eq!(
        text.decode(&last.samples[0].tokens[..rows.start + 1], true).unwrap().matches("one").count(),
        1
    );
}

#[test]
fn completions_follow_raw_text() {
    let text = text(TEMPLATE);
    let found = data(r#"{"prompt": "a<|im_start|>", "completion": " b"}"#, Objective::All).unwrap();
    let sample = &found.samples[0];
    assert_eq!(learnt(&text, sample), [" b<|im_end|>"]);
    let mut served = text.encode("a<|im_start|>", EncodeOptions { special: true, bos: true });
    served.extend(text.encode(" b", EncodeOptions::default()));
    assert_eq!(sample.tokens, served);
}

#[test]
fn what_is_learnt_is_what_is_told_apart() {
    let one = data(conversations(5), Objective::All).unwrap();
    assert_eq!(one.fingerprint(), data(conversations(5) + "\n", Objective::All).unwrap().fingerprint());
    assert_ne!(one.fingerprint(), data(conversations(6), Objective::All).unwrap().fingerprint());
    assert_ne!(one.fingerprint(), data(conversations(5), Objective::Reply).unwrap().fingerprint());
}
