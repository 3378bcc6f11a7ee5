//! `serve` beside `run`: the same tokens with the same probabilities, by an adapter that `train` has written; what is
//! learnt is there after the server was killed.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::program::call;
use crate::scratch::Scratch;
use crate::served::Served;

/// Tokens of a reply, at most.
const LIMIT: usize = 32;

/// Each question is answered by `run` and by the server in the same words, token by token of the same probability.
pub fn same_as_run(model: &Path, adapters: &Path, adapter: &str, questions: &[String]) {
    let served = Served::start(model, adapters, &[&"--slots", &"2"]);
    let name = format!("{}:{adapter}", model.file_stem().unwrap().to_str().unwrap());
    for question in questions {
        let body = json!({
            "model": name, "messages": [{"role": "user", "content": question}], "temperature": 0,
            "max_tokens": LIMIT, "logprobs": true,
        });
        let choice = served.ok("/v1/chat/completions", &body)["choices"][0].clone();
        let file = adapters.join(format!("{adapter}.gguf"));
        let line = format!("run -m {{}} --adapter {{}} -n {LIMIT} --prompt {{}}");
        let said = call(&line, &[&model, &file, question]).done().out;
        assert_eq!(said, format!("{}\n", choice["message"]["content"].as_str().unwrap()), "{question}");
        let lines = call(&format!("{line} --logprobs 0"), &[&model, &file, question]).done().out;
        let run: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["logprob"].clone())
            .collect();
        let entries = choice["logprobs"]["content"].as_array().unwrap();
        let served: Vec<Value> = entries.iter().map(|entry| entry["logprob"].clone()).collect();
        assert_eq!(run, served, "{question}");
    }
    assert_eq!(served.end("-TERM"), Some(0));
}

#[test]
fn a_trained_adapter_is_served_as_it_runs() {
    let scratch = Scratch::new();
    let model = scratch.talker();
    let questions: Vec<String> = (0..10).map(|number| format!("what is {number}?")).collect();
    let sample = |(number, question): (usize, &String)| {
        let answer = format!("It is {}.", number * 7);
        let messages = [("user", question.as_str()), ("assistant", answer.as_str())];
        json!({"messages": messages.map(|(role, content)| json!({"role": role, "content": content}))})
            .to_string()
    };
    let lines: Vec<String> = questions.iter().enumerate().map(sample).collect();
    let data = scratch.file("data.jsonl", lines.join("\n"));
    let adapters = scratch.path("adapters");
    fs::create_dir(&adapters).unwrap();
    for objective in ["all", "reply"] {
        let out = adapters.join(format!("{objective}.gguf"));
        let line =
            format!("train -m {{}} -d {{}} -o {{}} --objective {objective} --epochs 8 --batch 2 --lr 0.02");
        call(&line, &[&model, &data, &out]).done();
        same_as_run(&model, &adapters, objective, &questions);
    }
}

#[test]
fn what_was_taught_outlives_a_killed_server() {
    let scratch = Scratch::new();
    let (model, adapters) = (scratch.talker(), scratch.path("adapters"));
    let ask = |served: &Served, name: &str| {
        let body = json!({
            "model": name, "messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 12,
        });
        served.ok("/v1/chat/completions", &body)["choices"][0]["message"]["content"].clone()
    };
    fs::create_dir(&adapters).unwrap();
    let served = Served::start(&model, &adapters, &[]);
    let before = ask(&served, "talker");
    let messages =
        json!([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "It is 42."}]);
    let taught = served.ok("/learn", &json!({"messages": messages, "steps": 80, "lr": 0.02}));
    assert_eq!(taught["adapter"], "default", "{taught}");
    assert_eq!(served.end("-KILL"), None);
    let served = Served::start(&model, &adapters, &[]);
    assert_eq!(ask(&served, "talker:default"), "It is 42.");
    assert_eq!(ask(&served, "talker"), before);
    // `run` reads the same file.
    let file = adapters.join("default.gguf");
    assert_eq!(call("run -m {} --adapter {} hello", &[&model, &file]).done().out, "It is 42.\n");
}
