//! Adapter files that are refused: one line that names the thing, what was expected and what was found.
#![allow(clippy::unwrap_used, reason = "a helper of a test may fail as the test does")]

use std::fs;
use std::path::{Path, PathBuf};

use apprentice_gguf::{Value as Meta, Writer};
use apprentice_models::adapter_file::{self, ReadOptions};
use apprentice_models::{Adapter, AdapterRows, Model, ModelError};
use apprentice_quant::{ErrorKind, Format};
use common::{Tensors, golden, model, read_tensors, scratch, write_tensors};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

mod common;

/// Keys of a GGUF file.
type Keys = Vec<(&'static str, Meta)>;

/// The module of most tests.
const Q: &str = "base_model.model.model.layers.0.self_attn.q_proj";

#[test]
fn tensors_that_do_not_fit() {
    let model = model("llama");
    let check = |change: &dyn Fn(&mut Tensors), expected: &str| {
        let mut tensors = pair(&model);
        change(&mut tensors);
        let file = scratch("tensors_that_do_not_fit").join("adapter.safetensors");
        write_tensors(&file, &tensors, &[]);
        refused(&model, &file, given(1.0), ErrorKind::Input, expected);
    };
    check(
        &|tensors| {
            tensors.insert(format!("{Q}.lora_magnitude_vector"), (vec![1], vec![1.0]));
        },
        "tensor \"base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector\": matches nothing that an \
         adapter may sit on; there are base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight, \
         base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight, \
         base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight, and so on at 15 sites",
    );
    check(
        &|tensors| {
            let moved = tensors.remove(&format!("{Q}.lora_A.weight")).unwrap();
            tensors.insert(format!("{Q}.lora_A.weight").replace("layers.0", "layers.2"), moved);
        },
        "layers.2.self_attn.q_proj.lora_A.weight\": matches nothing",
    );
    check(
        &|tensors| drop(tensors.remove(&format!("{Q}.lora_A.weight"))),
        "tensor \"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight\": its counterpart \
         \"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\" is missing",
    );
    check(
        &|tensors| drop(tensors.remove(&format!("{Q}.lora_B.weight"))),
        "its counterpart \"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight\" is missing",
    );
    check(
        &|tensors| {
            let again = tensors[&format!("{Q}.lora_A.weight")].clone();
            tensors.insert(format!("{Q}.lora_A.default.weight"), again);
        },
        "q_proj.lora_A.weight\": the same matrix as \
         \"base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight\"",
    );
    check(&|tensors| tensors.clear(), "holds no pair of matrices");
    check(
        &|tensors| reshape(tensors, "lora_A", &[2, 16]),
        "lora_A.weight\": expected [rank, 32] for this model, found [2, 16]",
    );
    check(&|tensors| reshape(tensors, "lora_A", &[64]), "expected [rank, 32] for this model, found [64]");
    check(
        &|tensors| reshape(tensors, "lora_B", &[2, 64]),
        "lora_B.weight\": expected [64, rank] for this model, found [2, 64]",
    );
    check(&|tensors| reshape(tensors, "lora_B", &[64, 3]), "lora_B.weight\": expected rank 2 of");
    check(
        &|tensors| reshape(tensors, "lora_A", &[0, 32]),
        "lora_A.weight\": expected rank at least 1, found 0",
    );
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for (half, index, row, column) in [("lora_A", 35, 1, 3), ("lora_B", 127, 63, 1)] {
            check(
                &|tensors| tensors.get_mut(&format!("{Q}.{half}.weight")).unwrap().1[index] = value,
                &format!("{half}.weight\" [{row}, {column}]: expected a finite number, found {value}"),
            );
        }
    }
}

#[test]
fn the_adapter_of_another_model() {
    let llama = model("llama");
    let others = golden("gemma3.adapter.safetensors");
    refused(
        &llama,
        &others,
        given(4.0),
        ErrorKind::Input,
        "tensor \"blk.2.attn_k.weight.lora_a\": matches nothing",
    );
    let others = golden("qwen2.adapter.safetensors");
    refused(&llama, &others, given(4.0), ErrorKind::Input, "for this model, found");

    let qwen3 = model("qwen3");
    let folder = scratch("the_adapter_of_another_model");
    for path in [folder.join("peft"), folder.join("adapter.gguf")] {
        let adapter = Adapter::fresh(&qwen3, &[0], 1, 1.0, AdapterRows::All, 0).unwrap();
        adapter_file::write(&qwen3, &adapter, &path).unwrap();
    }
    let expected = format!(
        "made for the base model {}, this one is {}; it is used only when forced",
        qwen3.gguf().fingerprint(),
        llama.gguf().fingerprint()
    );
    refused(&llama, &folder.join("peft"), ReadOptions::default(), ErrorKind::Conflict, &expected);
    let expected = "general.architecture: expected \"llama\", found \"qwen3\"";
    refused(&llama, &folder.join("adapter.gguf"), ReadOptions::default(), ErrorKind::Input, expected);
}

#[test]
fn another_base_is_used_only_when_forced() {
    // The same sizes, other weights: only the fingerprint tells them apart.
    let base = model("llama");
    let folder = scratch("another_base");
    let mut bytes = fs::read(golden("llama.gguf")).unwrap();
    let last = bytes.len() - 100;
    bytes[last] ^= 1;
    let other = Model::open(apprentice_gguf::Gguf::from_bytes(bytes).unwrap()).unwrap();
    let adapter = Adapter::fresh(&base, &[0], 1, 1.0, AdapterRows::All, 0).unwrap();
    for path in [folder.join("peft"), folder.join("adapter.gguf")] {
        adapter_file::write(&base, &adapter, &path).unwrap();
        refused(&other, &path, ReadOptions::default(), ErrorKind::Conflict, "made for the base model");
        let forced = ReadOptions { alpha: None, force: true };
        assert_eq!(adapter_file::read(&other, &path, &forced).unwrap().0, adapter);
    }
}

#[test]
fn configurations_of_other_mathematics() {
    let model = model("llama");
    let check = |key: &str, value: Value, kind: ErrorKind, expected: &str| {
        let mut config = json!({ "peft_type": "LORA", "r": 2, "lora_alpha": 4 });
        config[key] = value;
        let folder = peft(&model, "configurations_of_other_mathematics", &config.to_string());
        refused(&model, &folder, ReadOptions::default(), kind, expected);
    };
    for (key, value) in [
        ("peft_type", json!("IA3")),
        ("use_dora", json!(true)),
        ("use_qalora", json!(true)),
        ("use_something_new", json!(true)),
        ("something_new_config", json!({ "a": 1 })),
        ("fan_in_fan_out", json!(true)),
        ("bias", json!("lora_only")),
        ("lora_bias", json!(true)),
        ("modules_to_save", json!(["lm_head"])),
        ("trainable_token_indices", json!([1])),
        ("target_parameters", json!(["experts"])),
        ("layer_replication", json!([[0, 1]])),
        ("init_lora_weights", json!("pissa")),
    ] {
        let expected = format!("{key} = {value}: not supported");
        check(key, value, ErrorKind::Unsupported, &expected);
    }
    let input = ErrorKind::Input;
    check("r", json!(0), input, "r: expected a whole number from 1, found 0");
    check("r", json!(-2), input, "r: expected a whole number from 1, found -2");
    check("r", json!(4), input, "q_proj.lora_A.weight\": expected rank 4 of adapter_config.json, found 2");
    check("rank_pattern", json!({ "q_proj": 8 }), input, "expected rank 8 of adapter_config.json, found 2");
    check("rank_pattern", json!({ "q_proj": "8" }), input, "rank_pattern.q_proj: expected a whole number");
    check(
        "rank_pattern",
        json!({ ".*q": 8 }),
        input,
        "rank_pattern: expected names of modules, found the regular expression \".*q\"",
    );
    check("alpha_pattern", json!([]), input, "alpha_pattern: expected an object, found []");
    check("lora_alpha", json!(0), input, "lora_alpha: expected a finite number other than 0, found 0");
    check("lora_alpha", json!("4"), input, "lora_alpha: expected a finite number other than 0, found \"4\"");
    check(
        "apprentice.rows",
        json!("some"),
        input,
        "apprentice.rows: expected \"all\" or \"reply\", found \"some\"",
    );
    check("apprentice.rows", json!(1), input, "apprentice.rows: expected \"all\" or \"reply\", found 1");
    check("apprentice.base", json!(1), input, "apprentice.base: expected a fingerprint, found 1");
    check(
        "alora_invocation_tokens",
        json!([-1]),
        input,
        "alora_invocation_tokens: expected token ids, found [-1]",
    );
    check("alora_invocation_tokens", json!(7), input, "alora_invocation_tokens: expected token ids, found 7");
}

#[test]
fn configurations_that_say_nothing_more_are_taken() {
    let model = model("llama");
    let config = json!({
        "peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", "init_lora_weights": true, "use_dora": false,
        "modules_to_save": [], "layer_replication": null, "eva_config": { "rho": 2.0 }, "loftq_config": {},
        "megatron_core": "megatron.core", "qalora_group_size": 16, "lora_dropout": 0.1, "peft_version": "0.1",
    });
    let folder = peft(&model, "configurations_that_say_nothing_more", &config.to_string());
    let (adapter, _) = adapter_file::read(&model, &folder, &ReadOptions::default()).unwrap();
    assert_eq!(adapter.pairs[0].scale, 2.0);
}

#[test]
fn folders_that_are_not_whole() {
    let model = model("llama");
    let options = ReadOptions::default();
    let config = json!({ "peft_type": "LORA", "r": 2, "lora_alpha": 4 }).to_string();
    let name = "folders_that_are_not_whole";
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        let folder = peft(&model, name, &config);
        fs::remove_file(folder.join(file)).unwrap();
        refused(&model, &folder, options, ErrorKind::Missing, &format!("{file}: missing"));
    }
    for text in ["", "{", "{\"r\": 2,}", &config[..config.len() - 1], "\u{0}PNG", &"[".repeat(100_000)] {
        let folder = peft(&model, name, text);
        refused(&model, &folder, options, ErrorKind::Input, "adapter_config.json: ");
    }
    refused(
        &model,
        &peft(&model, name, "[]"),
        options,
        ErrorKind::Input,
        "adapter_config.json: configuration: expected an object, found []",
    );
    for key in ["peft_type", "r", "lora_alpha"] {
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config.as_object_mut().unwrap().remove(key);
        let folder = peft(&model, name, &config.to_string());
        refused(
            &model,
            &folder,
            options,
            ErrorKind::Missing,
            &format!("adapter_config.json: {key}: missing"),
        );
    }
    let folder = peft(&model, name, &config);
    let file = folder.join("adapter_model.safetensors");
    let whole = fs::read(&file).unwrap();
    for length in [0, 7, 8, 100, whole.len() - 1] {
        fs::write(&file, &whole[..length]).unwrap();
        let expected = "adapter_model.safetensors: not a whole safetensors file: ";
        refused(&model, &folder, options, ErrorKind::Input, expected);
    }
}

#[test]
fn safetensors_that_are_not_whole() {
    let model = model("llama");
    let whole = fs::read(golden("llama.adapter.safetensors")).unwrap();
    let file = scratch("safetensors_that_are_not_whole").join("adapter.safetensors");
    let header = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes(), &[0; 64]].concat();
    let tensor = |shape: &str, offsets: &str| {
        header(&format!(
            "{{\"{Q}.lora_A.weight\":{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":{offsets}}}}}"
        ))
    };
    for bytes in [
        whole[..whole.len() - 1].to_vec(),
        whole[..1000].to_vec(),
        Vec::new(),
        b"\x89PNG\r\n\x1a\n0000".to_vec(),
        u64::MAX.to_le_bytes().to_vec(),
        header("{]"),
        header("\u{7f}"),
        tensor("[18446744073709551615, 32]", "[0, 64]"),
        tensor("[4611686018427387905, 4]", "[0, 64]"),
        tensor("[2, 8]", "[64, 0]"),
        tensor("[2, 8]", "[0, 18446744073709551615]"),
        tensor("[2, 9]", "[0, 64]"),
        tensor("[2, -8]", "[0, 64]"),
    ] {
        fs::write(&file, bytes).unwrap();
        let expected = "not a whole safetensors file: ";
        refused(&model, &file, given(4.0), ErrorKind::Input, expected);
    }
    fs::write(&file, tensor("[2, 8]", "[0, 64]")).unwrap();
    refused(&model, &file, given(4.0), ErrorKind::Input, "is missing");
}

#[test]
fn elements_that_are_not_read() {
    let model = model("llama");
    let file = scratch("elements_that_are_not_read").join("adapter.safetensors");
    for (dtype, name, bytes) in [(Dtype::F64, "F64", 8), (Dtype::I32, "I32", 4), (Dtype::U8, "U8", 1)] {
        let data = vec![0; 64 * bytes];
        let view = TensorView::new(dtype, vec![2, 32], &data).unwrap();
        let name_a = format!("{Q}.lora_A.weight");
        fs::write(&file, safetensors::serialize([(&name_a, view)], None).unwrap()).unwrap();
        let expected = format!("tensor \"{name_a}\": expected F32, F16 or BF16, found {name}");
        refused(&model, &file, given(1.0), ErrorKind::Unsupported, &expected);
    }
}

#[test]
fn an_alpha_that_is_not_there_or_cannot_be() {
    let model = model("llama");
    let bare = golden("llama.adapter.safetensors");
    let missing = "alpha: not in the file; it must be given (--alpha)";
    refused(&model, &bare, ReadOptions::default(), ErrorKind::Missing, missing);
    for (alpha, shown) in [(0.0, "0"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let expected = format!("alpha: expected a finite number other than 0, found {shown}");
        refused(&model, &bare, given(alpha), ErrorKind::Input, &expected);
    }
    let file = scratch("an_alpha_that_cannot_be").join("adapter.safetensors");
    for stated in ["four", "", "NaN", "0"] {
        write_tensors(&file, &pair(&model), &[("alpha", stated)]);
        let expected = format!("metadata alpha: expected a finite number other than 0, found {stated:?}");
        refused(&model, &file, ReadOptions::default(), ErrorKind::Input, &expected);
    }
}

#[test]
fn gguf_files_that_are_no_adapter_of_this_model() {
    let model = model("llama");
    let folder = scratch("gguf_files_that_are_no_adapter");
    let file = folder.join("adapter.gguf");
    let keys = || {
        vec![
            ("general.architecture", Meta::from("llama")),
            ("general.type", Meta::from("adapter")),
            ("adapter.type", Meta::from("lora")),
            ("adapter.lora.alpha", Meta::from(2.0f32)),
        ]
    };
    let write = |keys: &[(&str, Meta)], tensors: &[(&str, [usize; 2], f32)]| {
        let mut writer = Writer::new();
        for (key, value) in keys {
            writer.set(key, value.clone()).unwrap();
        }
        for (name, shape, value) in tensors {
            let bytes: Vec<u8> = value.to_le_bytes().repeat(shape.iter().product());
            writer.tensor(name, shape, Format::F32, bytes).unwrap();
        }
        writer.write(&file).unwrap();
    };
    let (a, b) = ("blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b");
    let whole = [(a, [2, 32], 1.0), (b, [64, 2], 1.0)];
    write(&keys(), &whole);
    let (adapter, naming) = adapter_file::read(&model, &file, &ReadOptions::default()).unwrap();
    assert_eq!((adapter.pairs.len(), adapter.pairs[0].scale, naming.names_base), (1, 1.0, false));

    let check = |change: &dyn Fn(&mut Keys), kind: ErrorKind, expected: &str| {
        let mut keys = keys();
        change(&mut keys);
        write(&keys, &whole);
        refused(&model, &file, ReadOptions::default(), kind, expected);
    };
    let (input, missing) = (ErrorKind::Input, ErrorKind::Missing);
    for (index, key) in ["general.architecture", "general.type", "adapter.type"].into_iter().enumerate() {
        check(&|keys| drop(keys.remove(index)), missing, &format!("{key}: missing"));
        check(&|keys| keys[index].1 = Meta::from("x"), input, &format!("{key}: expected"));
        check(
            &|keys| keys[index].1 = Meta::from(1u32),
            input,
            &format!("key {key:?}: expected string, found u32"),
        );
    }
    check(&|keys| drop(keys.remove(3)), missing, "alpha: not in the file");
    check(
        &|keys| keys[3].1 = Meta::from(0.0f32),
        input,
        "adapter.lora.alpha: expected a finite number other than 0",
    );
    check(&|keys| keys[3].1 = Meta::from(f32::NAN), input, "adapter.lora.alpha: expected a finite number");
    check(&|keys| keys.push(("apprentice.rows", Meta::from("none"))), input, "apprentice.rows: expected");
    check(
        &|keys| keys.push(("apprentice.base", Meta::from("00"))),
        ErrorKind::Conflict,
        "made for the base model 00",
    );
    let tokens = |keys: &mut Keys| {
        keys.push(("adapter.alora.invocation_tokens", Meta::from(vec![1u64 << 32])));
    };
    check(&tokens, input, "adapter.alora.invocation_tokens: expected token ids, found 4294967296");

    let check = |tensors: &[(&str, [usize; 2], f32)], expected: &str| {
        write(&keys(), tensors);
        refused(&model, &file, ReadOptions::default(), input, expected);
    };
    check(&[], "holds no pair of matrices");
    check(
        &whole[..1],
        "tensor \"blk.0.attn_q.weight.lora_a\": its counterpart \"blk.0.attn_q.weight.lora_b\" is missing",
    );
    check(
        &whole[1..],
        "tensor \"blk.0.attn_q.weight.lora_b\": its counterpart \"blk.0.attn_q.weight.lora_a\" is missing",
    );
    check(
        &[("token_embd.weight.lora_a", [2, 32], 1.0)],
        "tensor \"token_embd.weight.lora_a\": matches nothing",
    );
    check(&[("blk.0.attn_norm.weight", [1, 32], 1.0)], "tensor \"blk.0.attn_norm.weight\": matches nothing");
    check(&[(a, [32, 2], 1.0), whole[1]], "expected [rank, 32] for this model, found [32, 2]");
    check(&[whole[0], (b, [64, 2], f32::NAN)], "lora_b\" [0, 0]: expected a finite number, found NaN");

    let error = "expected a GGUF file";
    fs::write(&file, b"\x89PNG\r\n\x1a\n").unwrap();
    refused(&model, &file, ReadOptions::default(), input, error);
    fs::write(&file, b"").unwrap();
    refused(&model, &file, ReadOptions::default(), input, error);
    refused(&model, &golden("llama.gguf"), ReadOptions::default(), missing, "general.type: missing");
    refused(&model, &folder.join("absent"), ReadOptions::default(), missing, "absent");
    refused(&model, &folder.join("absent.gguf"), ReadOptions::default(), missing, "absent.gguf");
}

#[test]
fn gguf_is_known_by_its_first_bytes() {
    let model = model("llama");
    let folder = scratch("gguf_is_known");
    let adapter = Adapter::fresh(&model, &[0], 1, 1.0, AdapterRows::All, 0).unwrap();
    adapter_file::write(&model, &adapter, &folder.join("adapter.gguf")).unwrap();
    fs::rename(folder.join("adapter.gguf"), folder.join("adapter")).unwrap();
    let (found, _) = adapter_file::read(&model, &folder.join("adapter"), &ReadOptions::default()).unwrap();
    assert_eq!(found, adapter);
}

/// One pair at [`Q`], rank 2.
fn pair(model: &Model) -> Tensors {
    let site = model.sites().iter().find(|site| site.name == "blk.0.attn_q.weight").unwrap();
    assert_eq!((site.input, site.output), (32, 64));
    Tensors::from([
        (format!("{Q}.lora_A.weight"), (vec![2, 32], vec![0.5; 64])),
        (format!("{Q}.lora_B.weight"), (vec![64, 2], vec![0.25; 128])),
    ])
}

fn reshape(tensors: &mut Tensors, half: &str, shape: &[usize]) {
    let values = vec![0.5; shape.iter().product()];
    tensors.insert(format!("{Q}.{half}.weight"), (shape.to_vec(), values));
}

/// A folder with this configuration and one pair.
fn peft(model: &Model, name: &str, config: &str) -> PathBuf {
    let folder = scratch(name);
    fs::write(folder.join("adapter_config.json"), config).unwrap();
    write_tensors(&folder.join("adapter_model.safetensors"), &pair(model), &[]);
    assert_eq!(read_tensors(&folder.join("adapter_model.safetensors")).len(), 2);
    folder
}

fn given(alpha: f32) -> ReadOptions {
    ReadOptions { alpha: Some(alpha), force: false }
}

fn refused(model: &Model, path: &Path, options: ReadOptions, kind: ErrorKind, expected: &str) {
    let error: ModelError = adapter_file::read(model, path, &options).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&format!("adapter {path:?}: ")), "{text}");
    assert!(text.contains(expected), "expected {expected:?} in {text}");
    assert!(text.lines().count() == 1, "more than one line: {text}");
    assert_eq!(error.kind(), kind, "{text}");
}
