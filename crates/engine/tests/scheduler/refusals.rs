//! What is refused when it is submitted: by name, and nothing has changed.

use std::ops::Range;
use std::sync::Arc;

use apprentice_engine::{Engine, Generate, Job, LearnerOptions, Lesson, LiveId, Named, Sampling};

use crate::common::{adapter, engine, tiny, tokens, usual};
use crate::shared::{Answers, alone, assert_no_leak, greedy, lesson, sized, submit};

fn refused(engine: &mut Engine, job: Job, message: &str) {
    let before = engine.stats();
    assert_eq!(engine.submit(job).unwrap_err().to_string(), message);
    assert_eq!(engine.stats(), before);
    assert!(engine.idle());
}

#[test]
fn replies_that_cannot_be() {
    let mut engine = engine(tiny("llama"), usual());
    let id = engine.load_adapter(Arc::new(adapter(engine.model(), "llama"))).unwrap();
    engine.unload_adapter(id).unwrap();
    let good = greedy(tokens(1, 20), Named::Nothing, 5);
    let hot = Sampling { temperature: f32::NAN, ..Sampling::greedy() };
    for (bad, message) in [
        (Generate { prompt: vec![], ..good.clone() }, "prompt: nothing is given"),
        (Generate { prompt: vec![1, 128], ..good.clone() }, "token 128 at index 1: the vocabulary has 128"),
        (Generate { prompt: vec![1; 321], ..good.clone() }, "321 positions: the context has 320"),
        (Generate { named: Named::From(0, id), ..good.clone() }, "adapter 1: not loaded"),
        (Generate { logprobs: Some(21), ..good.clone() }, "logprobs: 21, room for 20"),
        (Generate { sampling: hot, ..good.clone() }, "temperature: expected a number from 0 on, found NaN"),
        (Generate { ends: Arc::from([500]), ..good.clone() }, "token 500 at index 0: the vocabulary has 128"),
    ] {
        refused(&mut engine, Job::Generate(bad), message);
    }
    assert!(alone(&mut engine, &Generate { limit: usize::MAX, ..good }).finish.is_some());
}

#[test]
fn lessons_that_cannot_be() {
    let mut engine = engine(tiny("llama"), usual());
    let content = Arc::new(adapter(engine.model(), "llama"));
    let id = engine.live(content, LearnerOptions::teaching()).unwrap();
    let good = lesson(id, tokens(1, 60), 40..60, 2);
    let replies = |replies: &[Range<usize>]| Lesson { replies: replies.to_vec(), ..good.clone() };
    for (bad, message) in [
        (Lesson { adapter: LiveId(7), ..good.clone() }, "adapter in training 7: not known"),
        (Lesson { tokens: vec![128; 60], ..good.clone() }, "token 128 at index 0: the vocabulary has 128"),
        (Lesson { tokens: vec![1; 400], ..good.clone() }, "400 positions: the context has 320"),
        (Lesson { steps: 0, ..good.clone() }, "steps: nothing is given"),
        (
            Lesson { learning_rate: Some(f64::NAN), ..good.clone() },
            "learning rate: expected a finite number from 0 on, found NaN",
        ),
        (replies(&[]), "replies: nothing is given"),
        (replies(&[40..61]), "span at position 40: the reply ends after the conversation"),
        (replies(&[30..30]), "span at position 30: the reply has no tokens"),
        (replies(&[0..10]), "span at position 0: nothing comes before the reply"),
        (
            replies(&[20..40, 30..50]),
            "span at position 30: the reply begins before the one before it has ended",
        ),
    ] {
        refused(&mut engine, Job::Learn(bad), message);
    }
    let job = engine.submit(Job::Learn(good)).unwrap();
    for error in [engine.end_live(id).unwrap_err(), engine.revert(id).unwrap_err()] {
        assert_eq!(error.to_string(), "adapter in training 1: in use");
    }
    let (current, _, _) = engine.live_adapter(id).unwrap();
    assert_eq!(engine.unload_adapter(current).unwrap_err().to_string(), "adapter in training 1: in use");
    assert!(engine.cancel(job) && !engine.cancel(job));
    assert_no_leak(&mut engine);
}

#[test]
fn pages_that_will_never_be_free() {
    let mut engine = sized(tiny("llama"), usual(), 320, 1);
    let sequence = engine.open_sequence();
    let list = tokens(1, 200);
    let outputs = apprentice_engine::Outputs::Nothing;
    let run = apprentice_engine::Run { sequence, tokens: &list, named: Named::Nothing, outputs };
    engine.greedy(&[run]).unwrap();
    let job = submit(&mut engine, &greedy(tokens(2, 100), Named::Nothing, 50));
    let mut answers = Answers::default();
    answers.finish(&mut engine);
    assert_eq!(answers.replies[&job].error.as_deref(), Some("pages: 3, room for 1"));
    engine.close_sequence(sequence).unwrap();
    assert_eq!(alone(&mut engine, &greedy(tokens(2, 100), Named::Nothing, 50)).tokens.len(), 50);
    assert_no_leak(&mut engine);
}
