//! What is refused: one clear line on standard error that names what is wrong, and code 2.

use std::fs;
use std::path::{Path, PathBuf};

use apprentice_gguf::Value as Metadata;
use serde_json::{Value, json};

use crate::program::{Answer, apprentice, call, golden};
use crate::scratch::{Scratch, tokens};

fn family(end: &str) -> PathBuf {
    golden(&format!("archs/llama.{end}"))
}

fn logits(model: &Path, scratch: &Scratch) -> Answer {
    call("logits -m {} --tokens 1,2,3 --out {}", &[&model, &scratch.path("x.npy")])
}

/// Every command that opens a model refuses it alike, and leaves nothing behind.
fn model_refused(model: &Path, scratch: &Scratch, expected: &str) {
    logits(model, scratch).refused(expected);
    call("run -m {} hello", &[&model]).refused(expected);
    let (example, adapter, out) = (family("json"), family("adapter.safetensors"), scratch.path("out"));
    let line = "gradients -m {} --example {} --adapter {} --out {}";
    call(line, &[&model, &example, &adapter, &out]).refused(expected);
    let line = "train -m {} --example {} --adapter {} --steps 1 -o {}";
    call(line, &[&model, &example, &adapter, &out]).refused(expected);
    call("demo -m {}", &[&model]).refused(expected);
    assert!(!scratch.path("x.npy").exists() && !out.exists(), "something was written");
}

#[test]
fn files_that_are_no_models() {
    let scratch = Scratch::new();
    model_refused(&scratch.path("none.gguf"), &scratch, "none.gguf");
    model_refused(&scratch.file("empty.gguf", ""), &scratch, "empty");
    let png = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00";
    model_refused(&scratch.file("picture.gguf", png), &scratch, "GGUF");
    model_refused(&scratch.path(""), &scratch, "");
    for command in ["inspect", "tokens --text x --ids -m"] {
        call(&format!("{command} {{}}"), &[&scratch.path("none.gguf")]).refused("none.gguf");
        call(&format!("{command} {{}}"), &[&scratch.path("empty.gguf")]).refused("empty");
        call(&format!("{command} {{}}"), &[&scratch.path("picture.gguf")]).refused("GGUF");
    }
}

#[test]
fn truncated_files_at_many_sizes() {
    let (scratch, whole) = (Scratch::new(), fs::read(family("gguf")).unwrap());
    let header = (0..64).chain((64..4096).step_by(101));
    let rest = (4096..whole.len()).step_by(9_973).chain([whole.len() - 1]);
    for length in header.chain(rest) {
        let model = scratch.file("cut.gguf", &whole[..length]);
        logits(&model, &scratch).refused("cut.gguf");
    }
    model_refused(&scratch.file("half.gguf", &whole[..whole.len() / 2]), &scratch, "half.gguf");
}

#[test]
fn families_and_tensors_that_are_not_known() {
    let scratch = Scratch::new();
    let keep = |_: &str, value: &Metadata| Some(value.clone());
    let name = |name: &str| Some(name.to_owned());
    let other = |key: &str, value: &Metadata| match key {
        "general.architecture" => Some("mamba".to_owned().into()),
        _ => Some(value.clone()),
    };
    let model = scratch.model("a.gguf", &family("gguf"), other, name);
    model_refused(&model, &scratch, "architecture \"mamba\" is not supported; supported are gemma3, llama");
    let without = |name: &str| Some(name.to_owned()).filter(|name| name != "blk.1.ffn_up.weight");
    let model = scratch.model("b.gguf", &family("gguf"), keep, without);
    model_refused(&model, &scratch, "tensor \"blk.1.ffn_up.weight\": missing");
    let renamed = |name: &str| Some(if name == "output.weight" { "outputs.weight" } else { name }.to_owned());
    let model = scratch.model("c.gguf", &family("gguf"), keep, renamed);
    model_refused(&model, &scratch, "tensor \"outputs.weight\": unknown to architecture \"llama\"");
    let swapped = |name: &str| {
        Some(match name {
            "blk.0.ffn_up.weight" => "blk.0.ffn_down.weight".to_owned(),
            "blk.0.ffn_down.weight" => "blk.0.ffn_up.weight".to_owned(),
            other => other.to_owned(),
        })
    };
    let model = scratch.model("d.gguf", &family("gguf"), keep, swapped);
    model_refused(&model, &scratch, "tensor \"blk.0.ffn_");
    let headless = |key: &str, value: &Metadata| Some(value.clone()).filter(|_| key != "llama.block_count");
    let model = scratch.model("e.gguf", &family("gguf"), headless, name);
    model_refused(&model, &scratch, "metadata \"llama.block_count\": missing");
}

#[test]
fn a_block_type_that_is_not_built_is_named() {
    let (scratch, mut bytes) = (Scratch::new(), fs::read(family("gguf")).unwrap());
    // After a tensor's name: dimensions u32, two extents u64, type u32.
    let name = b"blk.0.ffn_down.weight";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len() + 4 + 16;
    assert_eq!(bytes[at..at + 4], [0; 4], "float32");
    bytes[at] = 20;
    model_refused(&scratch.file("a.gguf", &bytes), &scratch, "IQ4_NL");
    bytes[at] = 99;
    model_refused(&scratch.file("b.gguf", &bytes), &scratch, "99");
}

#[test]
fn prompts_that_cannot_be() {
    let (scratch, model) = (Scratch::new(), family("gguf"));
    let out = scratch.path("x.npy");
    let long = vec!["1"; 4097].join(",");
    let line = "logits -m {} --out {} --tokens {}";
    call(line, &[&model, &out, &long]).refused("4097 tokens, the context of the model has 4096");
    call(line, &[&model, &out, &"1,128"]).refused("token 1: expected an id below 128, found 128");
    for cut in ["0", "3", "2,1", "1,1", "9"] {
        let line = "logits -m {} --out {} --tokens 1,2,3 --cut {}";
        call(line, &[&model, &out, &cut]).refused("--cut");
    }
    call("logits -m {} --out {} --text hello", &[&model, &out]).refused("no tokeniser");
    call("run -m {} hello", &[&model]).refused("no tokeniser");
    call("tokens -m {} --text hello --ids", &[&model]).refused("no tokeniser");
    let text = scratch.file("latin.txt", b"caf\xe9");
    call("tokens -m {} --file {} --ids", &[&model, &text]).refused("expected UTF-8 text");
    assert!(!out.exists(), "something was written");
}

fn gradients(scratch: &Scratch, example: &Path, adapter: &Path, flags: &str) -> Answer {
    let (model, out) = (family("gguf"), scratch.path("out.safetensors"));
    let line = format!("gradients -m {{}} --example {{}} --adapter {{}} --out {{}} {flags}");
    let answer = call(&line, &[&model, &example, &adapter, &out]);
    assert!(answer.code == 0 || !out.exists(), "something was written");
    answer
}

#[test]
fn examples_that_cannot_be() {
    let (scratch, adapter) = (Scratch::new(), family("adapter.safetensors"));
    let check = |keys: &[(&str, Value)], expected: &str| {
        let example = scratch.json("example.json", &family("json"), keys);
        gradients(&scratch, &example, &adapter, "").refused(expected);
        let line = "train -m {} --example {} --adapter {} --steps 1 -o {}";
        call(line, &[&family("gguf"), &example, &adapter, &scratch.path("out")]).refused(expected);
    };
    check(&[("labels", json!(vec![-1; 200]))], "labels: all 200 are -1");
    check(&[("labels", json!(vec![1; 199]))], "labels: expected 200, one a token, found 199");
    check(&[("labels", json!(vec![1; 201]))], "labels: expected 200, one a token, found 201");
    check(&[("labels", json!(vec![128; 200]))], "token 128 at index 0: the vocabulary has 128");
    check(&[("labels", json!(vec![-7; 200]))], "labels[0]: expected a token id or -1, found -7");
    check(&[("tokens", json!(vec![500; 200]))], "token 500 at index 0: the vocabulary has 128");
    check(&[("tokens", json!(vec![1.5; 200]))], "invalid type: floating point `1.5`");
    check(&[("tokens", json!([])), ("labels", json!([]))], "tokens: expected at least one");
    check(&[("tokens", Value::Null)], "missing field `tokens`");
    check(
        &[("tokens", json!(vec![1; 4097])), ("labels", json!(vec![1; 4097]))],
        "4097 tokens, the context of the model has 4096",
    );
    check(&[("objective", json!("most"))], "unknown variant `most`");
    check(&[("objective", json!("reply")), ("reply_runs", json!([[0, 200]]))], "reply_runs[0]");
    check(&[("objective", json!("reply")), ("reply_runs", json!([[5, 6]]))], "its row lies in no reply");
    check(&[("optimizer", json!({ "name": "sgd", "lr": 1 }))], "expected \"adamw\", found \"sgd\"");
    for text in ["", "{", "[1, 2]", "null", r#"{"tokens": [1, NaN], "labels": [2, -1]}"#] {
        gradients(&scratch, &scratch.file("broken.json", text), &adapter, "").refused("broken.json");
    }
    gradients(&scratch, &scratch.path("none.json"), &adapter, "").refused("none.json");
}

#[test]
fn adapters_that_cannot_be() {
    let (scratch, example) = (Scratch::new(), family("json"));
    let whole = fs::read(family("adapter.safetensors")).unwrap();
    let check = |adapter: &Path, expected: &str| {
        gradients(&scratch, &example, adapter, "").refused(expected);
        let line = "logits -m {} --tokens 1,2 --adapter {} --alpha 4 --out {}";
        call(line, &[&family("gguf"), &adapter, &scratch.path("x.npy")]).refused(expected);
    };
    check(&scratch.path("none"), "none");
    check(&scratch.file("empty", ""), "empty");
    check(&scratch.file("cut", &whole[..whole.len() - 1]), "cut");
    check(&golden("archs/qwen3.adapter.safetensors"), "expected");
    check(&golden("archs/gemma3.adapter.safetensors"), "tensor");
    // Names of the same length, so that the file stays whole.
    let renamed = |from: &str, to: &str| {
        let at = whole.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    let bytes = renamed("blk.0.ffn_up.weight.lora_a", "blk.7.ffn_up.weight.lora_a");
    check(&scratch.file("unmatched", bytes), "tensor \"blk.7.ffn_up.weight.lora_a\": matches nothing");
    let bytes = renamed("blk.0.ffn_up.weight.lora_a", "blk.0.ffn_up.weight.lora_c");
    check(&scratch.file("half", bytes), "ffn_up.weight.lora");
    let mut bytes = whole.clone();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    check(&scratch.file("nan", bytes), "expected a finite number, found NaN");
    let keys = [("lora", Value::Null)];
    let no_alpha = scratch.json("no_alpha.json", &family("json"), &keys);
    gradients(&scratch, &no_alpha, &family("adapter.safetensors"), "").refused("--alpha");
    gradients(&scratch, &no_alpha, &family("adapter.safetensors"), "--alpha 4").done();
}

#[test]
fn a_loss_that_is_not_finite_is_named_and_nothing_is_written() {
    let scratch = Scratch::new();
    let nan = |name: &str, from: &Path| {
        let mut bytes = fs::read(from).unwrap();
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
        scratch.file(name, bytes)
    };
    let model = nan("nan.gguf", &family("gguf"));
    let (example, adapter, out) = (family("json"), family("adapter.safetensors"), scratch.path("out"));
    let line = "train -m {} --example {} --adapter {} --steps 1 -o {}";
    call(line, &[&model, &example, &adapter, &out]).refused("not finite");
    assert!(!out.exists());
}

#[test]
fn replies_that_begin_nowhere() {
    let (scratch, model, adapter) = (Scratch::new(), family("gguf"), family("adapter.safetensors"));
    let out = scratch.path("x.npy");
    let line = "logits -m {} --tokens 1,2,3 --adapter {} --alpha 4 --out {} --reply-from {}";
    call(line, &[&model, &adapter, &out, &"0"]).refused("--reply-from 0");
    call(line, &[&model, &adapter, &out, &"4"]).refused("--reply-from 4: the text has 3 tokens");
}

#[test]
fn flags_that_cannot_be() {
    let (scratch, model, tokens) = (Scratch::new(), family("gguf"), tokens(&family("json")));
    let out = scratch.path("x.npy");
    let line = "logits -m {} --tokens {} --out {}";
    for flags in [
        "--threads 0",
        "--threads -1",
        "--threads 99999",
        "--numerics q4",
        "--cpu-level sse",
        "--backend gpu",
        "--cache f8",
        "--what",
    ] {
        let answer = call(&format!("{line} {flags}"), &[&model, &tokens, &out]).ended(2);
        assert!(answer.err.starts_with("error: "), "{}", answer.err);
    }
    for line in [
        "",
        "logits",
        "logits -m x --out y",
        "run -m x",
        "tokens -m x --ids",
        "check",
        "train",
        "demo",
        "fly",
    ] {
        apprentice(line.split_whitespace()).ended(2);
    }
    for line in ["--help", "--version", "logits --help", "check golden --help"] {
        apprentice(line.split_whitespace()).ended(0);
    }
}

#[test]
fn lessons_that_cannot_be() {
    let (scratch, model) = (Scratch::new(), family("gguf"));
    let check = |text: &str, expected: &str| {
        let lesson = scratch.file("lesson.json", text);
        call("demo -m {} --lesson {}", &[&model, &lesson]).refused(expected);
    };
    check("{", "lesson.json");
    check(r#"{"question": "q"}"#, "missing field");
    let lists = r#""paraphrases": ["a", "b", "c"], "unrelated": ["a", "b", "c"]"#;
    check(
        &format!(r#"{{"question": "q", "answer": "red", "fact": "blue", {lists}}}"#),
        "fact: expected a part of the answer",
    );
    call("demo -m {} --lesson {}", &[&model, &scratch.path("none.json")]).refused("none.json");
}
