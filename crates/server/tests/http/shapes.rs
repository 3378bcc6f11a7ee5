//! The shapes of all routes, and of the events of a stream.

use serde_json::{Value, json};

use crate::house::{House, NAME};

fn house() -> House {
    House::open(|_| ())
}

fn hello(more: Value) -> Value {
    let mut body = json!({
        "model": NAME, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "temperature": 0, "seed": 1,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_chat_is_answered_whole() {
    let house = house();
    let answer = house.chat(&hello(json!({}))).ok();
    assert_eq!(answer["object"], "chat.completion");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(answer["created"].as_u64().unwrap() > 1_500_000_000);
    assert_eq!(answer["model"], NAME);
    let choice = &answer["choices"][0];
    assert_eq!((&choice["index"], &choice["message"]["role"]), (&json!(0), &json!("assistant")));
    assert!(choice["message"]["content"].is_string() && choice["logprobs"].is_null());
    assert!(["stop", "length"].contains(&choice["finish_reason"].as_str().unwrap()));
    let usage = &answer["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap();
    // <|im_start|> user \n h i <|im_end|> \n <|im_start|> assistant \n
    assert_eq!(count("prompt_tokens"), 1 + 5 + 2 + 2 + 1 + 10);
    assert_eq!(count("total_tokens"), count("prompt_tokens") + count("completion_tokens"));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    // Asked again, the prompt is found in pages, and the answer is the same.
    let again = house.chat(&hello(json!({}))).ok();
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], count("prompt_tokens") - 1);
    assert_eq!(again["choices"], answer["choices"]);
    assert_ne!(again["id"], answer["id"]);
}

/// The chunks of a stream, which must end as a stream does.
fn chunks(house: &House, path: &str, body: &Value) -> Vec<Value> {
    let answer = house.post(path, body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let mut events = answer.events();
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

#[test]
fn a_stream_says_what_the_whole_answer_says() {
    let house = house();
    let whole = house.chat(&hello(json!({"logprobs": true, "top_logprobs": 2}))).ok();
    let body = hello(json!({
        "stream": true, "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2,
    }));
    let chunks = chunks(&house, "/v1/chat/completions", &body);
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["id"] == chunks[0]["id"])
    );
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let (last, rest) = chunks.split_last().unwrap();
    assert_eq!((&last["choices"], last["usage"]["prompt_tokens"].as_u64()), (&json!([]), Some(21)));
    assert!(
        rest.iter().all(|chunk| chunk["usage"].is_null() && chunk.as_object().unwrap().contains_key("usage"))
    );
    let choices: Vec<&Value> = rest.iter().map(|chunk| &chunk["choices"][0]).collect();
    let text: String = choices.iter().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
    assert_eq!(text, whole["choices"][0]["message"]["content"].as_str().unwrap());
    let scores: Vec<&Value> =
        choices.iter().filter_map(|choice| choice["logprobs"]["content"].as_array()).flatten().collect();
    assert_eq!(json!(scores), whole["choices"][0]["logprobs"]["content"]);
    let reasons: Vec<&Value> =
        choices.iter().map(|choice| &choice["finish_reason"]).filter(|reason| !reason.is_null()).collect();
    assert_eq!(reasons, [&whole["choices"][0]["finish_reason"]]);
    assert_eq!(choices.last().unwrap()["delta"], json!({}));
}

#[test]
fn log_probabilities_come_in_both_dialects() {
    let house = house();
    let chat = house.chat(&hello(json!({"logprobs": true, "top_logprobs": 3}))).ok();
    let scores = chat["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(scores.len() as u64, chat["usage"]["completion_tokens"].as_u64().unwrap());
    for score in scores {
        let top = score["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        // Greedy: the chosen one is the most likely one.
        assert_eq!((&score["bytes"], &score["logprob"]), (&top[0]["bytes"], &top[0]["logprob"]));
        assert!(score["logprob"].as_f64().unwrap() <= 0.0 && score["token"].is_string());
    }
    let body = json!({"prompt": "hi", "max_tokens": 4, "temperature": 0, "logprobs": 2});
    let completion = house.post("/v1/completions", &body).ok();
    let scores = &completion["choices"][0]["logprobs"];
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(scores[name].as_array().unwrap().len(), 4, "{name}");
    }
    assert_eq!(scores["text_offset"], json!([0, 1, 2, 3]));
    assert!(scores["top_logprobs"][0].as_object().unwrap().len() <= 2);
}

#[test]
fn a_completion_takes_text_or_tokens() {
    let house = house();
    let ask = |prompt: Value| {
        let body = json!({"prompt": prompt, "max_tokens": 5, "temperature": 0});
        house.post("/v1/completions", &body).ok()
    };
    let by_text = ask(json!("hello"));
    assert_eq!((&by_text["object"], &by_text["choices"][0]["index"]), (&json!("text_completion"), &json!(0)));
    assert!(by_text["id"].as_str().unwrap().starts_with("cmpl-"));
    let tokens = house.post("/tokenize", &json!({"content": "hello"})).ok()["tokens"].clone();
    assert_eq!(ask(tokens)["choices"], by_text["choices"]);
    let body = json!({"prompt": "hello", "max_tokens": 5, "temperature": 0, "stream": true});
    let chunks = chunks(&house, "/v1/completions", &body);
    let text: String = chunks.iter().map(|chunk| chunk["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, by_text["choices"][0]["text"].as_str().unwrap());
    assert!(chunks.iter().all(|chunk| !chunk.as_object().unwrap().contains_key("usage")));
}

#[test]
fn several_replies_differ_and_each_is_a_stream_of_its_own() {
    let house = house();
    let body = hello(
        json!({"n": 3, "temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 8, "seed": 9}),
    );
    let answer = house.chat(&body).ok();
    let texts: Vec<&Value> = (0..3).map(|index| &answer["choices"][index]["message"]["content"]).collect();
    assert!(texts[0] != texts[1] && texts[1] != texts[2] && texts[0] != texts[2], "{texts:?}");
    assert_eq!(house.chat(&body).ok()["choices"], answer["choices"]); // by its seed
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let chunks = chunks(&house, "/v1/chat/completions", &streamed);
    for (index, expected) in texts.iter().enumerate() {
        let choices = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
        let own = choices.filter(|choice| choice["index"] == index);
        let text: String = own.filter_map(|choice| choice["delta"]["content"].as_str()).collect();
        assert_eq!(json!(text), **expected);
    }
    // Without a seed, each request has one of its own.
    let mut unseeded = body;
    unseeded.as_object_mut().unwrap().remove("seed");
    assert_ne!(house.chat(&unseeded).ok()["choices"], house.chat(&unseeded).ok()["choices"]);
}

#[test]
fn a_stop_string_ends_the_reply_before_it() {
    let house = house();
    // Plain characters only: a broken one comes together with the next token.
    let bias: serde_json::Map<String, Value> = (128..=258).map(|id| (id.to_string(), json!(-100))).collect();
    let body = |stop: Value| json!({"prompt": "abc", "max_tokens": 12, "temperature": 0, "stop": stop, "logprobs": 0, "logit_bias": bias});
    let free = house.post("/v1/completions", &body(Value::Null)).ok();
    let text = free["choices"][0]["text"].as_str().unwrap();
    let from = text.char_indices().nth(4).unwrap().0;
    let stop: String = text[from..].chars().take(2).collect();
    let stopped = house.post("/v1/completions", &body(json!(["never there", stop]))).ok();
    let choice = &stopped["choices"][0];
    let expected = &text[..text.find(&stop).unwrap()];
    assert_eq!((choice["text"].as_str(), &choice["finish_reason"]), (Some(expected), &json!("stop")));
    assert_eq!(choice["logprobs"]["tokens"].as_array().unwrap().concat_texts(), expected);
}

trait Texts {
    fn concat_texts(&self) -> String;
}
impl Texts for Vec<Value> {
    fn concat_texts(&self) -> String {
        self.iter().map(|value| value.as_str().unwrap()).collect()
    }
}

#[test]
fn text_becomes_tokens_and_text_again() {
    let house = house();
    let tokens = house.post("/tokenize", &json!({"content": "aé<|im_end|>"})).ok();
    assert_eq!(tokens, json!({"tokens": [97, 0xc3, 0xa9, 258]}));
    let plain =
        house.post("/tokenize", &json!({"content": "<|", "parse_special": false, "with_pieces": true})).ok();
    assert_eq!(plain["tokens"][0], json!({"id": 60, "piece": "<"}));
    let halves = house.post("/tokenize", &json!({"content": "é", "with_pieces": true})).ok();
    assert_eq!(halves["tokens"][0], json!({"id": 0xc3, "piece": [0xc3]}));
    let text = house.post("/detokenize", &json!({"tokens": [97, 0xc3, 0xa9, 258]})).ok();
    assert_eq!(text, json!({"content": "aé<|im_end|>"}));
}

#[test]
fn the_server_tells_of_itself() {
    let house = house();
    assert_eq!(house.get("/health").ok(), json!({"status": "ok"}));
    let models = house.get("/v1/models").ok();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!(NAME)));
    assert_eq!(house.get("/adapters").ok()["data"], json!([]));
    assert_eq!(house.get("/slots").ok().as_array().unwrap().len(), 8);
    house.chat(&hello(json!({}))).ok();
    assert!(house.metric("reply_tokens_total") >= 1.0 && house.metric("replies_total") == 1.0);
    let page = house.get("/");
    assert!(
        page.header("content-type").unwrap().starts_with("text/html")
            && page.text().contains("<!doctype html>")
    );
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    assert!(
        !page.text().contains("http://") && !page.text().contains("https://"),
        "the page asks nobody else"
    );
}
