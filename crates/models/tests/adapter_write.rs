//! Adapters written and read again: the same values to the bit, the same files to the byte.
#![allow(clippy::unwrap_used, reason = "a helper of a test may fail as the test does")]

use std::fs;
use std::path::{Path, PathBuf};

use apprentice_gguf::Gguf;
use apprentice_models::adapter_file::{self, Matrices, ReadOptions};
use apprentice_models::{Adapter, AdapterNaming, AdapterRows, Model, Pair};
use common::{INSTANCES, adapter, assert_same, golden, model, read_tensors, scratch};
use serde_json::{Value, json};

mod common;

#[test]
fn golden_adapters_survive_every_format() {
    for name in INSTANCES {
        let model = model(name);
        let (adapter, _) = adapter(&model, name);
        let folder = scratch(&format!("survive_{}", name.replace('/', "_")));
        for path in ["adapter.gguf", "peft"] {
            assert_same(&round_trip(&model, &adapter, &folder.join(path)), &adapter);
        }
        for naming in
            [AdapterNaming::peft(&model, &adapter.sites()), AdapterNaming::gguf(&model, &adapter.sites())]
        {
            let path = folder.join("bare.safetensors");
            adapter_file::write_safetensors(&model, &naming, matrices(&adapter), &path).unwrap();
            let options = ReadOptions { alpha: Some(4.0), force: false };
            let (found, read) = adapter_file::read(&model, &path, &options).unwrap();
            assert_same(&found, &adapter);
            assert_eq!(read.pairs, naming.pairs, "{name}");
        }
    }
}

#[test]
fn the_same_adapter_gives_the_same_files() {
    let model = model("llama");
    let (adapter, _) = adapter(&model, "llama");
    let folder = scratch("the_same_files");
    for (first, second) in [("a.gguf", "b.gguf"), ("a", "b")] {
        adapter_file::write(&model, &adapter, &folder.join(first)).unwrap();
        let again = round_trip(&model, &adapter, &folder.join(first));
        adapter_file::write(&model, &again, &folder.join(second)).unwrap();
        assert_eq!(files(&folder.join(first)), files(&folder.join(second)));
    }
}

#[test]
fn gradients_are_named_as_the_adapter() {
    for name in INSTANCES {
        // The golden gradients, read as if they were values, go back to what the golden file holds.
        let model = model(name);
        let path = golden(&format!("{name}.grads.safetensors"));
        let options = ReadOptions { alpha: Some(1.0), force: false };
        let (gradient, naming) = adapter_file::read(&model, &path, &options).unwrap();
        let written = scratch(&format!("gradients_{}", name.replace('/', "_"))).join("grads.safetensors");
        adapter_file::write_safetensors(&model, &naming, matrices(&gradient), &written).unwrap();
        assert_eq!(read_tensors(&written), read_tensors(&path), "{name}");
    }
}

#[test]
fn a_peft_folder_holds_hugging_face_rows() {
    let model = model("llama");
    let (adapter, _) = adapter(&model, "llama");
    let folder = scratch("hugging_face_rows");
    adapter_file::write(&model, &adapter, &folder).unwrap();
    let tensors = read_tensors(&folder.join("adapter_model.safetensors"));
    let head = model.hyper().head_dim;
    for pair in &adapter.pairs {
        let site = &model.sites()[pair.site];
        let (shape, b) = &tensors[&format!("base_model.model.{}.lora_B.weight", site.module)];
        assert_eq!(shape, &[site.output, 2]);
        let rotates = site.name.contains("attn_q") || site.name.contains("attn_k");
        for row in 0..site.output {
            let (first, j, s) = (row / head * head, row % head / 2, row % 2);
            let source = if rotates { first + s * head / 2 + j } else { row };
            for rank in 0..2 {
                assert_eq!(b[source * 2 + rank], pair.b[rank * site.output + row], "{} row {row}", site.name);
            }
        }
    }
}

#[test]
fn unequal_ranks_and_scales_survive_a_peft_folder() {
    let model = model("llama");
    let pair = |site: usize, rank: usize, scale: f32| {
        let (input, output) = (model.sites()[site].input, model.sites()[site].output);
        Pair { site, rank, scale, a: vec![0.5; rank * input], b: vec![-0.25; rank * output] }
    };
    let scales = [pair(0, 2, 2.0), pair(3, 8, 0.5), pair(7, 3, 1.0 / 3.0), pair(8, 3, 8.0 / 3f32.sqrt())];
    let adapter = Adapter { pairs: scales.to_vec(), rows: AdapterRows::All };
    let folder = scratch("unequal_ranks");
    assert_same(&round_trip(&model, &adapter, &folder.join("peft")), &adapter);
    let config = config(&folder.join("peft"));
    assert_eq!((&config["r"], &config["lora_alpha"]), (&json!(2), &json!(4)));
    let last = |site: usize| model.sites()[site].module.clone();
    let ranks = json!({ last(3): 8, last(7): 3, last(8): 3 });
    assert_eq!(config["rank_pattern"], ranks);
    assert_eq!(config["alpha_pattern"][last(7)], json!(1));
    assert!(config["alpha_pattern"].get(last(3)).is_none(), "alpha 4 like the first");

    let error = adapter_file::write(&model, &adapter, &folder.join("adapter.gguf")).unwrap_err();
    assert!(error.to_string().contains("no single float32 alpha"), "{error}");
    assert!(!folder.join("adapter.gguf").exists());
}

#[test]
fn one_alpha_over_unequal_ranks_survives_gguf() {
    let model = model("qwen3");
    let pair = |site: usize, rank: usize| {
        let (input, output) = (model.sites()[site].input, model.sites()[site].output);
        Pair {
            site,
            rank,
            scale: 0.7f32 / rank as f32,
            a: vec![1.5; rank * input],
            b: vec![3.0; rank * output],
        }
    };
    let adapter = Adapter { pairs: vec![pair(1, 4), pair(2, 1), pair(9, 16)], rows: AdapterRows::All };
    let folder = scratch("one_alpha");
    assert_same(&round_trip(&model, &adapter, &folder.join("adapter.gguf")), &adapter);
}

#[test]
fn rows_survive() {
    let model = model("gemma3");
    let folder = scratch("rows_survive");
    for rows in [AdapterRows::All, AdapterRows::Reply, AdapterRows::Invocation(vec![1, 127])] {
        let adapter = Adapter::fresh(&model, &[0, 5], 1, 1.0, rows, 9).unwrap();
        for path in ["adapter.gguf", "peft"] {
            assert_same(&round_trip(&model, &adapter, &folder.join(path)), &adapter);
        }
    }
}

#[test]
fn keys_that_other_programs_read() {
    let model = model("llama");
    let all: Vec<usize> = (0..model.sites().len() - 1).collect();
    let rows = AdapterRows::Invocation(vec![7, 8]);
    let adapter = Adapter::fresh(&model, &all, 8, 16.0, rows, 1).unwrap();
    let folder = scratch("keys_that_other_programs_read");

    adapter_file::write(&model, &adapter, &folder).unwrap();
    let config = config(&folder);
    for (key, value) in [
        ("peft_type", json!("LORA")),
        ("task_type", json!("CAUSAL_LM")),
        ("bias", json!("none")),
        ("r", json!(8)),
        ("lora_alpha", json!(16)),
        ("base_model_name_or_path", Value::Null),
        ("alora_invocation_tokens", json!([7, 8])),
        ("rank_pattern", json!({})),
        ("alpha_pattern", json!({})),
        (
            "target_modules",
            json!(["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]),
        ),
    ] {
        assert_eq!(config[key], value, "{key}");
    }
    assert!(config.get("apprentice.rows").is_none());

    let path = folder.join("adapter.gguf");
    adapter_file::write(&model, &adapter, &path).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(gguf.architecture().unwrap(), "llama");
    assert_eq!(gguf.str("general.type").unwrap(), Some("adapter"));
    assert_eq!(gguf.str("adapter.type").unwrap(), Some("lora"));
    assert_eq!(gguf.f32("adapter.lora.alpha").unwrap(), Some(16.0));
    assert_eq!(gguf.u64s("adapter.alora.invocation_tokens").unwrap(), Some(vec![7, 8]));
    assert_eq!(gguf.str("apprentice.base").unwrap(), Some(model.gguf().fingerprint().as_str()));
    let site = &model.sites()[0];
    assert_eq!(gguf.tensor(&format!("{}.lora_a", site.name)).unwrap().shape, [8, site.input]);
    assert_eq!(gguf.tensor(&format!("{}.lora_b", site.name)).unwrap().shape, [site.output, 8]);
}

#[test]
fn targets_name_exactly_the_adapted_modules() {
    let model = model("qwen2");
    let site = |module: &str| model.sites().iter().position(|site| site.module == module).unwrap();
    let check = |modules: &[&str], expected: Value| {
        let sites: Vec<usize> = modules.iter().map(|module| site(module)).collect();
        let adapter = Adapter::fresh(&model, &sites, 1, 1.0, AdapterRows::All, 0).unwrap();
        let folder = scratch("targets_name");
        adapter_file::write(&model, &adapter, &folder).unwrap();
        assert_eq!(config(&folder)["target_modules"], expected, "{modules:?}");
    };
    let (first, second) = ("model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj");
    assert_eq!(model.hyper().layers, 2);
    check(&[first, second], json!(["q_proj"]));
    check(&[second], json!([second]));
    check(&[first, second, "lm_head"], json!(["lm_head", "q_proj"]));
}

#[test]
fn an_old_file_is_replaced_and_nothing_is_left_over() {
    let model = model("llama");
    let folder = scratch("an_old_file");
    for path in ["adapter.gguf", "peft"] {
        for seed in [1, 2] {
            let adapter = Adapter::fresh(&model, &[0], 1, 1.0, AdapterRows::Reply, seed).unwrap();
            assert_same(&round_trip(&model, &adapter, &folder.join(path)), &adapter);
        }
    }
    let names = |folder: &Path| -> Vec<_> { files(folder).into_iter().map(|(name, _)| name).collect() };
    assert_eq!(names(&folder.join("peft")), ["adapter_config.json", "adapter_model.safetensors"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

#[test]
fn a_failed_write_leaves_no_file() {
    let model = model("llama");
    let adapter = Adapter::fresh(&model, &[0], 1, 1.0, AdapterRows::All, 1).unwrap();
    let folder = scratch("a_failed_write");
    let check = |path: PathBuf, expected: &str| {
        let error = adapter_file::write(&model, &adapter, &path).unwrap_err().to_string();
        assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
    };
    check(folder.join("absent/adapter.gguf"), "absent");
    let empty = Adapter { pairs: Vec::new(), rows: AdapterRows::All };
    let error = adapter_file::write(&model, &empty, &folder.join("empty")).unwrap_err().to_string();
    assert!(error.ends_with("empty\": holds no pair of matrices"), "{error}");
    check(folder.join("adapter.safetensors"), "output: expected a folder or a name that ends in .gguf");
    // Folders where the files would be: the rename fails after the temporary file was written.
    fs::create_dir_all(folder.join("peft/adapter_model.safetensors/full")).unwrap();
    check(folder.join("peft"), "adapter_model.safetensors: ");
    fs::create_dir_all(folder.join("adapter.gguf/full")).unwrap();
    check(folder.join("adapter.gguf"), "adapter.gguf");
    assert_eq!(fs::read_dir(folder.join("peft")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

fn matrices(adapter: &Adapter) -> impl Iterator<Item = Matrices<'_>> {
    adapter.pairs.iter().map(Matrices::from)
}

fn round_trip(model: &Model, adapter: &Adapter, path: &Path) -> Adapter {
    adapter_file::write(model, adapter, path).unwrap();
    let (found, naming) = adapter_file::read(model, path, &ReadOptions::default()).unwrap();
    assert!(naming.names_base);
    found
}

fn config(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("adapter_config.json")).unwrap()).unwrap()
}

/// Names and bytes of a file, or of the files of a folder.
fn files(path: &Path) -> Vec<(String, Vec<u8>)> {
    if path.is_file() {
        return vec![(String::new(), fs::read(path).unwrap())];
    }
    let mut paths: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs::read(path).unwrap())).collect()
}
