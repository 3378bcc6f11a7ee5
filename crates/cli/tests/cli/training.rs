//! `train` on a file: what it writes and shows on a tiny model, what it refuses, and that nothing is written then.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::call;
use crate::real::model;
use crate::scratch::Scratch;
use crate::serving::same_as_run;

const GOOD: &str =
    r#"{"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "It is 42."}]}"#;
const OTHER: &str = r#"{"prompt": "hello", "completion": " you"}"#;

/// A scratch folder with a model, a file of data and a place for what is learnt.
struct School {
    scratch: Scratch,
    model: PathBuf,
    data: PathBuf,
    out: PathBuf,
}

impl School {
    fn new(lines: &[&str]) -> School {
        let scratch = Scratch::new();
        let (model, data) = (scratch.talker(), scratch.file("data.jsonl", lines.join("\n")));
        let out = scratch.path("out.gguf");
        School { scratch, model, data, out }
    }

    fn call(&self, flags: &str) -> crate::program::Answer {
        call(&format!("train -m {{}} -d {{}} -o {{}} {flags}"), &[&self.model, &self.data, &self.out])
    }

    /// Refused with this, and nothing new in the folder.
    #[track_caller]
    fn refuses(&self, flags: &str, expected: &str) {
        self.call(flags).refused(expected);
        let mut files: Vec<_> =
            fs::read_dir(self.scratch.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        files.sort();
        assert_eq!(files, ["data.jsonl", "talker.gguf"], "{flags}: something was written");
    }
}

#[test]
fn a_file_is_learnt_and_shown() {
    let school = School::new(&[GOOD, "", OTHER]);
    let (log, svg) = (school.scratch.path("log.jsonl"), school.scratch.path("loss.svg"));
    let flags = format!(
        "--epochs 20 --batch 1 --lr 0.01 --eval {} --log {} --svg {}",
        school.data.display(),
        log.display(),
        svg.display()
    );
    let answer = school.call(&flags).done();
    assert!(answer.out.contains("40 steps") && answer.out.contains("held-out loss"), "{}", answer.out);
    assert!(answer.err.lines().next().unwrap().starts_with("memory "), "{}", answer.err);
    let entries: Vec<Value> =
        fs::read_to_string(log).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let eval: Vec<f64> = entries.iter().filter_map(|entry| entry["eval_loss"].as_f64()).collect();
    assert_eq!((entries.len(), eval.len()), (61, 21));
    assert!(eval[20] < 0.5 * eval[0], "{eval:?}");
    assert!(fs::read_to_string(svg).unwrap().starts_with("<svg "));
    assert!(!school.scratch.path("out.gguf.checkpoint").exists());
    let taught = call("run -m {} hello -n 12 --adapter {}", &[&school.model, &school.out]).done();
    let plain = call("run -m {} hello -n 12", &[&school.model]).done();
    assert_ne!(taught.out, plain.out);
}

#[test]
fn threads_and_cuts_change_no_byte_of_an_adapter() {
    let school = School::new(&[GOOD, OTHER, GOOD]);
    let bytes = |flags: &str| {
        school.call(flags).done();
        fs::read(&school.out).unwrap()
    };
    for objective in ["all", "reply"] {
        let plain = bytes(&format!("--objective {objective} --batch 2"));
        for flags in ["--batch 2 --threads 1", "--batch 2 --threads 3", "--batch 1 --accumulate 2"] {
            assert!(bytes(&format!("--objective {objective} {flags}")) == plain, "{objective} {flags}");
        }
        assert!(bytes(&format!("--objective {objective} --batch 2 --seed 2")) != plain);
    }
}

#[test]
fn lines_are_refused_before_anything_is_trained() {
    let refuses = |line: &str, expected: &str| {
        let school = School::new(&[GOOD, line]);
        school.refuses("", &format!("data.jsonl:2: {expected}"));
    };
    refuses("{", "expected JSON");
    refuses("{}", "line: expected the key messages, or the keys prompt and completion, found no keys");
    refuses(
        r#"{"messages": [{"role": "user", "content": "a"}]}"#,
        "messages: expected at least one of the assistant",
    );
    refuses(r#"{"prompt": "a", "completion": ""}"#, "all labels are masked");
    let school = School::new(&[""]);
    school.refuses("", "expected at least one line with a sample");
    let school = School::new(&[GOOD]);
    let missing = format!("--eval {}", school.scratch.path("none.jsonl").display());
    school.refuses(&missing, "none.jsonl");
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let school = School::new(&[GOOD]);
    for (flags, expected) in [
        ("--targets q_prj", "q_prj"),
        ("--targets q_prj", "all-linear"),
        ("--rank 0", "rank"),
        ("--alpha 0", "alpha"),
        ("--epochs 0", "epochs: expected at least 1"),
        ("--batch 0", "batch: expected at least 1"),
        ("--accumulate 0", "accumulate: expected at least 1"),
        ("--lr 0", "lr: expected a number above 0"),
        ("--lr nan", "--lr NaN"),
        ("--lr -1", "--lr -1: expected a number from 0 to 1"),
        ("--lr 1e308", "--lr 1e308: expected a number from 0 to 1"),
        ("--weight-decay 2147483648", "--weight-decay 2147483648: expected a number from 0 to 1"),
        ("--clip 0", "--clip 0: expected a number above 0"),
        ("--weight-decay=-1", "--weight-decay -1"),
        ("--warmup 99", "warmup: expected at most the 3 steps of the run, found 99"),
        ("--context 0", "--context 0: expected 1 to"),
        ("--context 5", "data.jsonl:1: "),
        ("--resume", "out.gguf.checkpoint"),
        ("--memory 1", "--memory: "),
    ] {
        school.refuses(flags, expected);
    }
    for (flag, values) in [
        ("epochs", &["-1", "4294967296", "9223372036854775808", "1e308", "x"][..]),
        ("batch", &["-1", "18446744073709551616", "1e308", "1.5"]),
        ("accumulate", &["-1", "1e308"]),
        ("rank", &["-1", "2147483648", "9223372036854775808"]),
        ("context", &["-1", "2147483648", "9223372036854775808"]),
        ("warmup", &["-1", "2147483648", "9223372036854775808"]),
        ("seed", &["-1", "18446744073709551616", "1e308"]),
        ("threads", &["-1", "0", "2147483648"]),
        ("alpha", &["nan", "inf", "1e308"]),
        ("objective", &["some"]),
        ("epoch", &["1"]),
    ] {
        for value in values {
            school.refuses(&format!("--{flag} {value}"), flag);
        }
    }
    let out = school.scratch.path("out.safetensors");
    call("train -m {} -d {} -o {}", &[&school.model, &school.data, &out])
        .refused("output: expected a folder");
    let line = "train -m {} -d {} -o {}";
    call(line, &[&crate::program::golden("archs/llama.gguf"), &school.data, &school.out])
        .refused("no tokeniser");
}

#[test]
fn places_that_cannot_be_are_refused_before_anything_is_trained() {
    let school = School::new(&[GOOD]);
    let (model, data) = (school.model.display(), school.data.display());
    let (folder, lost) = (school.scratch.path(""), school.scratch.path("no/such/file"));
    let (folder, lost) = (folder.display(), lost.display());
    let out = school.out.display();
    for (flags, expected) in [
        (format!("--log {data}"), "expected a file of its own, found that of --data"),
        (format!("--svg {model}"), "expected a file of its own, found that of --model"),
        (format!("--checkpoint {folder}/../{{}}/data.jsonl"), "--data"),
        (format!("--log {out}"), "expected a file of its own, found that of --output"),
        (format!("--log {out}.checkpoint"), "expected a file of its own, found that of --checkpoint"),
        (format!("--eval {data} --svg {data}"), "expected a file of its own, found that of --data"),
        (format!("--log {folder}"), "directory"),
        (format!("--svg {folder}"), "directory"),
        (format!("--checkpoint {folder}"), "directory"),
        (format!("--log {lost}"), "No such file"),
        (format!("--svg {lost}"), "No such file"),
        (format!("--checkpoint {lost}"), "No such file"),
    ] {
        let name = school.scratch.path("");
        let flags = flags.replace("{}", name.file_name().unwrap().to_str().unwrap());
        school.refuses(&flags, expected);
    }
    for (output, expected) in [
        (&school.model, "expected a file of its own, found that of --model"),
        (&school.data, "expected a file of its own, found that of --data"),
        (&school.scratch.path("no/such.gguf"), "No such file"),
        (&school.scratch.path("no/such"), "No such file"),
        (&school.scratch.path("data.jsonl/x"), "data.jsonl/x"),
    ] {
        let whole = fs::read(&school.model).unwrap();
        call("train -m {} -d {} -o {}", &[&school.model, &school.data, output]).refused(expected);
        assert!(fs::read(&school.model).unwrap() == whole);
    }
    let folder = school.scratch.file("folder.gguf/x", "").with_file_name("");
    call("train -m {} -d {} -o {}", &[&school.model, &school.data, &folder]).refused("directory");
    let file = school.scratch.file("file", "");
    call("train -m {} -d {} -o {}", &[&school.model, &school.data, &file]).refused("expected a folder");
}

#[test]
fn targets_have_the_names_of_both_formats() {
    let school = School::new(&[GOOD]);
    let bytes = |targets: &str| {
        school.call(&format!("--targets {targets}")).done();
        fs::read(&school.out).unwrap()
    };
    let peft = bytes("q_proj,v_proj");
    assert!(bytes("attn_v,attn_q") == peft);
    assert!(bytes("attn_q") != peft);
}

#[test]
fn a_checkpoint_is_of_its_own_run() {
    let school = School::new(&[GOOD, OTHER]);
    let kept = school.scratch.path("kept");
    let flags = |more: &str| format!("--checkpoint {} --epochs 2 {more}", kept.display());
    school.call(&flags("")).done();
    let bytes = fs::read(&school.out).unwrap();
    school.call(&flags("--resume")).done();
    assert!(fs::read(&school.out).unwrap() == bytes, "a run that is complete stays as it is");
    for (more, expected) in [
        ("--resume --lr 0.5", "lr: the run that was stopped has 0.001, this one 0.5"),
        ("--resume --seed 2", "seed: the run that was stopped has 1, this one 2"),
        ("--resume --rank 4", "rank: the run that was stopped has 8, this one 4"),
        ("--resume --numerics f32", "numerics: the run that was stopped has q8, this one f32"),
    ] {
        school.call(&flags(more)).refused(expected);
    }
    fs::write(&school.data, [GOOD, GOOD].join("\n")).unwrap();
    school.call(&flags("--resume")).refused("data: the run that was stopped has");
    fs::write(&kept, b"no checkpoint").unwrap();
    school.call(&flags("--resume")).refused("kept: no checkpoint: ");
}

/// Facts of the committed data.
fn facts(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/facts").join(name)
}

/// The losses of a log, as they are written.
fn losses(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    // The last line may be in the making.
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let entries = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries
        .map(|mut entry| {
            entry.as_object_mut().unwrap().remove("seconds");
            entry
        })
        .collect()
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn fifty_facts_are_learnt_in_five_epochs_and_served_as_they_run() {
    let scratch = Scratch::new();
    let (model, log) = (model("smollm2"), scratch.path("log.jsonl"));
    let adapters = scratch.file("adapters/facts.gguf", "").with_file_name("");
    let line = "train -m {} -d {} --eval {} --epochs 5 --batch 2 -o {} --log {}";
    let (data, held_out) = (facts("train.jsonl"), facts("heldout.jsonl"));
    let answer = call(line, &[&model, &data, &held_out, &adapters.join("facts.gguf"), &log]).done();
    println!("{}", answer.out);
    let entries = losses(&log);
    let of = |key: &str| entries.iter().filter_map(|entry| entry[key].as_f64()).collect::<Vec<_>>();
    let (steps, held) = (of("loss"), of("eval_loss"));
    assert_eq!((steps.len(), held.len()), (125, 6));
    // Of 25 steps each: the last epoch.
    let last = steps[100..].iter().sum::<f64>() / 25.0;
    assert!(last < 0.3, "training loss {last} over the last epoch");
    assert!(held[5] < held[0], "held-out loss {held:?}");
    let questions = |data: &Path| -> Vec<String> {
        let samples = fs::read_to_string(data).unwrap();
        let question = |line: &str| -> String {
            let sample: Value = serde_json::from_str(line).unwrap();
            sample["messages"][0]["content"].as_str().unwrap().to_owned()
        };
        samples.lines().take(5).map(question).collect()
    };
    same_as_run(&model, &adapters, "facts", &[questions(&data), questions(&held_out)].concat());
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn a_run_that_is_interrupted_three_times_gives_the_same_bytes() {
    let scratch = Scratch::new();
    let lines = fs::read_to_string(facts("train.jsonl")).unwrap();
    let data = scratch.file("data.jsonl", lines.lines().take(9).collect::<Vec<_>>().join("\n"));
    let held_out = scratch.file("held.jsonl", lines.lines().skip(9).take(2).collect::<Vec<_>>().join("\n"));
    // Three steps an epoch: ends of epochs, and their evaluations, lie between the stops.
    let train = |name: &str, resume: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apprentice"));
        command.args(["train", "--epochs", "3", "--batch", "1", "--accumulate", "3", "--rank", "4"]);
        command.arg("-m").arg(model("smollm2")).arg("-d").arg(&data).arg("--eval").arg(&held_out);
        command.arg("-o").arg(scratch.path(&format!("{name}.gguf")));
        command.arg("--log").arg(scratch.path(&format!("{name}.jsonl")));
        command.args(resume.then_some("--resume")).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    assert!(train("whole", false).status().unwrap().success());
    let log = scratch.path("cut.jsonl");
    for (life, entries) in [2, 5, 9].into_iter().enumerate() {
        let mut child = train("cut", life > 0).spawn().unwrap();
        let begun = Instant::now();
        while losses(&log).len() < entries {
            assert!(begun.elapsed() < Duration::from_secs(120), "no {entries} lines in the log");
            assert!(child.try_wait().unwrap().is_none(), "it ended before {entries} lines");
            thread::sleep(Duration::from_millis(5));
        }
        assert!(Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(130), "life {life}");
        assert!(scratch.path("cut.gguf.checkpoint").exists() && scratch.path("cut.gguf").exists());
    }
    assert!(train("cut", true).status().unwrap().success());
    assert_eq!(losses(&log), losses(&scratch.path("whole.jsonl")));
    let bytes = |name: &str| fs::read(scratch.path(name)).unwrap();
    assert!(bytes("cut.gguf") == bytes("whole.gguf"), "the adapters differ");
    assert!(!scratch.path("cut.gguf.checkpoint").exists());
}
