//! What a request for replies asks for, in whichever of the two dialects: how it is named, how long, how chosen.

use apprentice_engine::{LOGPROBS_MAX, Sampling};
use apprentice_text::Message;
use serde_json::Value;

use crate::fields::{Fields, at_most, tokens, wrong};
use crate::options::{BIASES_MAX, CHOICES_MAX, NAME_BYTES_MAX, STOP_BYTES_MAX, STOPS_MAX};
use crate::reject::Reject;

/// Sampling of a request that says nothing about it.
pub const TEMPERATURE: f32 = 0.8;
/// See [`TEMPERATURE`].
pub const TOP_K: usize = 40;
/// See [`TEMPERATURE`].
pub const TOP_P: f32 = 0.95;
/// See [`TEMPERATURE`].
pub const MIN_P: f32 = 0.05;

/// A request for replies.
#[derive(Clone, PartialEq, Debug)]
pub struct Wanted {
    /// What the replies follow.
    pub prompt: Prompt,
    /// Who replies.
    pub target: Target,
    /// Where the conversation is remembered.
    pub place: Place,
    /// Replies.
    pub choices: u32,
    /// Tokens of a reply, at most; `None`: as many as the context has room for.
    pub limit: Option<usize>,
    /// How tokens are chosen. Its seed is `None` where any will do.
    pub sampling: Sampling,
    /// Seed of the random numbers, if one was given.
    pub seed: Option<u64>,
    /// Texts that end a reply.
    pub stops: Vec<String>,
    /// Whether log probabilities are told, and of how many most likely tokens.
    pub logprobs: Option<usize>,
    /// Whether the reply is told as it comes.
    pub stream: bool,
    /// Whether a stream tells the usage at its end.
    pub stream_usage: bool,
}

/// What a reply follows.
#[derive(Clone, PartialEq, Debug)]
pub enum Prompt {
    /// A conversation, for the chat template.
    Messages(Vec<Message>),
    /// A text to continue.
    Text(String),
    /// Tokens to continue.
    Tokens(Vec<u32>),
}

/// Who replies: as the request says it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Target {
    /// `NAME` or `NAME:ADAPTER`.
    pub model: Option<String>,
    /// An adapter, or `""` for none.
    pub adapter: Option<String>,
}

/// Where a conversation is remembered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Number of a slot.
    pub slot: Option<usize>,
    /// Name of a conversation.
    pub conversation: Option<String>,
}

/// What both dialects have in common, read from the fields of a request.
pub struct Common {
    /// See [`Wanted::target`].
    pub target: Target,
    /// See [`Wanted::place`].
    pub place: Place,
    choices: u32,
    limit: Option<usize>,
    sampling: Sampling,
    seed: Option<u64>,
    stops: Vec<String>,
    stream: bool,
    stream_usage: bool,
}

/// Sizes of the server and its model that a request must fit.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Slots.
    pub slots: usize,
}

impl Common {
    /// Reads the fields that both dialects know.
    ///
    /// # Errors
    /// The first field that is not what it must be, or asks for something that is not built.
    pub fn read(fields: &mut Fields, sizes: Sizes) -> Result<Common, Reject> {
        refuse_unbuilt(fields)?;
        let target = Target::read(fields)?;
        let place = Place::read(fields, sizes)?;
        let choices = fields.integer("n", 1..=CHOICES_MAX)?.unwrap_or(1) as u32;
        let (sampling, seed) = sampling(fields, sizes.vocab)?;
        let stream = fields.boolean("stream")?.unwrap_or(false);
        let stream_usage = match fields.value("stream_options") {
            None => false,
            Some(value) => {
                Fields::nested("stream_options", value)?.boolean("include_usage")?.unwrap_or(false)
            }
        };
        Ok(Common {
            target,
            place,
            choices,
            limit: limit(fields)?,
            sampling,
            seed,
            stops: stops(fields)?,
            stream,
            stream_usage,
        })
    }

    /// The request, with what the dialects say each in its own way.
    pub fn wanted(self, prompt: Prompt, logprobs: Option<usize>) -> Wanted {
        let Common { target, place, choices, limit, sampling, seed, stops, stream, stream_usage } = self;
        Wanted {
            prompt,
            target,
            place,
            choices,
            limit,
            sampling,
            seed,
            stops,
            logprobs,
            stream,
            stream_usage,
        }
    }
}

impl Target {
    /// Reads `model` and `adapter`.
    ///
    /// # Errors
    /// What is no name.
    pub fn read(fields: &mut Fields) -> Result<Target, Reject> {
        let model = fields.name("model", NAME_BYTES_MAX)?;
        let adapter = fields.string("adapter")?;
        match &adapter {
            Some(name) if name.len() > NAME_BYTES_MAX => {
                Err(Reject::field("adapter", format!("adapter: expected at most {NAME_BYTES_MAX} bytes")))
            }
            _ => Ok(Target { model, adapter }),
        }
    }

    /// The adapter that is asked for: `None` where nothing is said, `Some("")` for the model as it is.
    ///
    /// # Errors
    /// Another model than `name`; two adapters.
    pub fn adapter(&self, name: &str) -> Result<Option<&str>, Reject> {
        let by_model = match self.model.as_deref() {
            None => None,
            Some(model) if model == name => None,
            Some(model) => match model.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')) {
                Some(adapter) if !adapter.is_empty() => Some(adapter),
                _ => {
                    let message = format!("model: {model:?} is not here; {name:?} and {name:?}:ADAPTER are");
                    return Err(Reject::missing("model_not_found", message).at("model"));
                }
            },
        };
        match (by_model, self.adapter.as_deref()) {
            (Some(one), Some(other)) if one != other => {
                let message = format!("adapter: {other:?}, but the model names {one:?}");
                Err(Reject::field("adapter", message))
            }
            (one, other) => Ok(one.or(other)),
        }
    }
}

impl Place {
    /// Reads `id_slot` and `conversation`.
    ///
    /// # Errors
    /// A slot that there is not, what is no name, and both at a time.
    pub fn read(fields: &mut Fields, sizes: Sizes) -> Result<Place, Reject> {
        let slot = fields.integer("id_slot", -1..=sizes.slots as i64 - 1)?;
        let slot = slot.filter(|slot| *slot >= 0).map(|slot| slot as usize); // -1: any
        let conversation = fields.name("conversation", NAME_BYTES_MAX)?;
        if slot.is_some() && conversation.is_some() {
            return Err(Reject::field(
                "conversation",
                "conversation: id_slot is given too; either says where",
            ));
        }
        Ok(Place { slot, conversation })
    }

    /// Whether nothing is said.
    pub fn is_anywhere(&self) -> bool {
        self.slot.is_none() && self.conversation.is_none()
    }
}

/// Log probabilities of a chat: whether, and of how many.
///
/// # Errors
/// Another type, and a number without the flag.
pub fn chat_logprobs(fields: &mut Fields) -> Result<Option<usize>, Reject> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    match fields.integer("top_logprobs", 0..=LOGPROBS_MAX as i64)? {
        Some(_) if !wanted => Err(Reject::field("top_logprobs", "top_logprobs: logprobs must be true")),
        top => Ok(wanted.then_some(top.unwrap_or(0) as usize)),
    }
}

/// Log probabilities of a completion: of how many.
///
/// # Errors
/// Another type, and too many.
pub fn completion_logprobs(fields: &mut Fields) -> Result<Option<usize>, Reject> {
    Ok(fields.integer("logprobs", 0..=LOGPROBS_MAX as i64)?.map(|top| top as usize))
}

fn limit(fields: &mut Fields) -> Result<Option<usize>, Reject> {
    let mut limit = None;
    for name in ["max_completion_tokens", "max_tokens", "n_predict"] {
        let found = fields.integer(name, -1..=i64::from(i32::MAX))?;
        if found == Some(0) {
            let message =
                format!("{name}: expected at least one token, or -1 for as many as there is room for");
            return Err(Reject::field(name, message));
        }
        limit = limit.or(found);
    }
    Ok(limit.filter(|limit| *limit > 0).map(|limit| limit as usize))
}

fn sampling(fields: &mut Fields, vocab: usize) -> Result<(Sampling, Option<u64>), Reject> {
    let mut number = |name, range, default: f32| -> Result<f32, Reject> {
        Ok(fields.number(name, range)?.map_or(default, |number| number as f32))
    };
    let temperature = number("temperature", 0.0..=100.0, TEMPERATURE)?;
    let top_p = number("top_p", 0.0..=1.0, TOP_P)?.max(f32::MIN_POSITIVE);
    let min_p = number("min_p", 0.0..=1.0, MIN_P)?;
    let presence_penalty = number("presence_penalty", -100.0..=100.0, 0.0)?;
    let frequency_penalty = number("frequency_penalty", -100.0..=100.0, 0.0)?;
    let repeat = number("repeat_penalty", 0.01..=100.0, 1.0)?;
    let repetition_penalty = number("repetition_penalty", 0.01..=100.0, repeat)?;
    let whole = i64::from(i32::MAX);
    let top_k = fields.integer("top_k", -1..=whole)?.map_or(TOP_K, |top_k| top_k.max(0) as usize);
    let recent = match fields.integer("repeat_last_n", -1..=whole)? {
        None => Sampling::greedy().recent,
        Some(-1) => usize::MAX,
        Some(recent) => recent as usize,
    };
    let sampling = Sampling {
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
        recent,
        bias: bias(fields, vocab)?,
        seed: 0,
        stream: 0,
    };
    Ok((sampling, seed(fields)?))
}

/// Any whole number of 64 bits; -1 is any seed.
fn seed(fields: &mut Fields) -> Result<Option<u64>, Reject> {
    match fields.value("seed") {
        None => Ok(None),
        Some(value) => match (value.as_i64(), value.as_u64()) {
            (Some(-1), _) => Ok(None),
            (Some(seed), _) => Ok(Some(seed as u64)),
            (None, Some(seed)) => Ok(Some(seed)),
            (None, None) => Err(wrong("seed", "a whole number of 64 bits", &value)),
        },
    }
}

/// `{"ID": BIAS}`, or `[[ID, BIAS]]`, where a bias of `false` forbids the token.
fn bias(fields: &mut Fields, vocab: usize) -> Result<Vec<(u32, f32)>, Reject> {
    let path = "logit_bias";
    let entries: Vec<(Value, Value)> = match fields.value(path) {
        None => return Ok(Vec::new()),
        Some(Value::Object(map)) => {
            let id = |text: String| text.parse::<u32>().map_or(Value::String(text), Value::from);
            map.into_iter().map(|(name, bias)| (id(name), bias)).collect()
        }
        Some(Value::Array(pairs)) => {
            let pair = |value: Value| match value.as_array().map(Vec::as_slice) {
                Some([id, bias]) => Ok((id.clone(), bias.clone())),
                _ => Err(wrong(path, "pairs of a token id and a number", &value)),
            };
            at_most(path, pairs, BIASES_MAX)?.into_iter().map(pair).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong(path, "an object from token ids to numbers", &other)),
    };
    if entries.len() > BIASES_MAX {
        let found = entries.len();
        return Err(Reject::field(
            path,
            format!("{path}: expected at most {BIASES_MAX} entries, found {found}"),
        ));
    }
    let number = |value: &Value| match value {
        Value::Bool(false) => Some(f32::NEG_INFINITY),
        value => value.as_f64().filter(|bias| (-100.0..=100.0).contains(bias)).map(|bias| bias as f32),
    };
    let entry = |(id, bias): (Value, Value)| {
        let token = tokens(path, std::slice::from_ref(&id), vocab)
            .map_err(|_| wrong(path, format_args!("token ids below {vocab}"), &id))?[0];
        Ok((token, number(&bias).ok_or_else(|| wrong(path, "numbers from -100 to 100", &bias))?))
    };
    entries.into_iter().map(entry).collect()
}

fn stops(fields: &mut Fields) -> Result<Vec<String>, Reject> {
    let values = match fields.value("stop") {
        None => return Ok(Vec::new()),
        Some(Value::Array(values)) => at_most("stop", values, STOPS_MAX)?,
        Some(value) => vec![value],
    };
    let stop = |value: Value| match value {
        Value::String(text) if (1..=STOP_BYTES_MAX).contains(&text.len()) => Ok(text),
        other => Err(wrong("stop", format_args!("strings of 1 to {STOP_BYTES_MAX} bytes"), &other)),
    };
    values.into_iter().map(stop).collect()
}

/// Fields that would change the answer and are not built, unless they ask for nothing.
fn refuse_unbuilt(fields: &mut Fields) -> Result<(), Reject> {
    fn empty(value: &Value) -> bool {
        match value {
            Value::Array(values) => values.is_empty(),
            Value::String(text) => text.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Bool(value) => !value,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::Null => true,
        }
    }
    fn not_above_0(value: &Value) -> bool {
        value.as_f64().is_some_and(|number| number <= 0.0)
    }
    let no_tool: fn(&Value) -> bool = |value| value == "none" || value == "auto";
    let text_only: fn(&Value) -> bool = |value| value == &serde_json::json!(["text"]);
    let plain: fn(&Value) -> bool = |value| value["type"] == "text";
    let one: fn(&Value) -> bool = |value| value.as_f64() == Some(1.0);
    let neutral = [
        ("tools", empty as fn(&Value) -> bool),
        ("functions", empty),
        ("tool_choice", no_tool),
        ("function_call", no_tool),
        ("response_format", plain),
        ("modalities", text_only),
        ("audio", empty),
        ("prediction", empty),
        ("web_search_options", empty),
        ("grammar", empty),
        ("json_schema", empty),
        ("suffix", empty),
        ("echo", empty),
        ("best_of", one),
        ("ignore_eos", empty),
        ("mirostat", empty),
        ("typical_p", one),
        ("dry_multiplier", empty),
        ("xtc_probability", empty),
        ("dynatemp_range", empty),
        ("top_n_sigma", not_above_0),
        ("n_probs", empty),
        ("lora", empty),
    ];
    neutral.into_iter().try_for_each(|(name, neutral)| fields.refuse(name, neutral))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SIZES: Sizes = Sizes { vocab: 100, slots: 4 };

    fn read(value: Value) -> Result<Common, Reject> {
        Common::read(&mut Fields::parse(value.to_string().as_bytes())?, SIZES)
    }

    #[test]
    fn defaults_are_those_of_the_field() {
        let common = read(json!({})).unwrap();
        let expected =
            Sampling { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, ..Sampling::greedy() };
        assert_eq!((common.sampling, common.seed, common.limit, common.choices), (expected, None, None, 1));
    }

    #[test]
    fn every_integer_is_in_range_or_refused_by_name() {
        let names = [
            "n",
            "max_tokens",
            "max_completion_tokens",
            "n_predict",
            "top_k",
            "repeat_last_n",
            "seed",
            "id_slot",
        ];
        let values = [
            json!(-1),
            json!(0),
            json!(1u64 << 31),
            json!(1u64 << 63),
            json!(1e308),
            json!("1"),
            json!(true),
            json!({}),
        ];
        for name in names {
            assert!(read(json!({name: null})).is_ok(), "{name} null");
            for value in &values {
                let refused = read(json!({name: value})).err();
                let meaning = match (name, value.as_i64()) {
                    ("seed", _) => value.as_u64().is_some() || value.as_i64().is_some(),
                    ("n", _) => false,
                    ("id_slot" | "top_k" | "repeat_last_n", Some(-1 | 0)) => true,
                    (_, Some(-1)) => true,
                    _ => false,
                };
                match refused {
                    None => assert!(meaning, "{name} {value}"),
                    Some(reject) => {
                        assert!(!meaning, "{name} {value}");
                        assert_eq!(reject.param.as_deref(), Some(name), "{name} {value}");
                    }
                }
            }
        }
    }

    #[test]
    fn seeds_are_all_of_64_bits() {
        let check = |value: Value, expected| assert_eq!(read(json!({"seed": value})).unwrap().seed, expected);
        check(json!(-1), None);
        check(json!(-2), Some(u64::MAX - 1));
        check(json!(u64::MAX), Some(u64::MAX));
        check(json!(1u64 << 63), Some(1 << 63));
    }

    #[test]
    fn biases_come_in_two_shapes() {
        let check = |value: Value, expected: Vec<(u32, f32)>| {
            assert_eq!(read(json!({"logit_bias": value})).unwrap().sampling.bias, expected);
        };
        check(json!({"7": -100, "8": 1.5}), vec![(7, -100.0), (8, 1.5)]);
        check(json!([[7, false], [8, 2]]), vec![(7, f32::NEG_INFINITY), (8, 2.0)]);
        let refused = |value: Value| {
            let reject = read(json!({"logit_bias": value})).err().map(|reject| reject.param);
            assert_eq!(reject, Some(Some("logit_bias".to_owned())), "{value}");
        };
        refused(json!({"100": 1}));
        refused(json!({"-1": 1}));
        refused(json!({"x": 1}));
        refused(json!({"1": 101}));
        refused(json!({"1": "1"}));
        refused(json!([[1]]));
        refused(json!([1, 2]));
        refused(json!("1"));
    }

    #[test]
    fn who_replies_is_named_in_two_ways() {
        let check = |model: Option<&str>, adapter: Option<&str>, expected: Result<Option<&str>, &str>| {
            let target = Target { model: model.map(str::to_owned), adapter: adapter.map(str::to_owned) };
            assert_eq!(target.adapter("m").map_err(|reject| reject.code), expected, "{target:?}");
        };
        check(None, None, Ok(None));
        check(Some("m"), None, Ok(None));
        check(Some("m:a"), None, Ok(Some("a")));
        check(Some("m:a"), Some("a"), Ok(Some("a")));
        check(Some("m"), Some("a"), Ok(Some("a")));
        check(Some("m"), Some(""), Ok(Some("")));
        check(Some("m:a"), Some("b"), Err("invalid_value"));
        check(Some("m:"), None, Err("model_not_found"));
        check(Some("other"), Some("a"), Err("model_not_found"));
        check(Some("mm"), None, Err("model_not_found"));
    }

    #[test]
    fn what_is_not_built_is_refused_by_name_and_what_is_harmless_is_ignored() {
        for (name, value) in [
            ("tools", json!([{}])),
            ("response_format", json!({"type": "json_object"})),
            ("echo", json!(true)),
            ("best_of", json!(2)),
            ("mirostat", json!(1)),
            ("suffix", json!("x")),
            ("modalities", json!(["text", "audio"])),
        ] {
            let reject = read(json!({name: value})).err().unwrap();
            assert_eq!((reject.param.as_deref(), reject.code), (Some(name), "unsupported"));
        }
        let harmless = json!({"user": "u", "metadata": {}, "store": true, "tools": [], "response_format": {"type": "text"},
            "tool_choice": "none", "cache_prompt": true, "anything": [1], "top_n_sigma": -1.0, "typical_p": 1.0});
        assert!(read(harmless).is_ok());
    }

    #[test]
    fn stops_are_few_and_short() {
        let check = |value: Value, ok: bool| assert_eq!(read(json!({"stop": value})).is_ok(), ok, "{value}");
        check(json!("x"), true);
        check(json!(["a", "b", "c", "d"]), true);
        check(json!([]), true);
        check(json!(["a", "b", "c", "d", "e"]), false);
        check(json!(""), false);
        check(json!(["x", 1]), false);
        check(json!("x".repeat(257)), false);
    }
}
