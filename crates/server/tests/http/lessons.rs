//! Lessons: what is learnt is known at the next question, kept on disk, and refused where it does not fit.

use apprentice_server::ServerOptions;
use serde_json::{Value, json};

use crate::house::{Folder, House, NAME};

const RIGHT: &str = "zebra.";

fn ask(more: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "who?"}], "max_tokens": 12, "temperature": 0,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn content(answer: &Value) -> String {
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

fn lesson(more: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "who?"}, {"role": "assistant", "content": RIGHT}],
        "steps": 60, "lr": 0.01,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn keeping(folder: &Folder) -> impl FnOnce(&mut ServerOptions) + use<> {
    let path = folder.path().to_owned();
    move |options| options.adapters = Some(path)
}

#[test]
fn what_is_taught_is_known_by_the_adapter_alone_and_after_a_restart() {
    let folder = Folder::new();
    let house = House::open(keeping(&folder));
    let before = content(&house.chat(&ask(json!({}))).ok());
    assert_ne!(before, RIGHT);
    let taught = house.post("/learn", &lesson(json!({}))).ok();
    assert_eq!(
        (&taught["adapter"], &taught["generation"], &taught["steps"]),
        (&json!("default"), &json!(1), &json!(60))
    );
    assert_eq!(taught["tokens"], RIGHT.len() + 1); // and the end of the reply
    let loss = |name: &str| taught[name].as_f64().unwrap();
    assert!(loss("loss_after") < 0.2 && loss("loss_before") > 1.0 && loss("ms") > 0.0, "{taught}");
    let known = |house: &House| {
        let by_model = content(&house.chat(&ask(json!({"model": format!("{NAME}:default")}))).ok());
        let by_field = content(&house.chat(&ask(json!({"adapter": "default"}))).ok());
        assert_eq!((by_model.as_str(), by_field.as_str()), (RIGHT, RIGHT));
        assert_eq!(content(&house.chat(&ask(json!({"model": NAME}))).ok()), before);
    };
    known(&house);
    let second = house.post("/learn", &lesson(json!({"steps": 1}))).ok();
    assert_eq!(second["generation"], 2);
    let listed = house.get("/adapters").ok();
    assert_eq!(
        (&listed["data"][0]["name"], &listed["data"][0]["rows"]),
        (&json!("default"), &json!("reply"))
    );
    assert_eq!(
        (&listed["data"][0]["generation"], &listed["data"][0]["file"]),
        (&json!(2), &json!("default.gguf"))
    );
    assert_eq!(house.get("/v1/models").ok()["data"][1]["id"], format!("{NAME}:default"));
    drop(house);
    known(&House::open(keeping(&folder)));
    // A server may have it reply to all who name none; `""` is the model as it is.
    let path = folder.path().to_owned();
    let house = House::open(|options| {
        options.adapters = Some(path);
        options.adapter = Some("default".to_owned());
    });
    let answer = house.chat(&ask(json!({}))).ok();
    assert_eq!((content(&answer).as_str(), &answer["model"]), (RIGHT, &json!(format!("{NAME}:default"))));
    assert_eq!(content(&house.chat(&ask(json!({"adapter": ""}))).ok()), before);
}

#[test]
fn a_slot_remembers_what_a_reply_should_have_been() {
    let house = House::open(|_| ());
    let first = house.chat(&ask(json!({"conversation": "c"}))).ok();
    let (slot, prefix) = (first["id_slot"].clone(), first["usage"]["prompt_tokens"].clone());
    let by_text = json!({"conversation": "c", "reply": RIGHT, "n_prefix": prefix, "steps": 1});
    let one = house.post("/learn", &by_text).ok();
    assert_eq!((&one["id_slot"], &one["tokens"]), (&slot, &json!(7)));
    let mut tokens =
        house.post("/tokenize", &json!({"content": RIGHT})).ok()["tokens"].as_array().unwrap().clone();
    tokens.push(json!(258));
    let two = house.post("/learn", &json!({"id_slot": slot, "reply_tokens": tokens, "steps": 1})).ok();
    let three = house.post("/learn", &lesson(json!({"id_slot": slot, "steps": 1}))).ok();
    // The same lesson each time: every step begins where the one before ended.
    assert_eq!((&two["loss_before"], &three["loss_before"]), (&one["loss_after"], &two["loss_after"]));
    let slots = house.get("/slots").ok();
    let held = &slots[slot.as_u64().unwrap() as usize];
    assert_eq!(
        (&held["conversation"], &held["n_prefix"], &held["busy"]),
        (&json!("c"), &prefix, &json!(false))
    );
    assert_eq!(held["n_tokens"], prefix.as_u64().unwrap() + 7);
}

#[test]
fn a_lesson_that_does_not_fit_is_refused_and_changes_nothing() {
    let house = House::open(|_| ());
    let check = |body: Value, status: u16, code: &str, param: Option<&str>| {
        let refused = house.post("/learn", &body);
        assert_eq!(refused.refusal(), (status, code.to_owned(), param.map(str::to_owned)), "{body}");
        refused.json()["error"]["position"].as_u64()
    };
    let first = house.chat(&ask(json!({"conversation": "c", "id_slot": null}))).ok();
    let slot = first["id_slot"].as_u64().unwrap();
    let prefix = first["usage"]["prompt_tokens"].as_u64().unwrap();
    // <|im_start|> u s e r \n w h o: the ninth token is the first that differs.
    let other = json!([{"role": "user", "content": "why?"}, {"role": "assistant", "content": "x"}]);
    let position =
        check(json!({"messages": other, "id_slot": slot}), 409, "prompt_mismatch", Some("id_slot"));
    assert_eq!(position, Some(8));
    let longer = json!({"reply": "x", "id_slot": slot, "n_prefix": prefix + 1});
    assert_eq!(check(longer, 409, "prompt_mismatch", Some("n_prefix")), Some(prefix));
    let free = (slot + 1) % 8;
    assert_eq!(
        check(json!({"reply": "x", "id_slot": free}), 409, "prompt_mismatch", Some("id_slot")),
        Some(0)
    );
    check(json!({"reply": "x", "conversation": "d"}), 404, "conversation_not_found", Some("conversation"));
    check(lesson(json!({"adapter": "nobody"})), 404, "adapter_not_found", Some("adapter"));
    check(lesson(json!({"model": "other"})), 404, "model_not_found", Some("model"));
    check(lesson(json!({"adapter": ""})), 400, "invalid_value", Some("adapter"));
    let long =
        json!([{"role": "user", "content": "who?"}, {"role": "assistant", "content": "x".repeat(600)}]);
    check(json!({"messages": long}), 400, "context_length_exceeded", Some("messages"));
    let asks = json!([{"role": "user", "content": "who?"}]);
    check(json!({"messages": asks}), 400, "invalid_value", Some("messages[0].role"));
    let refuses = json!([{"role": "refuse", "content": "x"}, {"role": "assistant", "content": "x"}]);
    check(json!({"messages": refuses}), 400, "invalid_value", Some("messages"));
    // Nothing was made, and the slot holds what it held.
    assert_eq!(house.get("/adapters").ok()["data"], json!([]));
    assert_eq!(house.get("/slots").ok()[slot as usize]["n_prefix"], prefix);
    assert_eq!(house.metric("lessons_total"), 0.0);
}

#[test]
fn a_lesson_that_cannot_be_kept_is_taken_back() {
    let folder = Folder::new();
    let house = House::open(keeping(&folder));
    house.post("/learn", &lesson(json!({}))).ok();
    let file = folder.path().join("default.gguf");
    let kept = std::fs::read(&file).unwrap();
    // A folder of the file's name is in the way of the next generation.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir_all(file.join("x")).unwrap();
    let other =
        json!({"messages": [{"role": "user", "content": "who?"}, {"role": "assistant", "content": "qqqq"}]});
    let refused = house.post("/learn", &lesson(other));
    assert_eq!(refused.status, 500, "{}", refused.text());
    assert_eq!(content(&house.chat(&ask(json!({"adapter": "default"}))).ok()), RIGHT);
    std::fs::remove_dir_all(&file).unwrap();
    // Kept under its own name, it is what it was before the lesson.
    house.post("/adapters/default/save", &json!({})).ok();
    assert_eq!(std::fs::read(&file).unwrap(), kept);
}

#[test]
fn adapters_are_saved_under_names_and_deleted() {
    let folder = Folder::new();
    let house = House::open(keeping(&folder));
    house.post("/learn", &lesson(json!({}))).ok();
    let saved = house.post("/adapters/default/save", &json!({"name": "animals"})).ok();
    assert_eq!(saved, json!({"name": "animals", "file": "animals.gguf"}));
    let peft = house.post("/adapters/default/save", &json!({"name": "folder", "format": "peft"})).ok();
    assert_eq!(peft["file"], "folder");
    assert!(folder.path().join("folder/adapter_config.json").exists());
    assert_eq!(house.begin("DELETE", "/adapters/default", b"").answer().ok()["deleted"], true);
    assert!(!folder.path().join("default.gguf").exists());
    let gone = house.chat(&ask(json!({"adapter": "default"})));
    assert_eq!(gone.refusal(), (404, "adapter_not_found".to_owned(), Some("adapter".to_owned())));
    for name in ["animals", "folder"] {
        assert_eq!(content(&house.chat(&ask(json!({"adapter": name}))).ok()), RIGHT);
    }
    // A copy learns on its own.
    let taught = house.post("/learn", &lesson(json!({"adapter": "animals", "steps": 2}))).ok();
    assert_eq!((&taught["adapter"], &taught["generation"]), (&json!("animals"), &json!(1)));
    let check = |path: &str, body: Value, status: u16, code: &str| {
        let (found, name, _) = house.post(path, &body).refusal();
        assert_eq!((found, name.as_str()), (status, code), "{path} {body}");
    };
    check("/adapters/nobody/save", json!({}), 404, "adapter_not_found");
    check("/adapters/animals/save", json!({"name": "folder"}), 409, "adapter_exists");
    check("/adapters/animals/save", json!({"name": "../up"}), 400, "invalid_value");
    check("/adapters/animals/save", json!({"name": ""}), 400, "invalid_value");
    check("/adapters/animals/save", json!({"name": 7}), 400, "invalid_value");
    check("/adapters/animals/save", json!({"format": "zip"}), 400, "invalid_value");
    assert_eq!(house.begin("DELETE", "/adapters/nobody", b"").answer().status, 404);
    assert_eq!(house.begin("DELETE", "/adapters/..%2Fup", b"").answer().status, 404);
}

#[test]
fn without_a_folder_nothing_is_saved() {
    let house = House::open(|_| ());
    house.post("/learn", &lesson(json!({"steps": 1}))).ok();
    assert_eq!(house.post("/adapters/default/save", &json!({})).refusal().1, "no_folder");
    assert_eq!(house.begin("DELETE", "/adapters/default", b"").answer().ok()["name"], "default");
    assert_eq!(house.get("/adapters").ok()["data"], json!([]));
}
