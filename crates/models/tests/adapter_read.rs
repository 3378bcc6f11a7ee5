//! Adapters as files of others hold them: names, row orders, scales, elements.
#![allow(clippy::unwrap_used, reason = "a helper of a test may fail as the test does")]

use std::fs;
use std::path::{Path, PathBuf};

use apprentice_models::adapter_file::{self, ReadOptions};
use apprentice_models::{Adapter, AdapterNaming, AdapterRows, Model};
use common::{INSTANCES, Tensors, adapter, golden, model, read_tensors, scratch, write_tensors};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

mod common;

#[test]
fn golden_adapters_are_read_as_they_lie() {
    for name in INSTANCES {
        let model = model(name);
        let (adapter, naming) = adapter(&model, name);
        let tensors = read_tensors(&golden(&format!("{name}.adapter.safetensors")));
        let linears = model.sites().iter().filter(|site| !site.head).count();
        assert_eq!(adapter.pairs.len(), linears, "{name}: one pair a linear of the blocks");
        assert_eq!(tensors.len(), 2 * linears, "{name}");
        assert_eq!((adapter.rank(), &adapter.rows), (2, &AdapterRows::All), "{name}");
        for (pair, names) in adapter.pairs.iter().zip(&naming.pairs) {
            let site = &model.sites()[pair.site];
            assert_eq!(
                (&names.a, &names.b),
                (&format!("{}.lora_a", site.name), &format!("{}.lora_b", site.name))
            );
            assert_eq!(pair.scale, 2.0, "{name}: alpha 4, rank 2");
            assert_eq!(pair.a, tensors[&names.a].1, "{name}: {}", names.a);
            for row in 0..site.output {
                for rank in 0..2 {
                    let expected = tensors[&names.b].1[row * 2 + rank];
                    assert_eq!(
                        pair.b[rank * site.output + row],
                        expected,
                        "{name}: {} [{row}, {rank}]",
                        names.b
                    );
                }
            }
        }
        assert!(!naming.names_base, "{name}: judged by names and shapes");
    }
}

#[test]
fn hugging_face_rows_find_their_place() {
    // B of a query or key holds the number of its row, so that what is read says where each row came from.
    for (name, permuted) in [("llama", true), ("extra/llamabias", true), ("qwen2", false), ("gemma3", false)]
    {
        let model = model(name);
        let mut tensors = Tensors::new();
        for (module, input, output) in modules(&model) {
            let rows = (0..output).map(|row| row as f32).collect();
            tensors.insert(format!("{module}.lora_A.weight"), (vec![1, input], vec![1.0; input]));
            tensors.insert(format!("{module}.lora_B.weight"), (vec![output, 1], rows));
        }
        let folder = scratch(&format!("hugging_face_rows_{}", name.replace('/', "_")));
        let adapter = read_peft(&model, &folder, &tensors, json!({ "r": 1, "lora_alpha": 1 })).unwrap().0;
        let head = model.hyper().head_dim;
        let mut moved = 0;
        for pair in &adapter.pairs {
            let site = &model.sites()[pair.site];
            let rotates = site.name.contains("attn_q") || site.name.contains("attn_k");
            for (row, found) in pair.b.iter().enumerate() {
                let (first, j, s) = (row / head * head, row % head / 2, row % 2);
                let expected = if permuted && rotates { first + s * head / 2 + j } else { row };
                assert_eq!(*found, expected as f32, "{name}: {} row {row}", site.name);
                moved += usize::from(expected != row);
            }
        }
        assert_eq!(moved > 0, permuted, "{name}");
    }
}

#[test]
fn scale_follows_the_configuration() {
    let model = model("llama");
    let check = |config: Value, expected: [f32; 2]| {
        let tensors = two_pairs(&model, 4);
        let folder = scratch("scale_follows_the_configuration");
        let adapter = read_peft(&model, &folder, &tensors, config.clone()).unwrap().0;
        assert_eq!(adapter.pairs.iter().map(|pair| pair.scale).collect::<Vec<_>>(), expected, "{config}");
    };
    let q = "model.layers.0.self_attn.q_proj";
    check(json!({ "r": 4, "lora_alpha": 6 }), [1.5, 1.5]);
    check(json!({ "r": 4, "lora_alpha": 0.5 }), [0.125, 0.125]);
    check(json!({ "r": 4, "lora_alpha": 6, "use_rslora": true }), [3.0, 3.0]);
    check(json!({ "r": 4, "lora_alpha": 6, "alpha_pattern": { "q_proj": 2 } }), [0.5, 1.5]);
    check(json!({ "r": 4, "lora_alpha": 6, "alpha_pattern": { "proj": 2 } }), [1.5, 1.5]);
    check(json!({ "r": 4, "lora_alpha": 6, "alpha_pattern": { q: 2, "q_proj": 3 } }), [0.5, 1.5]);
    check(json!({ "r": 4, "lora_alpha": 6, "alpha_pattern": { "q_proj": 3, q: 2 } }), [0.75, 1.5]);
    check(
        json!({ "r": 9, "lora_alpha": 6, "rank_pattern": { "q_proj": 4, "layers.1.mlp.up_proj": 4 } }),
        [1.5, 1.5],
    );
}

#[test]
fn a_given_alpha_takes_the_place_of_the_files() {
    let model = model("llama");
    let folder = scratch("a_given_alpha");
    let config = json!({ "r": 4, "lora_alpha": 6, "alpha_pattern": { "q_proj": 2 } });
    read_peft(&model, &folder, &two_pairs(&model, 4), config).unwrap();
    let given = ReadOptions { alpha: Some(10.0), force: false };
    let (adapter, _) = adapter_file::read(&model, &folder, &given).unwrap();
    assert_eq!(adapter.pairs.iter().map(|pair| pair.scale).collect::<Vec<_>>(), [2.5, 2.5]);

    let file = folder.join("bare.safetensors");
    write_tensors(&file, &two_pairs(&model, 4), &[("lora_alpha", "6")]);
    let (stated, _) = adapter_file::read(&model, &file, &ReadOptions::default()).unwrap();
    assert_eq!(stated.pairs[0].scale, 1.5);
    let (adapter, _) = adapter_file::read(&model, &file, &given).unwrap();
    assert_eq!(adapter.pairs[0].scale, 2.5);
}

#[test]
fn rows_follow_the_configuration() {
    let model = model("qwen2");
    let check = |config: Value, expected: AdapterRows| {
        let folder = scratch("rows_follow_the_configuration");
        let mut whole = json!({ "r": 2, "lora_alpha": 2 });
        whole.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        let adapter = read_peft(&model, &folder, &two_pairs(&model, 2), whole).unwrap().0;
        assert_eq!(adapter.rows, expected, "{config}");
    };
    check(json!({}), AdapterRows::All);
    check(json!({ "alora_invocation_tokens": null }), AdapterRows::All);
    check(json!({ "alora_invocation_tokens": [5, 9] }), AdapterRows::Invocation(vec![5, 9]));
    check(json!({ "apprentice.rows": "reply" }), AdapterRows::Reply);
    check(json!({ "apprentice.rows": "all" }), AdapterRows::All);
    check(json!({ "apprentice.rows": "reply", "alora_invocation_tokens": [5, 9] }), AdapterRows::Reply);
}

#[test]
fn short_elements_widen() {
    let model = model("qwen3");
    let tensors = two_pairs(&model, 2);
    let check = |dtype: Dtype, narrow: fn(f32) -> [u8; 2]| {
        let file = scratch("short_elements_widen").join("adapter.safetensors");
        let bytes: Vec<Vec<u8>> =
            tensors.values().map(|(_, values)| values.iter().copied().flat_map(narrow).collect()).collect();
        let views = tensors
            .iter()
            .zip(&bytes)
            .map(|((name, (shape, _)), bytes)| (name, TensorView::new(dtype, shape.clone(), bytes).unwrap()));
        fs::write(&file, safetensors::serialize(views, None).unwrap()).unwrap();
        let given = ReadOptions { alpha: Some(2.0), force: false };
        let (adapter, naming) = adapter_file::read(&model, &file, &given).unwrap();
        assert_eq!(adapter.pairs[0].a, tensors[&naming.pairs[0].a].1, "{dtype:?}");
    };
    // Quarters up to 64: exact in both.
    check(Dtype::BF16, |value| ((value.to_bits() >> 16) as u16).to_le_bytes());
    check(Dtype::F16, |value| {
        let bits = value.to_bits();
        let exponent = (bits >> 23 & 0xFF) as i32 - 127 + 15;
        let narrow = if value == 0.0 { 0 } else { (exponent as u32) << 10 | bits >> 13 & 0x3FF };
        ((bits >> 16 & 0x8000 | narrow) as u16).to_le_bytes()
    });
}

#[test]
fn names_with_the_adapters_name_are_remembered() {
    let model = model("llama");
    let plain = two_pairs(&model, 2);
    let named: Tensors = plain
        .into_iter()
        .map(|(name, tensor)| (name.replace(".weight", ".default.weight"), tensor))
        .collect();
    let folder = scratch("names_with_the_adapters_name");
    let (adapter, naming) = read_peft(&model, &folder, &named, json!({ "r": 2, "lora_alpha": 2 })).unwrap();
    let again = folder.join("gradients.safetensors");
    adapter_file::write_safetensors(&model, &naming, adapter.pairs.iter().map(Into::into), &again).unwrap();
    assert_eq!(read_tensors(&again), named);
}

/// Two pairs of llama-like layers under PEFT's names, with quarters as values.
fn two_pairs(model: &Model, rank: usize) -> Tensors {
    let mut tensors = Tensors::new();
    for (module, input, output) in modules(model) {
        if module.ends_with("layers.0.self_attn.q_proj") || module.ends_with("layers.1.mlp.up_proj") {
            let values = |count: usize| (0..count).map(|i| (i % 97) as f32 / 4.0 - 8.0).collect();
            tensors.insert(format!("{module}.lora_A.weight"), (vec![rank, input], values(rank * input)));
            tensors.insert(format!("{module}.lora_B.weight"), (vec![output, rank], values(rank * output)));
        }
    }
    assert_eq!(tensors.len(), 4);
    tensors
}

/// Modules under PEFT's prefix, with their widths.
fn modules(model: &Model) -> Vec<(String, usize, usize)> {
    let module = |site: &apprentice_models::Site| {
        (format!("base_model.model.{}", site.module), site.input, site.output)
    };
    model.sites().iter().map(module).collect()
}

fn read_peft(
    model: &Model,
    folder: &Path,
    tensors: &Tensors,
    mut config: Value,
) -> Result<(Adapter, AdapterNaming), apprentice_models::ModelError> {
    config["peft_type"] = json!("LORA");
    let path: PathBuf = folder.join("adapter_config.json");
    fs::write(path, config.to_string()).unwrap();
    write_tensors(&folder.join("adapter_model.safetensors"), tensors, &[("format", "pt")]);
    adapter_file::read(model, folder, &ReadOptions::default())
}
