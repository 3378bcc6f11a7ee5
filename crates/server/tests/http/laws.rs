//! The laws through HTTP: a reply does not depend on its neighbours, nor on what others learn meanwhile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use apprentice_engine::{Named, Sampling};
use apprentice_testkit::random::Random;
use serde_json::{Value, json};

use crate::house::{Folder, House, engine, text};

const REQUESTS: usize = 200;
const CLIENTS: usize = 16;

/// Requests whose prompts begin alike or not, chosen in all the ways there are; some use an adapter.
fn requests(seed: u64) -> Vec<Value> {
    let mut random = Random::new(seed);
    let stems =
        ["the quick brown fox jumps over the lazy dog and on ".repeat(3), "again ".repeat(20), String::new()];
    let request = |index: usize| {
        let mut below = |limit: usize| random.below(limit);
        let stem = &stems[below(stems.len())];
        let tail: String = (0..1 + below(30)).map(|_| char::from(b'a' + below(26) as u8)).collect();
        let mut body = json!({"prompt": format!("{stem}{tail}"), "max_tokens": 1 + below(10), "seed": index, "logprobs": 0});
        let temperatures = [0.0, 0.0, 0.7, 1.3];
        body["temperature"] = json!(temperatures[below(temperatures.len())]);
        if below(3) == 0 {
            body["repeat_penalty"] = json!(1.3);
        }
        if below(4) == 0 {
            body["adapter"] = json!("known");
        }
        if below(4) == 0 {
            body["id_slot"] = json!(below(8));
        }
        body
    };
    (0..REQUESTS).map(request).collect()
}

#[test]
fn random_requests_over_eight_slots_equal_their_solo_runs() {
    let seed = 20_261_201;
    let folder = Folder::new();
    let path = folder.path().to_owned();
    let lesson = |reply: &str, adapter: Option<&str>, steps: usize| {
        json!({
            "messages": [{"role": "user", "content": "who?"}, {"role": "assistant", "content": reply}],
            "steps": steps, "lr": 0.01, "adapter": adapter,
        })
    };
    {
        let path = path.clone();
        let house = House::open(|options| options.adapters = Some(path));
        house.post("/learn", &lesson("zebra", None, 20)).ok();
        house.post("/adapters/default/save", &json!({"name": "known"})).ok();
    }
    let house = House::open(|options| {
        options.adapters = Some(path);
        options.queue = REQUESTS;
    });
    let requests = requests(seed);
    let next = Mutex::new(0..REQUESTS);
    let answers = Mutex::new(vec![Value::Null; REQUESTS]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let teacher = scope.spawn(|| {
            let mut lessons = 0;
            while !done.load(Ordering::Relaxed) {
                house.post("/learn", &lesson("some other animal", None, 3)).ok();
                lessons += 1;
            }
            lessons
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let Some(index) = next.lock().unwrap().next() else { return };
                        let answer = house.post("/v1/completions", &requests[index]).ok();
                        answers.lock().unwrap()[index] = answer;
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(teacher.join().unwrap() > 0, "nobody learnt meanwhile");
    });
    let solo = Solo::new(&folder);
    for (index, answer) in answers.into_inner().unwrap().iter().enumerate() {
        let found = answer["choices"][0]["text"].as_str().unwrap();
        assert_eq!(found, solo.reply(&requests[index]), "seed {seed}, request {index}: {}", requests[index]);
    }
}

/// The same replies by an engine of one sequence, one after another.
struct Solo {
    engine: std::cell::RefCell<apprentice_engine::Engine>,
    known: (apprentice_engine::AdapterId, apprentice_models::AdapterRows),
}

impl Solo {
    fn new(folder: &Folder) -> Solo {
        let mut engine = engine(1);
        let path = folder.path().join("known.gguf");
        let read =
            apprentice_models::adapter_file::read(engine.model(), &path, &Default::default()).unwrap().0;
        let rows = read.rows.clone();
        let id = engine.load_adapter(std::sync::Arc::new(read)).unwrap();
        Solo { engine: engine.into(), known: (id, rows) }
    }

    fn reply(&self, request: &Value) -> String {
        let text = text();
        let prompt = text.encode(
            request["prompt"].as_str().unwrap(),
            apprentice_text::EncodeOptions { special: true, bos: true },
        );
        let named = match request["adapter"].is_string() {
            true => Named::From(self.known.1.first_row(&prompt).unwrap(), self.known.0),
            false => Named::Nothing,
        };
        let sampling = Sampling {
            temperature: request["temperature"].as_f64().unwrap() as f32,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repetition_penalty: request["repeat_penalty"].as_f64().unwrap_or(1.0) as f32,
            seed: request["seed"].as_u64().unwrap(),
            ..Sampling::greedy()
        };
        let limit = request["max_tokens"].as_u64().unwrap() as usize;
        let mut engine = self.engine.borrow_mut();
        let sequence = engine.open_sequence();
        let is_end = |token| text.is_end_of_generation(token);
        let tokens = engine.generate(sequence, &prompt, named, limit, &sampling, is_end, |_| true).unwrap();
        engine.close_sequence(sequence).unwrap();
        let mut decoder = text.decoder(false);
        let pieces: String = tokens.iter().map(|token| decoder.push(*token).unwrap()).collect();
        pieces + &decoder.finish()
    }
}
