//! `chat` by script, on a tiny model: lines in, replies out; what is taught, taken back, saved, and refused.

use std::path::Path;

use crate::program::{Answer, call, call_with};
use crate::scratch::Scratch;

/// A lesson that a tiny model learns by heart.
const QUICK: &str = "--steps 80 --lr 0.02 -n 12";

fn chat(model: &Path, flags: &str, script: &str) -> Answer {
    call_with(&format!("chat -m {{}} {flags}"), &[&model], script)
}

/// What was written, line by line; milliseconds, which differ from call to call, are left out.
fn lines(answer: Answer) -> Vec<String> {
    let without_time = |line: &str| match (line.starts_with("learnt: "), line.split_once(" steps, ")) {
        (true, Some((losses, _))) => losses.to_owned(),
        _ => line.to_owned(),
    };
    answer.done().out.lines().map(without_time).collect()
}

/// What was said on standard error, but for notes that a reply was cut off.
fn said(answer: &Answer) -> String {
    answer.err.lines().filter(|line| !line.starts_with('[')).map(|line| format!("{line}\n")).collect()
}

/// Losses before and after, of a line that tells of a lesson.
fn losses(line: &str) -> [f64; 2] {
    let number = |part: &str| line.split_once(part).unwrap().0.rsplit_once(' ').unwrap().1.parse().unwrap();
    [number(" before"), number(" after")]
}

#[test]
fn a_taught_reply_is_given_again_and_forgotten_again() {
    let scratch = Scratch::new();
    let model = scratch.talker();
    let script =
        "hello\n/teach It is 42.\n/clear\nhello\n/clear\nHELLO\n/undo\n/clear\nhello\n/clear\nHELLO\n";
    let found = lines(chat(&model, QUICK, script));
    let [first, learnt, after, other_after, undone, again, other_again] = &found[..] else {
        panic!("{found:?}");
    };
    let [before_loss, after_loss] = losses(learnt);
    assert!(before_loss > 2.0 && after_loss < 0.3, "{learnt}");
    assert_eq!(after, "It is 42.");
    assert_eq!(undone, "default has forgotten the last lesson");
    assert_eq!(again, first);
    assert_ne!(first, after);
    assert_ne!(other_after, other_again, "the lesson changed nothing but its own reply");
    assert_eq!(lines(chat(&model, QUICK, script)), found, "a second chat differs");
}

#[test]
fn the_conversation_goes_on_with_what_was_taught() {
    let scratch = Scratch::new();
    let model = scratch.talker();
    let unchanged = lines(chat(&model, "-n 12", "hello\nand now?\n"));
    // A lesson of which the adapter is then off: what changes the second reply is the conversation alone.
    let taught = "hello\n/teach It is 42.\n/adapters off\nand now?\n";
    let taught = lines(chat(&model, QUICK, taught));
    assert_eq!(taught[0], unchanged[0]);
    assert_eq!(taught[2], "  default: 1 lesson, 1 not saved");
    assert_ne!(taught.last(), unchanged.last());
    // Taken back, the earlier reply is in the conversation again.
    let undone = lines(chat(&model, QUICK, "hello\n/teach It is 42.\n/undo\nand now?\n"));
    assert_eq!(undone.last(), unchanged.last());
}

#[test]
fn lessons_are_taken_back_one_by_one() {
    let scratch = Scratch::new();
    let model = scratch.talker();
    let script = "hello\n/teach one\n/clear\nhello\n/teach two\n/clear\nhello\n/undo\n/clear\nhello\n/undo\n/clear\nhello\n\
                  /adapters\n";
    let found = lines(chat(&model, QUICK, script));
    let [first, _, one, _, two, _, back, _, forgotten, adapters] = &found[..] else { panic!("{found:?}") };
    assert_eq!([one, two, back], ["one", "two", "one"]);
    assert_eq!(forgotten, first);
    assert_eq!(adapters, "* default: 0 lessons");
}

#[test]
fn what_was_taught_is_saved_and_used() {
    let scratch = Scratch::new();
    let model = scratch.talker();
    for name in ["learnt.gguf", "learnt"] {
        let path = scratch.path(name);
        let script = format!("hello\n/teach It is 42.\n/save {}\n/adapters\n", path.display());
        let answer = chat(&model, QUICK, &script);
        assert_eq!(said(&answer), "", "nothing is lost");
        let found = lines(answer);
        assert_eq!(
            found[2..],
            [format!("default is in {}", path.display()), "* default: 1 lesson".to_owned()]
        );
        assert_eq!(call("run -m {} --adapter {} hello", &[&model, &path]).done().out, "It is 42.\n");
        let flags = "chat -m {} --adapter {} -n 12";
        let answer = call_with(flags, &[&model, &path], "hello\n/adapters off\n/clear\nhello\n/adapters\n");
        let found = lines(answer);
        assert_eq!((found[0].as_str(), found[1].as_str()), ("It is 42.", "  learnt: 0 lessons"));
        assert_ne!(found[2], "It is 42.");
        // It is taught on from there.
        let script = "hello\n/teach It is 43.\n/clear\nhello\n/undo\n/clear\nhello\n/quit\nnever read\n";
        let found =
            lines(call_with(&format!("chat -m {{}} --adapter {{}} {QUICK}"), &[&model, &path], script));
        assert!(losses(&found[1])[0] > 0.3, "{found:?}");
        assert_eq!([&found[2], &found[4]], ["It is 43.", "It is 42."]);
        assert_eq!(found.len(), 5);
    }
}

#[test]
fn a_lesson_that_no_file_holds_is_told_of() {
    let scratch = Scratch::new();
    let model = scratch.talker();
    let hint = "1 lesson is not saved; /save FILE keeps it\n";
    for script in ["hello\n/teach ok\n", "hello\n/teach ok\n/quit\n"] {
        assert_eq!(said(&chat(&model, "--steps 1 -n 4", script).done()), hint);
    }
    let undone = chat(&model, "--steps 1 -n 4", "hello\n/teach ok\n/undo\n").done();
    assert_eq!(said(&undone), "");
    let answer = chat(&model, "--steps 1 -n 4", "hello\n/teach ok\n/teach\n").ended(2);
    assert_eq!(said(&answer), format!("{hint}error: line 3: /teach: expected TEXT\n"));
}

#[test]
fn what_the_model_is_told_first_stays() {
    let scratch = Scratch::new();
    let model = scratch.talker();
    let by_flag = lines(chat(&model, "-n 8 --system terse", "hello\n"));
    let by_order =
        lines(chat(&model, "-n 8", "hello\n/system terse\n/clear\nhello\n/system\n/clear\nhello\n"));
    assert_eq!(by_order[1], by_flag[0]);
    assert_eq!(by_order[2], by_order[0]);
    assert_ne!(by_order[0], by_order[1]);
    let run = call("run -m {} --system terse hello -n 8", &[&model]).done().out;
    assert_eq!(run, format!("{}\n", by_flag[0]));
}

#[test]
fn a_reply_ends_at_a_stop_string() {
    let scratch = Scratch::new();
    let model = scratch.talker();
    let whole = call("run -m {} hello -n 12", &[&model]).done().out;
    let whole = whole.trim_end_matches('\n');
    let stop: String = whole.chars().skip(3).take(2).collect();
    let at = whole.find(&stop).unwrap();
    let expected = format!("{}\n", &whole[..at]);
    assert_eq!(call("run -m {} hello -n 12 --stop {} --stop ~~~~", &[&model, &stop]).done().out, expected);
    let answer = call_with("chat -m {} -n 12 --stop {}", &[&model, &stop], "hello\n");
    assert_eq!(answer.done().out, expected);
    call("run -m {} hello --stop {}", &[&model, &""]).refused("stop string 0: expected text");
    call("chat -m {} --stop {}", &[&model, &""]).refused("stop string 0: expected text");
}

#[test]
fn log_probabilities_are_those_of_the_reply() {
    let scratch = Scratch::new();
    let model = scratch.talker();
    let reply = call("run -m {} hello -n 6", &[&model]).done().out;
    let answer = call("run -m {} hello -n 6 --logprobs 3", &[&model]).done();
    let mut text = String::new();
    for line in answer.out.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        text += line["text"].as_str().unwrap();
        let top = line["top"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        assert_eq!(top[0]["token"], line["token"], "greedy takes the likeliest");
        assert_eq!(top[0]["logprob"], line["logprob"]);
        assert!(line["logprob"].as_f64().unwrap() <= 0.0);
        assert!(top[1]["logprob"].as_f64().unwrap() <= top[0]["logprob"].as_f64().unwrap());
    }
    assert_eq!(format!("{text}\n"), reply);
    call("run -m {} hello --logprobs 21", &[&model]).ended(2);
}

#[test]
fn lines_that_are_refused() {
    let scratch = Scratch::new();
    let model = scratch.talker();
    let check = |script: &str, expected: &str| {
        let answer = chat(&model, "-n 4", script).ended(2);
        let said = said(&answer);
        assert!(
            said.starts_with("error: ") && said.lines().count() == 1 && said.contains(expected),
            "{said}"
        );
    };
    check("/tech x\n", "line 1: /tech is not known; /teach, /undo, /save,");
    check("\n\n/teach x\n", "line 3: there is no reply to correct yet");
    check("/undo\n", "line 1: there is no lesson to take back");
    check("/save x.gguf\n", "line 1: there is no adapter to save");
    check("/adapters on\n", "no adapter is called \"on\"; there is none");
    check("hello\n/clear\n/teach x\n", "line 3: there is no reply to correct yet");
    check(&format!("{}\n", "x".repeat(4096)), "tokens, the context 4096; /clear begins a new one");
    let long = format!("hello\n/teach {}\n", "x".repeat(4096));
    check(&long, "line 2: the conversation with this reply has");
    let lost = format!("hello\n/teach ok\n/save {}\n", scratch.path("no/such/folder.gguf").display());
    let answer = chat(&model, "--steps 1 -n 4", &lost).ended(2);
    let said = said(&answer);
    assert!(said.contains("line 3: ") && said.starts_with("1 lesson is not saved"), "{said}");
}

#[test]
fn chats_that_cannot_be() {
    let scratch = Scratch::new();
    let model = scratch.talker();
    let check = |flags: &str, expected: &str| chat(&model, flags, "").refused(expected);
    check("--ctx-size 0", "--ctx-size 0: expected at least 1");
    check("--ctx-size 5000", "--ctx-size 5000: the context of the model has 4096");
    for rate in ["0", "-1", "nan", "inf"] {
        check(&format!("--lr={rate}"), "--lr");
    }
    for flags in ["--steps 0", "--steps 1001", "--steps -1", "--lr x", "-n x"] {
        chat(&model, flags, "").ended(2);
    }
    call("chat -m {}", &[&crate::program::golden("archs/llama.gguf")]).refused("no tokeniser");
    call("chat -m {} --adapter {}", &[&model, &scratch.path("none")]).refused("none");
    let keep = |key: &str, value: &apprentice_gguf::Value| {
        Some(value.clone()).filter(|_| key != "tokenizer.chat_template")
    };
    let plain = scratch.model("plain.gguf", &model, keep, |name| Some(name.to_owned()));
    call("chat -m {}", &[&plain]).refused("no chat template");
}
