//! What is wrong is a 4xx with the error object and the field, whatever it is; the server goes on.

use serde_json::{Value, json};

use crate::client::send;
use crate::house::{House, NAME};

#[test]
fn every_wrong_field_is_named() {
    let house = House::open(|_| ());
    let messages = json!([{"role": "user", "content": "hi"}]);
    let base = |path: &str| match path {
        "/v1/chat/completions" => json!({"messages": messages, "max_tokens": 1}),
        "/v1/completions" => json!({"prompt": "hi", "max_tokens": 1}),
        _ => json!({"messages": [messages[0], {"role": "assistant", "content": "x"}], "steps": 1}),
    };
    let values = [
        json!(-1),
        json!(0),
        json!(1u64 << 31),
        json!(1u64 << 63),
        json!(1e308),
        json!("x"),
        json!(null),
        json!([]),
    ];
    let replies =
        ["n", "max_tokens", "top_k", "repeat_last_n", "seed", "id_slot", "logprobs", "stop", "logit_bias"];
    let lessons = ["steps", "n_prefix", "id_slot", "lr"];
    let wrong: &[(&str, &[&str])] = &[
        ("/v1/chat/completions", &replies),
        ("/v1/chat/completions", &["top_logprobs", "messages", "model", "stream"]),
        ("/v1/completions", &replies),
        ("/v1/completions", &["prompt", "temperature", "top_p"]),
        ("/learn", &lessons),
        ("/learn", &["messages", "adapter", "reply_tokens"]),
    ];
    for (path, names) in wrong {
        for name in *names {
            for value in &values {
                let mut body = base(path);
                body[*name] = value.clone();
                if *name == "n_prefix" {
                    body["steps"] = json!(1);
                }
                let answer = house.post(path, &body);
                if answer.status != 200 {
                    let (status, _, param) = answer.refusal();
                    assert!((400..500).contains(&status), "{path} {name} {value}: {}", answer.text());
                    let param = param.unwrap_or_default();
                    let about = if *name == "reply_tokens" { "reply" } else { name };
                    assert!(param.starts_with(about), "{path} {name} {value}: about {param:?}");
                }
            }
        }
    }
    assert_eq!(house.get("/health").status, 200);
}

#[test]
fn what_is_no_request_is_refused() {
    let house = House::open(|_| ());
    let check = |body: &[u8], status: u16, code: &str| {
        for path in ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/learn"] {
            let answer = house.begin("POST", path, body).answer();
            let (found, name, _) = answer.refusal();
            assert_eq!(
                (found, name.as_str()),
                (status, code),
                "{path} {:.40}",
                String::from_utf8_lossy(body)
            );
        }
    };
    check(b"", 400, "invalid_json");
    check(b"{", 400, "invalid_json");
    check(b"[]", 400, "invalid_json");
    check(b"{\"a\": \xff}", 400, "invalid_json");
    check("{\"a\":".repeat(50_000).as_bytes(), 400, "invalid_json");
    check("[".repeat(50_000).as_bytes(), 400, "invalid_json");
    check(b"{}", 400, "invalid_value");
}

#[test]
fn a_template_that_loops_or_refuses_is_the_requests_fault() {
    let house = House::open(|_| ());
    let ask = |role: &str| house.chat(&json!({"messages": [{"role": role, "content": "x"}]}));
    assert_eq!(ask("loop").refusal(), (400, "limit".to_owned(), Some("messages".to_owned())));
    let refused = ask("refuse");
    assert_eq!(refused.refusal(), (400, "invalid_value".to_owned(), Some("messages".to_owned())));
    assert!(refused.text().contains("no such role"));
}

#[test]
fn what_is_not_there_is_told_so() {
    let house = House::open(|_| ());
    assert_eq!(house.get("/v1/nothing").refusal().0, 404);
    assert_eq!(house.get("/v1/chat/completions").refusal().0, 405);
    assert_eq!(house.post("/health", &json!({})).refusal().0, 405);
    let model = json!({"model": "other", "prompt": "x"});
    assert_eq!(
        house.post("/v1/completions", &model).refusal(),
        (404, "model_not_found".to_owned(), Some("model".to_owned()))
    );
    let adapter = json!({"model": format!("{NAME}:other"), "prompt": "x"});
    assert_eq!(house.post("/v1/completions", &adapter).refusal().1, "adapter_not_found");
}

#[test]
fn a_prompt_beyond_the_context_is_refused_and_a_reply_ends_there() {
    let house = House::open(|_| ());
    let long = json!({"prompt": "x".repeat(512)});
    let (status, code, param) = house.post("/v1/completions", &long).refusal();
    assert_eq!((status, code.as_str(), param.as_deref()), (400, "context_length_exceeded", Some("prompt")));
    let bias = json!({"257": -100, "258": -100}); // no end
    let full = house.post("/v1/completions", &json!({"prompt": "x".repeat(500), "logit_bias": bias})).ok();
    assert_eq!(
        (&full["usage"]["completion_tokens"], &full["choices"][0]["finish_reason"]),
        (&json!(12), &json!("length"))
    );
}

#[test]
fn pages_of_others_may_not_ask() {
    let house = House::open(|_| ());
    let body = json!({"prompt": "x", "max_tokens": 1}).to_string();
    let check = |headers: &[&str], expected: (u16, &str)| {
        let answer = send(house.address, "POST", "/v1/completions", headers, body.as_bytes()).answer();
        match answer.status {
            200 => assert_eq!((200, ""), expected, "{headers:?}"),
            _ => assert_eq!((answer.refusal().0, answer.refusal().1.as_str()), expected, "{headers:?}"),
        }
    };
    let json = "Content-Type: application/json";
    let own = format!("Origin: http://{}", house.address);
    check(&[json], (200, ""));
    check(&["Content-Type: Application/JSON; charset=utf-8", &own], (200, ""));
    check(&["Content-Type: text/plain"], (415, "content_type"));
    check(&[], (415, "content_type"));
    check(&[json, "Origin: http://example.org"], (403, "origin_not_allowed"));
    check(&[json, "Origin: null"], (403, "origin_not_allowed"));
    check(&[json, "Host: example.org"], (403, "host_not_allowed"));
    check(&[json, "Host: localhost:1"], (200, ""));
    let answer = house.get("/adapters");
    assert_eq!(answer.header("access-control-allow-origin"), None);
    assert_eq!(
        send(house.address, "DELETE", "/adapters/x", &["Origin: http://example.org"], b"").answer().status,
        403
    );
}

#[test]
fn with_keys_only_those_who_have_one_may_ask() {
    let house = House::open(|options| options.api_keys = vec!["first".to_owned(), "second".to_owned()]);
    let check = |path: &str, headers: &[&str], status: u16| {
        assert_eq!(
            send(house.address, "GET", path, headers, b"").answer().status,
            status,
            "{path} {headers:?}"
        );
    };
    check("/health", &[], 200);
    check("/", &[], 200);
    check("/v1/models", &[], 401);
    check("/metrics", &[], 401);
    check("/nothing", &[], 401);
    check("/v1/models", &["Authorization: Bearer first"], 200);
    check("/v1/models", &["Authorization: bearer second"], 200);
    check("/v1/models", &["Authorization: Bearer third"], 401);
    check("/v1/models", &["Authorization: Bearer"], 401);
    check("/v1/models", &["Authorization: Basic first"], 401);
    check("/v1/models", &["Authorization: Bearer firs"], 401);
    let refused = send(house.address, "GET", "/v1/models", &[], b"").answer();
    assert_eq!(
        (refused.refusal().1.as_str(), refused.header("www-authenticate")),
        ("invalid_api_key", Some("Bearer"))
    );
    // A name of another machine is no danger to whoever has keys.
    check("/v1/models", &["Authorization: Bearer first", "Host: example.org"], 200);
}

#[test]
fn tokens_are_of_the_vocabulary() {
    let house = House::open(|_| ());
    let check = |path: &str, body: Value, param: &str| {
        assert_eq!(house.post(path, &body).refusal().2.as_deref(), Some(param), "{path} {body}");
    };
    check("/detokenize", json!({"tokens": [259]}), "tokens[0]");
    check("/detokenize", json!({"tokens": [1, -1]}), "tokens[1]");
    check("/detokenize", json!({"tokens": "x"}), "tokens");
    check("/tokenize", json!({"content": 1}), "content");
    check("/tokenize", json!({"content": "x", "add_special": 1}), "add_special");
    check("/v1/completions", json!({"prompt": [1, 259]}), "prompt[1]");
}
