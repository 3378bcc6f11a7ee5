//! `logits`, `gradients`, `train` and `inspect` on tiny models: what they write, and what does not change it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use apprentice_check::{Npy, Sums};
use serde_json::{Value, json};

use crate::program::{EVERYWHERE, call, golden};
use crate::scratch::{Scratch, npy, tokens};

const FAMILIES: [&str; 5] = ["gemma3", "llama", "qwen2", "qwen3", "extra/llamabias"];

fn family(name: &str, end: &str) -> PathBuf {
    golden(&format!("archs/{name}.{end}"))
}

/// Bytes of the logits of a family's example with these flags; none where the machine lacks the level.
fn logits(scratch: &Scratch, name: &str, flags: &str) -> Option<Vec<u8>> {
    logits_with(scratch, name, flags, &[])
}

/// The same; each `{}` of the flags is one of `more`.
fn logits_with(scratch: &Scratch, name: &str, flags: &str, more: &[&dyn AsRef<OsStr>]) -> Option<Vec<u8>> {
    let (model, tokens, out) =
        (family(name, "gguf"), tokens(&family(name, "json")), scratch.path("logits.npy"));
    let arguments: Vec<&dyn AsRef<OsStr>> = vec![&model, &tokens, &out];
    let line = format!("logits -m {{}} --tokens {{}} --out {{}} {flags}");
    let answer = call(&line, &[&arguments, more].concat());
    if answer.lacks_level() {
        return None;
    }
    answer.done();
    Some(fs::read(out).unwrap())
}

#[test]
fn logits_are_those_of_independent_code() {
    let scratch = Scratch::new();
    for name in FAMILIES {
        for place in EVERYWHERE {
            let flags = format!("--cache f32 {}", place.join(" "));
            let Some(bytes) = logits(&scratch, name, &flags) else { continue };
            let (own, reference) = (Npy::parse(&bytes).unwrap(), npy(&family(name, "logits.npy")));
            let notes: Value = serde_json::from_slice(&fs::read(family(name, "json")).unwrap()).unwrap();
            assert_eq!(own.shape, [200, 128]);
            let mut sums = Sums::default();
            for (row, reference) in notes["rows"].as_array().unwrap().iter().zip(reference.values.chunks(128))
            {
                let row = row.as_u64().unwrap() as usize;
                sums = sums.with(Sums::of(&own.values[row * 128..(row + 1) * 128], reference));
            }
            assert!(sums.nmse() <= 1e-9, "{name} {flags}: {}", sums.nmse());
        }
    }
}

#[test]
fn no_byte_depends_on_cut_threads_or_level() {
    let scratch = Scratch::new();
    for name in FAMILIES {
        for cache in ["f32", "f16"] {
            let plain = logits(&scratch, name, &format!("--cache {cache}")).unwrap();
            let all: Vec<String> = (1..200).map(|cut| cut.to_string()).collect();
            let all = format!("--cut {}", all.join(","));
            let others = [
                "--cut 7,20",
                "--cut 64,128",
                "--cut 1,65,66,199",
                &all,
                "--threads 1",
                "--threads 2",
                "--threads 3",
                "--threads 8",
                "--cpu-level scalar",
                "--cpu-level avx2",
                "--cpu-level avx512",
                "--threads 3 --cut 63",
            ];
            for other in others {
                let Some(found) = logits(&scratch, name, &format!("--cache {cache} {other}")) else {
                    continue;
                };
                assert!(found == plain, "{name} --cache {cache}: {other} changes bytes");
            }
        }
    }
}

#[test]
fn f16_pages_round() {
    let scratch = Scratch::new();
    let [f32_pages, f16_pages, default] =
        ["--cache f32", "--cache f16", ""].map(|flags| logits(&scratch, "llama", flags).unwrap());
    assert!(f32_pages != f16_pages, "pages of f16 would be of f32");
    assert!(default == f16_pages, "serving takes f16 pages by default");
}

#[test]
fn an_adapter_is_on_the_rows_that_name_it() {
    let scratch = Scratch::new();
    for name in FAMILIES {
        let adapter = family(name, "adapter.safetensors");
        let with = |flags: &str| {
            logits_with(&scratch, name, &format!("--adapter {{}} --alpha 4 {flags}"), &[&adapter]).unwrap()
        };
        let base = logits(&scratch, name, "").unwrap();
        let (all, late) = (with(""), with("--reply-from 100"));
        let cut = with("--reply-from 100 --cut 50,99,100,130");
        let rows = |bytes: &[u8], range: std::ops::Range<usize>| {
            let start = bytes.len() - 4 * 200 * 128;
            bytes[start + 4 * 128 * range.start..start + 4 * 128 * range.end].to_vec()
        };
        assert!(rows(&all, 0..1) != rows(&base, 0..1), "{name}: the adapter adds nothing to row 0");
        assert!(rows(&late, 0..99) == rows(&base, 0..99), "{name}: rows before the reply have changed");
        for row in [99, 100, 199] {
            assert!(
                rows(&late, row..row + 1) != rows(&base, row..row + 1),
                "{name}: row {row} lacks the adapter"
            );
        }
        assert!(cut == late, "{name}: a cut changes bytes");
    }
}

/// The loss that a call printed.
fn loss(out: &str) -> f64 {
    let (_, rest) = out.split_once("loss ").unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

fn gradients(scratch: &Scratch, name: &str, example: &Path, flags: &str) -> Option<(f64, Vec<u8>)> {
    let (model, adapter) = (family(name, "gguf"), family(name, "adapter.safetensors"));
    let out = scratch.path("grads.safetensors");
    let line = format!("gradients -m {{}} --example {{}} --adapter {{}} --out {{}} {flags}");
    let answer = call(&line, &[&model, &example, &adapter, &out]);
    if answer.lacks_level() {
        return None;
    }
    let answer = answer.done();
    Some((loss(&answer.out), fs::read(out).unwrap()))
}

/// NMSE over all elements of two safetensors files with the same tensors.
fn distance(own: &[u8], reference: &[u8]) -> f64 {
    let own = safetensors(own);
    let reference = safetensors(reference);
    assert_eq!(own.len(), reference.len());
    let sums = reference.iter().map(|(name, reference)| {
        let own =
            own.iter().find(|(own, _)| own == name).unwrap_or_else(|| panic!("{name} is not among ours"));
        Sums::of(&own.1, reference)
    });
    sums.fold(Sums::default(), Sums::with).nmse()
}

/// Names and float32 elements of a safetensors file.
fn safetensors(bytes: &[u8]) -> Vec<(String, Vec<f32>)> {
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let table: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let tensors = table.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__");
    let read = |range: &Value| {
        assert_eq!(range["dtype"], "F32");
        let at = |index: usize| 8 + header + range["data_offsets"][index].as_u64().unwrap() as usize;
        bytes[at(0)..at(1)].as_chunks().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
    };
    tensors.map(|(name, range)| (name.clone(), read(range))).collect()
}

#[test]
fn gradients_are_named_as_the_adapter_and_near_the_reference() {
    let scratch = Scratch::new();
    for name in FAMILIES {
        let (example, reference) =
            (family(name, "json"), fs::read(family(name, "grads.safetensors")).unwrap());
        let notes: Value = serde_json::from_slice(&fs::read(&example).unwrap()).unwrap();
        for place in EVERYWHERE {
            let Some((loss, bytes)) = gradients(&scratch, name, &example, &place.join(" ")) else { continue };
            assert!((loss - notes["loss"].as_f64().unwrap()).abs() < 1e-5, "{name}: loss {loss}");
            let distance = distance(&bytes, &reference);
            assert!(distance <= 1e-8, "{name} {place:?}: {distance}");
        }
    }
}

#[test]
fn gradients_do_not_depend_on_threads_or_level() {
    let scratch = Scratch::new();
    for name in FAMILIES {
        let replies = json!([[20, 90], [100, 199]]);
        let labels = labels_of(name, &[19..89, 99..198]);
        let keys = [("objective", json!("reply")), ("reply_runs", replies), ("labels", labels)];
        let reply = scratch.json("reply.json", &family(name, "json"), &keys);
        for example in [family(name, "json"), reply] {
            let plain = gradients(&scratch, name, &example, "").unwrap();
            for flags in
                ["--threads 1", "--threads 3", "--cpu-level scalar", "--cpu-level avx2", "--cpu-level avx512"]
            {
                let Some(found) = gradients(&scratch, name, &example, flags) else { continue };
                assert!(found == plain, "{name} {}: {flags} changes bytes", example.display());
            }
        }
    }
}

/// Labels of a family's example on these rows only: what follows.
fn labels_of(name: &str, rows: &[std::ops::Range<usize>]) -> Value {
    let notes: Value = serde_json::from_slice(&fs::read(family(name, "json")).unwrap()).unwrap();
    let tokens = notes["tokens"].as_array().unwrap();
    let label = |row: usize| match rows.iter().any(|rows| rows.contains(&row)) {
        true => tokens[row + 1].clone(),
        false => json!(-1),
    };
    (0..tokens.len()).map(label).collect()
}

#[test]
fn one_reply_from_the_start_is_the_whole_graph() {
    let scratch = Scratch::new();
    for name in FAMILIES {
        let rows = 0..199;
        let labels = labels_of(name, std::slice::from_ref(&rows));
        let all = scratch.json("all.json", &family(name, "json"), &[("labels", labels.clone())]);
        let keys = [("labels", labels), ("objective", json!("reply")), ("reply_runs", json!([[1, 200]]))];
        let reply = scratch.json("reply.json", &family(name, "json"), &keys);
        let ((all_loss, all), (reply_loss, reply)) =
            (gradients(&scratch, name, &all, "").unwrap(), gradients(&scratch, name, &reply, "").unwrap());
        assert_eq!(all_loss, reply_loss, "{name}");
        assert!(distance(&all, &reply) < 1e-15, "{name}: {}", distance(&all, &reply));
    }
}

#[test]
fn a_reply_is_another_gradient_than_all_and_the_meaning_agrees() {
    let scratch = Scratch::new();
    for name in FAMILIES {
        let labels = labels_of(name, &[69..149, 159..180]);
        let all = scratch.json("all.json", &family(name, "json"), &[("labels", labels.clone())]);
        let keys = [("labels", labels), ("objective", json!("reply"))];
        let reply = scratch.json("reply.json", &family(name, "json"), &keys);
        let all = gradients(&scratch, name, &all, "").unwrap();
        let found = gradients(&scratch, name, &reply, "").unwrap();
        let meaning = gradients(&scratch, name, &reply, "--backend interpreter").unwrap();
        assert!(distance(&found.1, &all.1) > 1e-4, "{name}: the objective changes nothing");
        assert!((found.0 - meaning.0).abs() < 1e-5, "{name}: {} {}", found.0, meaning.0);
        assert!(distance(&found.1, &meaning.1) <= 1e-8, "{name}: {}", distance(&found.1, &meaning.1));
    }
}

#[test]
fn training_lowers_the_loss_and_writes_what_it_learnt() {
    let (scratch, name) = (Scratch::new(), "llama");
    let (model, adapter) = (family(name, "gguf"), family(name, "adapter.safetensors"));
    let keys = [("labels", labels_of(name, &[69..149, 159..180])), ("objective", json!("reply"))];
    let example = scratch.json("reply.json", &family(name, "json"), &keys);
    let train = |output: &Path| {
        let line = "train -m {} --example {} --adapter {} --steps 6 --lr 0.02 -o {} --cache f32";
        call(line, &[&model, &example, &adapter, &output]).done().out
    };
    let (folder, file) = (scratch.path("learnt"), scratch.path("learnt.gguf"));
    let (out, again) = (train(&folder), train(&file));
    assert_eq!(out, again, "a second run differs");
    let losses: Vec<f64> = out.lines().map(loss).collect();
    assert_eq!(losses.len(), 6);
    assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{losses:?}");
    assert!(out.starts_with("step 1 loss "), "{out}");

    // What was written is what was learnt: the next loss is below the last one, and both formats say the same.
    let next = |adapter: &Path| {
        let out = scratch.path("grads.safetensors");
        let line = "gradients -m {} --example {} --adapter {} --out {}";
        loss(&call(line, &[&model, &example, &adapter, &out]).done().out)
    };
    assert!(next(&folder) < losses[5], "{} {losses:?}", next(&folder));
    assert_eq!(next(&folder), next(&file));

    // It is an adapter for replies, and says so.
    let tokens = tokens(&family(name, "json"));
    let out = scratch.path("x.npy");
    call("logits -m {} --tokens {} --adapter {} --out {}", &[&model, &tokens, &folder, &out])
        .refused("--reply-from");
    call("logits -m {} --tokens {} --adapter {} --out {} --reply-from 70", &[&model, &tokens, &folder, &out])
        .done();
}

#[test]
fn inspect_shows_metadata_tensors_and_adaptable_layers() {
    let model = family("llama", "gguf");
    let text = call("inspect {}", &[&model]).done().out;
    for part in [
        "llama.block_count  u32  2",
        "blk.1.ffn_down.weight  F32  [32, 48]",
        "model.layers.0.self_attn.q_proj",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let found = call("inspect {} --json", &[&model]).done().json();
    assert_eq!(found["model"]["architecture"], "llama");
    assert_eq!(found["metadata"]["llama.block_count"], json!({ "type": "u32", "value": 2 }));
    assert_eq!(
        found["tensors"][0],
        json!({"name": "token_embd.weight", "shape": [128, 32], "format": "F32", "bytes": 16384})
    );
    let layers = found["model"]["adaptable"].as_array().unwrap();
    assert_eq!(layers.len(), 15, "seven linears in each of two blocks, and the head");
    assert_eq!(layers[14]["head"], true);
}

#[test]
fn inspect_tells_of_an_unsupported_model_before_it_refuses() {
    let scratch = Scratch::new();
    let other = |key: &str, value: &apprentice_gguf::Value| match key {
        "general.architecture" => Some("mamba".to_owned().into()),
        _ => Some(value.clone()),
    };
    let model = scratch.model("mamba.gguf", &family("qwen2", "gguf"), other, |name| Some(name.to_owned()));
    let answer = call("inspect {}", &[&model]);
    assert!(answer.out.contains("token_embd.weight"), "{}", answer.out);
    answer.refused("architecture \"mamba\" is not supported");
}
