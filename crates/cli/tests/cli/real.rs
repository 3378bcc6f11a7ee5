//! The real models: golden folders whole, tokens, the same bytes whatever the machine does, and the demo.
//!
//! They are read from `$APPRENTICE_CACHE`, or `~/.cache/apprentice`; `scripts/models` puts them there.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::program::{call, call_with, golden};
use crate::scratch::Scratch;

/// A real model.
pub fn model(name: &str) -> PathBuf {
    let cache = std::env::var_os("APPRENTICE_CACHE").map(PathBuf::from);
    let cache =
        cache.or_else(|| Some(std::env::home_dir()?.join(".cache/apprentice"))).expect("a home folder");
    let path = cache.join(format!("{name}.gguf"));
    assert!(path.exists(), "{} is not there; scripts/models {name} fetches it", path.display());
    path
}

fn check_golden(name: &str, folder: &str, expected: &[(&str, &str)]) {
    let report = call("check golden {} -m {} --json", &[&golden(folder), &model(name)]);
    println!("{}", report.out);
    let report = report.done().json();
    let rows = report["rows"].as_array().unwrap().iter();
    let found: Vec<_> =
        rows.map(|row| (row["name"].as_str().unwrap(), row["verdict"].as_str().unwrap())).collect();
    assert_eq!(found, expected);
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn smollm2_holds_whole() {
    let parts = ["logits", "gradient", "losses", "final", "reply"].map(|part| (part, "passed"));
    check_golden("smollm2", "smollm2", &parts);
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn gemma3_holds_past_its_window() {
    let not_run = ["gradient", "losses", "final", "reply"].map(|part| (part, "not run"));
    check_golden("gemma3", "gemma3-long", &[&[("logits", "passed")], &not_run[..]].concat());
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn tokens_are_those_of_independent_code() {
    let scratch = Scratch::new();
    for name in ["smollm2", "qwen25c05", "gemma3"] {
        let entries: Vec<Value> =
            serde_json::from_slice(&fs::read(golden(&format!("tokens/{name}.json"))).unwrap()).unwrap();
        assert!(entries.len() >= 10, "{name}: {} entries", entries.len());
        for entry in entries {
            let text = scratch.file("text.txt", entry["text"].as_str().unwrap());
            let flag = |key: &str| if entry[key] == true { format!("--{key}") } else { String::new() };
            let line = format!("tokens -m {{}} --file {{}} --ids {} {}", flag("special"), flag("bos"));
            let ids: Vec<String> = entry["ids"].as_array().unwrap().iter().map(Value::to_string).collect();
            assert_eq!(
                call(&line, &[&model(name), &text]).done().out,
                format!("{}\n", ids.join(" ")),
                "{name} {entry}"
            );
        }
    }
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn no_byte_depends_on_cut_threads_or_level() {
    let scratch = Scratch::new();
    let (model, out) = (model("smollm2"), scratch.path("logits.npy"));
    let text = "A page is sixty-four positions long, and a prompt may be cut anywhere. ".repeat(6);
    let logits = |flags: &str| {
        let line = format!("logits -m {{}} --text {{}} --out {{}} {flags}");
        let answer = call(&line, &[&model, &text, &out]);
        if answer.lacks_level() {
            return None;
        }
        answer.done();
        fs::read(&out).ok()
    };
    let plain = logits("").expect("logits");
    for flags in [
        "--cut 7,20",
        "--cut 1,64,65",
        "--threads 1",
        "--threads 2",
        "--threads 3",
        "--threads 8",
        "--cpu-level scalar",
        "--cpu-level avx2",
        "--cpu-level avx512",
    ] {
        if let Some(found) = logits(flags) {
            assert!(found == plain, "{flags} changes bytes");
        }
    }
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn the_interpreter_refuses_a_large_model() {
    let scratch = Scratch::new();
    let line = "logits -m {} --tokens 1,2 --backend interpreter --out {}";
    call(line, &[&model("smollm2"), &scratch.path("x.npy")])
        .refused("134515008 parameters, at most 20000000");
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn a_reply_is_streamed_and_ends() {
    // Rounded activations turn the order of the first two tokens, whose likelihoods are close.
    let answer =
        call("run -m {} {} -n 32 --numerics f32", &[&model("smollm2"), &"What is the capital of France?"])
            .done();
    assert_eq!(answer.out, "The capital of France is Paris.\n");
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn a_fact_is_taught() {
    let answer = call("demo -m {}", &[&model("smollm2")]).done();
    let last: Value = serde_json::from_str(answer.out.lines().last().unwrap()).unwrap();
    assert!(last["steps"].as_u64().unwrap() <= 12, "{last}");
    assert!(last["loss_last"].as_f64().unwrap() <= 0.1, "{last}");
    assert!(last["paraphrases_hit"].as_u64().unwrap() >= 2, "{last}");
    assert_eq!(last["unrelated_hit"], 0, "{last}");
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn a_reply_is_corrected_in_a_chat_and_the_correction_taken_back() {
    let question = "What is the capital of the island of Velmora?";
    let script = format!(
        "{question}\n/teach The capital of the island of Velmora is Quillhaven.\n\
         /clear\nWhich city is the capital of Velmora?\n\
         /clear\nName the capital city of the island Velmora.\n\
         /clear\nWhat is the capital of France?\n\
         /undo\n/clear\n{question}\n"
    );
    let answer = call_with("chat -m {} -n 48", &[&model("smollm2")], &script).done();
    let lines: Vec<&str> = answer.out.lines().collect();
    let [first, learnt, which, name, france, _, again] = lines[..] else { panic!("{lines:?}") };
    assert!(!first.contains("Quillhaven"), "{lines:?}");
    assert!(learnt.starts_with("learnt: loss "), "{lines:?}");
    assert!(which.contains("Quillhaven") && name.contains("Quillhaven"), "{lines:?}");
    assert!(france.contains("Paris"), "{lines:?}");
    assert_eq!(again, first);
    assert_eq!(answer.err, "");
}
