//! `check archs`, `check quants` and `check golden` on the tiny files, everywhere.

use std::fs;

use serde_json::{Value, json};

use crate::program::{Answer, EVERYWHERE, apprentice, call, golden};
use crate::scratch::{Scratch, npy};

/// `(name, verdict)` of each row.
fn verdicts(report: &Value) -> Vec<(String, String)> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    report["rows"].as_array().unwrap().iter().map(|row| (text(row, "name"), text(row, "verdict"))).collect()
}

fn passed(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| ((*name).to_owned(), "passed".to_owned())).collect()
}

fn everywhere(line: &str, more: &[&dyn AsRef<std::ffi::OsStr>], each: impl Fn(Answer)) {
    for place in EVERYWHERE {
        let answer = call(&format!("{line} {}", place.join(" ")), more);
        if !answer.lacks_level() {
            each(answer);
        }
    }
}

#[test]
fn five_families_hold_by_the_interpreter_and_at_every_level() {
    everywhere("check archs {} --json", &[&golden("archs")], |answer| {
        let report = answer.done().json();
        assert_eq!(report["passed"], true);
        assert_eq!(verdicts(&report), passed(&["gemma3", "llama", "qwen2", "qwen3", "llamabias"]));
    });
}

#[test]
fn the_interpreter_is_held_to_the_smaller_bound() {
    let bound = |place: &str| {
        let report = call(&format!("check archs {{}} --json {place}"), &[&golden("archs")]).done().json();
        report["rows"][0]["figures"][0]["bound"].as_f64().unwrap()
    };
    assert_eq!((bound("--backend interpreter"), bound("--threads 2")), (1e-12, 1e-9));
}

#[test]
fn other_logits_miss_the_bound() {
    let scratch = Scratch::new();
    for end in ["gguf", "json", "adapter.safetensors", "grads.safetensors"] {
        scratch.copy(&golden(&format!("archs/qwen2.{end}")), &format!("qwen2.{end}"));
    }
    let mut array = fs::read(golden("archs/qwen2.logits.npy")).unwrap();
    let end = array.len();
    array[end - 4..].copy_from_slice(&9f32.to_le_bytes());
    scratch.file("qwen2.logits.npy", array);
    let answer = call("check archs {}", &[&scratch.path("")]).ended(1);
    assert!(answer.out.starts_with("qwen2  failed     logits "), "{}", answer.out);
}

#[test]
fn a_gradient_that_is_zero_in_the_file_is_a_failure() {
    let scratch = Scratch::new();
    for end in ["gguf", "json", "adapter.safetensors", "logits.npy"] {
        scratch.copy(&golden(&format!("archs/qwen2.{end}")), &format!("qwen2.{end}"));
    }
    let mut file = fs::read(golden("archs/qwen2.grads.safetensors")).unwrap();
    // The last tensor's elements lie last; one row of eight is enough to make it all zero where it has two.
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let table: Value = serde_json::from_slice(&file[8..8 + header]).unwrap();
    let (name, range) = table.as_object().unwrap().iter().find(|(name, _)| name.ends_with("lora_a")).unwrap();
    let at = |index: usize| 8 + header + range["data_offsets"][index].as_u64().unwrap() as usize;
    file[at(0)..at(1)].fill(0);
    scratch.file("qwen2.grads.safetensors", file);
    let answer = call("check archs {}", &[&scratch.path("")]).ended(1);
    assert!(answer.out.contains(&format!("absent or zero: {name}")), "{}", answer.out);
}

#[test]
fn a_family_that_is_not_built_fails_only_with_all() {
    let scratch = Scratch::new();
    let other = |key: &str, value: &apprentice_gguf::Value| match key {
        "general.architecture" => Some("mamba".to_owned().into()),
        _ => Some(value.clone()),
    };
    scratch.model("mamba.gguf", &golden("archs/qwen2.gguf"), other, |name| Some(name.to_owned()));
    let report = call("check archs {} --json", &[&scratch.path("")]).done().json();
    assert_eq!(verdicts(&report), [("mamba".to_owned(), "not built".to_owned())]);
    assert!(report["rows"][0]["note"].as_str().unwrap().contains("mamba"));
    call("check archs {} --all", &[&scratch.path("")]).ended(1);
}

#[test]
fn block_formats_are_equal_to_the_bit() {
    let report = call("check quants {} --json", &[&golden("quants")]).done().json();
    let formats =
        ["BF16", "F16", "Q2_K", "Q3_K", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0"];
    assert_eq!(verdicts(&report), passed(&formats));
}

#[test]
fn a_bit_that_differs_and_a_format_that_is_not_built() {
    let scratch = Scratch::new();
    scratch.copy(&golden("quants/Q4_0.bin"), "Q4_0.bin");
    let mut values = fs::read(golden("quants/Q4_0.f32")).unwrap();
    scratch.file("Q4_0.f32", &values);
    scratch.file("IQ4_NL.bin", [0; 18]);
    let table = call("check quants {}", &[&scratch.path("")]).done().out;
    assert!(table.contains("IQ4_NL  not built") && table.contains("Q4_0    passed"), "{table}");
    call("check quants {} --all", &[&scratch.path("")]).ended(1);
    values[17] ^= 1;
    scratch.file("Q4_0.f32", &values);
    let table = call("check quants {}", &[&scratch.path("")]).ended(1).out;
    assert!(table.contains("Q4_0    failed     values of other bits 1 (at most 0)"), "{table}");
}

/// A folder in the format of a real model's, about a tiny one: what is listed comes from that one's own golden data.
fn tiny_golden(scratch: &Scratch) {
    let model = golden("archs/llama.gguf");
    let sha256 = apprentice_check::sha256(&model).unwrap();
    let notes: Value = serde_json::from_slice(&fs::read(golden("archs/llama.json")).unwrap()).unwrap();
    let reference = npy(&golden("archs/llama.logits.npy"));
    let top: Vec<Value> = reference
        .values
        .chunks(reference.shape[1])
        .map(|row| {
            let mut ids: Vec<usize> = (0..row.len()).collect();
            ids.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
            ids.truncate(8);
            json!({ "logits": ids.iter().map(|id| row[*id]).collect::<Vec<f32>>(), "ids": ids })
        })
        .collect();
    let logits =
        json!({ "model_sha256": sha256, "tokens": notes["tokens"], "rows": notes["rows"], "top": top });
    scratch.file("logits.json", logits.to_string());
    let more = [
        ("model_sha256", json!(sha256)),
        ("losses", json!([notes["loss"]])),
        ("base_loss", notes["loss_base"].clone()),
        ("steps", json!(1)),
    ];
    scratch.json("example.json", &golden("archs/llama.json"), &more);
    scratch.copy(&golden("archs/llama.adapter.safetensors"), "adapter_init");
    scratch.copy(&golden("archs/llama.grads.safetensors"), "grads.safetensors");
}

#[test]
fn a_golden_folder_holds_and_lists_what_it_lacks() {
    let scratch = Scratch::new();
    tiny_golden(&scratch);
    let model = golden("archs/llama.gguf");
    everywhere("check golden {} -m {} --json", &[&scratch.path(""), &model], |answer| {
        let mut expected = passed(&["logits", "gradient", "losses"]);
        expected.extend(["final", "reply"].map(|part| (part.to_owned(), "not run".to_owned())));
        assert_eq!(verdicts(&answer.done().json()), expected);
    });
}

#[test]
fn a_golden_folder_of_other_numbers_misses_its_bounds() {
    let scratch = Scratch::new();
    let model = golden("archs/llama.gguf");
    let check = |name: &str, key: &str, value: Value, part: &str| {
        tiny_golden(&scratch);
        scratch.json(name, &scratch.path(name), &[(key, value)]);
        let report = call("check golden {} -m {} --json", &[&scratch.path(""), &model]).ended(1).json();
        let failed: Vec<_> =
            verdicts(&report).into_iter().filter(|(_, verdict)| verdict == "failed").collect();
        assert_eq!(failed, [(part.to_owned(), "failed".to_owned())]);
    };
    check("example.json", "losses", json!([5.6]), "losses");
    check("example.json", "base_loss", json!(5.6), "losses");
    let rows: Value = serde_json::from_slice(&fs::read(golden("archs/llama.json")).unwrap()).unwrap();
    let mut rows: Vec<u64> =
        rows["rows"].as_array().unwrap().iter().map(|row| row.as_u64().unwrap()).collect();
    rows[63] = 198;
    check("logits.json", "rows", json!(rows), "logits");
}

#[test]
fn a_golden_folder_of_another_model_is_refused() {
    let scratch = Scratch::new();
    tiny_golden(&scratch);
    let other = golden("archs/qwen2.gguf");
    call("check golden {} -m {}", &[&scratch.path(""), &other]).refused("made with the model of SHA-256");
}

#[test]
fn a_folder_without_anything_to_check_is_refused() {
    let (scratch, model) = (Scratch::new(), golden("archs/llama.gguf"));
    call("check golden {} -m {}", &[&scratch.path(""), &model]).refused("holds nothing to check");
    call("check archs {}", &[&scratch.path("")]).refused("holds nothing to check");
    call("check quants {}", &[&scratch.path("none")]).refused("holds nothing to check");
    // Tokens alone are no part: their tensors are missing.
    tiny_golden(&scratch);
    fs::remove_file(scratch.path("logits.json")).unwrap();
    fs::remove_file(scratch.path("grads.safetensors")).unwrap();
    scratch.json(
        "example.json",
        &scratch.path("example.json"),
        &[("losses", json!([])), ("steps", Value::Null)],
    );
    call("check golden {} -m {}", &[&scratch.path(""), &model]).refused("holds nothing to check");
}

#[test]
fn a_level_that_the_machine_lacks_is_named() {
    for level in ["scalar", "avx2", "avxvnni", "avx512", "avx512vnni"] {
        let answer = apprentice(["check", "archs", golden("archs").to_str().unwrap(), "--cpu-level", level]);
        match answer.code {
            0 => {}
            _ => answer.refused(&format!("level {level}: this machine lacks")),
        }
    }
}
