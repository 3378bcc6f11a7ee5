//! PEFT folders: `adapter_config.json` beside `adapter_model.safetensors`.
//!
//! Scale: `alpha / r`, or `alpha / sqrt(r)` under `use_rslora`; `rank_pattern` and `alpha_pattern` say both for modules
//! whose path is the key or ends in `.key`, the first that fits. Keys of our own: `apprentice.rows` (`all`, `reply`) and
//! `apprentice.base`, the fingerprint of the base model.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::adapter::{Adapter, AdapterRows, Pair};
use crate::adapter_error::AdapterError;
use crate::adapter_file::{BASE_KEY, ROWS_KEY, ReadOptions, check_base, rows_from_name, rows_name};
use crate::adapter_names::{AdapterNaming, Scheme};
use crate::adapter_pairs::lay;
use crate::adapter_safetensors as tensors;
use crate::alpha::alpha_of;
use crate::atomic;
use crate::model::{Model, Site};

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";
const CONFIG_BYTES_MAX: u64 = 16 << 20;
const INVOCATION_KEY: &str = "alora_invocation_tokens";

/// Keys under which other mathematics hides; each is refused unless null, false or empty.
const UNSUPPORTED: &[&str] = &[
    "fan_in_fan_out",
    "layer_replication",
    "lora_bias",
    "modules_to_save",
    "target_parameters",
    "trainable_token_indices",
];
/// Keys that look like such but only say how it was trained.
const HARMLESS: &[&str] =
    &["corda_config", "eva_config", "loftq_config", "lora_ga_config", "megatron_config", "runtime_config"];
/// Initialisations that leave the base model as it was. Others move a part of it into the adapter.
const INITIALISATIONS: &[&str] = &["gaussian", "eva", "orthogonal"];

/// Reads a folder.
pub(crate) fn read(
    model: &Model,
    folder: &Path,
    options: &ReadOptions,
) -> Result<(Adapter, AdapterNaming), AdapterError> {
    for file in [CONFIG, TENSORS] {
        if !folder.join(file).is_file() {
            return Err(AdapterError::FileMissing { file });
        }
    }
    let config = Config::read(&folder.join(CONFIG), options).map_err(|error| error.within(CONFIG))?;
    check_base(model, config.base.as_deref(), options)?;
    let matched = tensors::read_bytes(&folder.join(TENSORS), tensors::BYTES_MAX)
        .and_then(|bytes| tensors::parse(model, Some(Scheme::Peft), &bytes))
        .map_err(|error| error.within(TENSORS))?;
    let naming = matched.iter().map(|pair| pair.names.clone()).collect();
    let mut pairs = Vec::with_capacity(matched.len());
    for pair in matched {
        let (rank, scale) = config.scale(&model.sites()[pair.names.site]);
        if rank != pair.rank {
            let expected = format!("{rank} of {CONFIG}");
            return Err(AdapterError::Rank { tensor: pair.names.a, expected, found: pair.rank });
        }
        pairs.push(pair.at(scale));
    }
    let naming = AdapterNaming { pairs: naming, names_base: config.base.is_some() };
    Ok((Adapter { pairs, rows: config.rows }, naming))
}

/// Writes a folder, made where it is absent: first the tensors, then the configuration that speaks of them.
pub(crate) fn write(model: &Model, adapter: &Adapter, folder: &Path) -> Result<(), AdapterError> {
    fs::create_dir_all(folder)?;
    let naming = AdapterNaming::peft(model, &adapter.sites());
    let laid: Vec<_> = adapter
        .pairs
        .iter()
        .zip(&naming.pairs)
        .map(|(pair, names)| lay(model, names, &pair.a, &pair.b))
        .collect();
    tensors::write(model, &laid, &folder.join(TENSORS)).map_err(|error| error.within(TENSORS))?;
    let mut text = format!("{:#}", Value::Object(config(model, adapter)));
    text.push('\n');
    atomic::write(&folder.join(CONFIG), text.as_bytes())
        .map_err(|error| AdapterError::from(error).within(CONFIG))
}

/// What a configuration says about values.
struct Config {
    rank: usize,
    alpha: f64,
    rank_pattern: Vec<(String, usize)>,
    alpha_pattern: Vec<(String, f64)>,
    rank_stabilised: bool,
    rows: AdapterRows,
    base: Option<String>,
}

impl Config {
    fn read(path: &Path, options: &ReadOptions) -> Result<Config, AdapterError> {
        let value = serde_json::from_slice(&tensors::read_bytes(path, CONFIG_BYTES_MAX)?)?;
        let Value::Object(map) = value else { return Err(wrong("configuration", "an object", &value)) };
        refuse_others(&map)?;
        let given = options.alpha.map(f64::from);
        let alpha = match given {
            Some(alpha) => alpha,
            None => parse_alpha("lora_alpha", required(&map, "lora_alpha")?)?,
        };
        let alpha_pattern = match given {
            Some(_) => Vec::new(),
            None => pattern(&map, "alpha_pattern", parse_alpha)?,
        };
        Ok(Config {
            rank: parse_rank("r", required(&map, "r")?)?,
            alpha,
            rank_pattern: pattern(&map, "rank_pattern", parse_rank)?,
            alpha_pattern,
            rank_stabilised: active(&map, "use_rslora").is_some(),
            rows: rows(&map)?,
            base: match map.get(BASE_KEY) {
                None | Some(Value::Null) => None,
                Some(Value::String(base)) => Some(base.clone()),
                Some(other) => return Err(wrong(BASE_KEY, "a fingerprint", other)),
            },
        })
    }

    /// Rank and scale at a site.
    fn scale(&self, site: &Site) -> (usize, f32) {
        let rank = fitting(&self.rank_pattern, &site.module).unwrap_or(self.rank);
        let alpha = fitting(&self.alpha_pattern, &site.module).unwrap_or(self.alpha);
        let divisor = if self.rank_stabilised { (rank as f64).sqrt() } else { rank as f64 };
        (rank, (alpha / divisor) as f32)
    }
}

/// Refuses what asks for other mathematics than `scale * B A x` on linears of the base model as it is.
fn refuse_others(map: &Map<String, Value>) -> Result<(), AdapterError> {
    let refuse = |key: &str, value: &Value| {
        Err(AdapterError::Unsupported { key: key.to_owned(), found: value.to_string() })
    };
    match required(map, "peft_type")? {
        Value::String(kind) if kind == "LORA" => {}
        other => return refuse("peft_type", other),
    }
    match map.get("bias") {
        None | Some(Value::Null) => {}
        Some(Value::String(bias)) if bias == "none" => {}
        Some(other) => return refuse("bias", other),
    }
    match map.get("init_lora_weights") {
        None | Some(Value::Null | Value::Bool(_)) => {}
        Some(Value::String(name)) if INITIALISATIONS.contains(&name.as_str()) => {}
        Some(other) => return refuse("init_lora_weights", other),
    }
    // A variant that is not known yet announces itself the way all have so far: `use_NAME` or `NAME_config`.
    let variant = |key: &str| {
        (key.starts_with("use_") && key != "use_rslora")
            || (key.ends_with("_config") && !HARMLESS.contains(&key))
    };
    let suspicious = |key: &str| UNSUPPORTED.contains(&key) || variant(key);
    match map.keys().find_map(|key| Some((key, active(map, key).filter(|_| suspicious(key))?))) {
        Some((key, value)) => refuse(key, value),
        None => Ok(()),
    }
}

fn rows(map: &Map<String, Value>) -> Result<AdapterRows, AdapterError> {
    match (map.get(ROWS_KEY), active(map, INVOCATION_KEY)) {
        (Some(Value::String(name)), _) => rows_from_name(name),
        (Some(other), _) => Err(wrong(ROWS_KEY, "\"all\" or \"reply\"", other)),
        (None, None) => Ok(AdapterRows::All),
        (None, Some(value)) => {
            let token = |token: &Value| u32::try_from(token.as_u64()?).ok();
            let tokens = value.as_array().and_then(|tokens| tokens.iter().map(token).collect());
            tokens.map(AdapterRows::Invocation).ok_or_else(|| wrong(INVOCATION_KEY, "token ids", value))
        }
    }
}

/// The configuration of an adapter: PEFT's own keys, then ours.
fn config(model: &Model, adapter: &Adapter) -> Map<String, Value> {
    let alpha = |pair: &Pair| alpha_of(pair.scale, pair.rank);
    let (rank, first_alpha) = adapter.pairs.first().map_or((1, 1.0), |pair| (pair.rank, alpha(pair)));
    let module = |pair: &Pair| model.sites()[pair.site].module.clone();
    let ranks = adapter.pairs.iter().filter(|pair| pair.rank != rank);
    let alphas = adapter.pairs.iter().filter(|pair| alpha(pair) != first_alpha);
    let invocation = match &adapter.rows {
        AdapterRows::Invocation(tokens) => json!(tokens),
        AdapterRows::All | AdapterRows::Reply => Value::Null,
    };
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
    put(INVOCATION_KEY, invocation);
    put("alpha_pattern", alphas.map(|pair| (module(pair), number(alpha(pair)))).collect());
    put("auto_mapping", Value::Null);
    put("base_model_name_or_path", Value::Null);
    put("bias", json!("none"));
    put("fan_in_fan_out", json!(false));
    put("inference_mode", json!(true));
    put("init_lora_weights", json!(true));
    put("layer_replication", Value::Null);
    put("layers_pattern", Value::Null);
    put("layers_to_transform", Value::Null);
    put("lora_alpha", number(first_alpha));
    put("lora_bias", json!(false));
    put("lora_dropout", json!(0.0));
    put("modules_to_save", Value::Null);
    put("peft_type", json!("LORA"));
    put("r", json!(rank));
    put("rank_pattern", ranks.map(|pair| (module(pair), json!(pair.rank))).collect());
    put("revision", Value::Null);
    put("target_modules", json!(target_modules(model, adapter)));
    put("task_type", json!("CAUSAL_LM"));
    put("use_dora", json!(false));
    put("use_rslora", json!(false));
    if let Some(rows) = rows_name(&adapter.rows) {
        put(ROWS_KEY, json!(rows));
    }
    put(BASE_KEY, json!(model.gguf().fingerprint()));
    map
}

/// Names that PEFT finds exactly the adapted modules by: the last part of a path where every module of that name is
/// adapted, else the path.
fn target_modules(model: &Model, adapter: &Adapter) -> BTreeSet<String> {
    let last = |site: usize| model.sites()[site].module.rsplit('.').next().unwrap_or_default();
    let adapted: BTreeSet<usize> = adapter.sites().into_iter().collect();
    let partly: BTreeSet<&str> =
        (0..model.sites().len()).filter(|site| !adapted.contains(site)).map(last).collect();
    let name = |site: &usize| match last(*site) {
        name if partly.contains(name) => model.sites()[*site].module.clone(),
        name => name.to_owned(),
    };
    adapted.iter().map(name).collect()
}

/// An integer where it is one: PEFT writes alpha so.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { json!(value as i64) } else { json!(value) }
}

fn fitting<T: Copy>(pattern: &[(String, T)], module: &str) -> Option<T> {
    let fits =
        |key: &str| module.strip_suffix(key).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    pattern.iter().find(|(key, _)| fits(key)).map(|(_, value)| *value)
}

/// Keys are regular expressions to PEFT; here they are paths, in which only the dot could mean more than itself.
fn pattern<T>(
    map: &Map<String, Value>,
    key: &str,
    parse: fn(&str, &Value) -> Result<T, AdapterError>,
) -> Result<Vec<(String, T)>, AdapterError> {
    let entries = match map.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(entries)) => entries,
        Some(other) => return Err(wrong(key, "an object", other)),
    };
    let entry = |(module, value): (&String, &Value)| {
        if module.is_empty() || !module.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.') {
            let found = format!("the regular expression {module:?}");
            return Err(AdapterError::Key {
                key: key.to_owned(),
                expected: "names of modules".to_owned(),
                found,
            });
        }
        Ok((module.clone(), parse(&format!("{key}.{module}"), value)?))
    };
    entries.iter().map(entry).collect()
}

fn parse_rank(key: &str, value: &Value) -> Result<usize, AdapterError> {
    let rank = value.as_u64().and_then(|rank| usize::try_from(rank).ok()).filter(|rank| *rank > 0);
    rank.ok_or_else(|| wrong(key, "a whole number from 1", value))
}

fn parse_alpha(key: &str, value: &Value) -> Result<f64, AdapterError> {
    let alpha = value.as_f64().filter(|alpha| alpha.is_finite() && *alpha != 0.0);
    alpha.ok_or_else(|| wrong(key, "a finite number other than 0", value))
}

fn required<'a>(map: &'a Map<String, Value>, key: &str) -> Result<&'a Value, AdapterError> {
    map.get(key).ok_or_else(|| AdapterError::KeyMissing { key: key.to_owned() })
}

/// The value of a key, unless it says nothing: null, false or empty.
fn active<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    })
}

fn wrong(key: &str, expected: &str, found: &Value) -> AdapterError {
    AdapterError::Key { key: key.to_owned(), expected: expected.to_owned(), found: found.to_string() }
}
