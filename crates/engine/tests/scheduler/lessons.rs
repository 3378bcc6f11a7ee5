//! Lessons between replies: same bytes on both sides, all or nothing.

use std::sync::Arc;

use apprentice_engine::{Engine, Job, JobId, LearnerOptions, Lesson, LiveId, Named, Objective};

use crate::common::{self, Setup, adapter, engine, tiny, tokens, usual};
use crate::shared::{Answers, alone, assert_no_leak, greedy, lesson, model, submit};

fn live(engine: &mut Engine, name: &str) -> LiveId {
    let content = adapter(engine.model(), name);
    engine.live(Arc::new(content), LearnerOptions::teaching()).unwrap()
}

fn two_replies(adapter: LiveId, objective: Objective) -> Lesson {
    let replies = vec![41..110, 134..200];
    Lesson { adapter, tokens: tokens(5, 210), replies, objective, steps: 3, learning_rate: Some(1e-2) }
}

/// Losses of a lesson, and the values that it ended with, as bits.
fn taught(engine: &mut Engine, lesson: &Lesson) -> (Vec<u64>, Vec<u32>) {
    let job = engine.submit(Job::Learn(lesson.clone())).unwrap();
    let mut answers = Answers::default();
    answers.finish(engine);
    assert_eq!(answers.replies[&job].error, None);
    (answers.lessons[&job].clone(), values(engine, lesson.adapter))
}

fn values(engine: &Engine, live: LiveId) -> Vec<u32> {
    let (_, content, _) = engine.live_adapter(live).unwrap();
    content.pairs.iter().flat_map(|pair| pair.a.iter().chain(&pair.b)).map(|value| value.to_bits()).collect()
}

#[test]
fn a_lesson_among_replies_is_the_lesson_alone_and_they_are_theirs() {
    for (name, setup) in [("llama", usual()), ("gemma3", usual()), ("q8_0", common::rounded())] {
        for objective in [Objective::Reply, Objective::All] {
            let mut quiet = taught_engine(name, setup);
            let expected = taught(&mut quiet, &two_replies(LiveId(1), objective));
            assert!(f64::from_bits(expected.0[3]) < f64::from_bits(expected.0[0]), "{name}: {expected:?}");

            let mut busy = taught_engine(name, Setup { threads: 3, ..setup });
            let (first, _, _) = busy.live_adapter(LiveId(1)).unwrap();
            // The lesson's own conversation as a prompt, plain and with the adapter.
            let jobs = [
                greedy(tokens(5, 150), Named::Nothing, 150),
                greedy(tokens(5, 100), Named::From(99, first), 200),
                greedy(tokens(6, 20), Named::From(0, first), 250),
            ];
            let ids = jobs.each_ref().map(|job| submit(&mut busy, job));
            let lesson = busy.submit(Job::Learn(two_replies(LiveId(1), objective))).unwrap();
            let mut answers = Answers::default();
            answers.finish(&mut busy);
            let found = (answers.lessons[&lesson].clone(), values(&busy, LiveId(1)));
            assert!(found == expected, "{name}: {objective:?} gives other bytes among replies");
            let mut plain = taught_engine(name, setup);
            for (id, job) in ids.iter().zip(&jobs) {
                assert_eq!(answers.replies[id], alone(&mut plain, job), "{name}: {id:?}");
            }
            assert_no_leak(&mut busy);
        }
    }
}

/// An engine with one adapter in training.
fn taught_engine(name: &str, setup: Setup) -> Engine {
    let mut engine = engine(model(name), setup);
    live(&mut engine, name);
    engine
}

#[test]
fn a_reply_keeps_the_generation_that_it_began_with() {
    for name in ["llama", "gemma3"] {
        let mut engine = taught_engine(name, usual());
        let live = live(&mut engine, name);
        let (first, _, _) = engine.live_adapter(live).unwrap();
        let job = greedy(tokens(6, 20), Named::From(10, first), 250);
        let expected = alone(&mut engine, &job);
        engine.forget_cached();
        let id = submit(&mut engine, &job);
        let mut answers = Answers::default();
        answers.step(&mut engine);
        let mut quick = lesson(live, tokens(8, 60), 40..60, 1);
        quick.learning_rate = Some(1e-2);
        let lesson = engine.submit(Job::Learn(quick)).unwrap();
        while answers.lessons.get(&lesson).is_none_or(|losses| losses.len() < 2) {
            answers.step(&mut engine);
        }
        assert!(answers.replies[&id].tokens.len() < 250, "{name}: the reply ends after the lesson");
        let (second, _, generation) = engine.live_adapter(live).unwrap();
        assert_eq!(generation, 1);
        assert_ne!(first, second);
        assert!(engine.adapter(first).is_ok(), "a generation stays as long as a reply names it");
        answers.finish(&mut engine);
        assert_eq!(answers.replies[&id], expected, "{name}");
        assert!(engine.adapter(first).is_err(), "{name}: an old generation that nobody names is unloaded");
        let again = alone(&mut engine, &greedy(tokens(6, 20), Named::From(10, second), 250));
        assert_ne!(again, expected, "{name}: the lesson changed nothing");
    }
}

#[test]
fn a_lesson_cancelled_anywhere_has_changed_nothing() {
    let mut engine = taught_engine("llama", usual());
    let id = live(&mut engine, "llama");
    let lesson = two_replies(id, Objective::Reply);
    let before = values(&engine, id);
    let cancel_after = |engine: &mut Engine, steps: usize| -> bool {
        let job = engine.submit(Job::Learn(lesson.clone())).unwrap();
        let mut answers = Answers::default();
        for _ in 0..steps {
            answers.step(engine);
        }
        engine.cancel(job)
    };
    let mut steps = 0;
    loop {
        if !cancel_after(&mut engine, steps) {
            break;
        }
        assert!(engine.idle());
        assert_eq!(values(&engine, id), before);
        assert_eq!(engine.live_adapter(id).unwrap().2, 0);
        steps += if steps < 40 { 1 } else { 17 };
    }
    assert!(steps > 15, "{steps} steps: a lesson in slices takes more");
    // The one that ran to its end learnt what one learns that was never disturbed.
    let mut other = taught_engine("llama", usual());
    let other_id = live(&mut other, "llama");
    let expected = taught(&mut other, &two_replies(other_id, Objective::Reply)).1;
    assert_eq!(values(&engine, id), expected);
    assert_no_leak(&mut engine);
}

#[test]
fn a_lesson_taken_back_and_given_again_is_the_same() {
    let mut engine = engine(tiny("llama"), usual());
    let id = live(&mut engine, "llama");
    let start = values(&engine, id);
    taught(&mut engine, &lesson(id, tokens(8, 90), 60..90, 2));
    let first = values(&engine, id);
    let second = taught(&mut engine, &two_replies(id, Objective::Reply));
    let (_, _, generation) = engine.revert(id).unwrap();
    assert_eq!((values(&engine, id), generation), (first.clone(), 3));
    assert_ne!(first, start);
    assert_eq!(taught(&mut engine, &two_replies(id, Objective::Reply)), second, "moments come back too");
    engine.revert(id).unwrap();
    assert_eq!(engine.revert(id).unwrap_err().to_string(), "lesson to take back: nothing is given");
    engine.end_live(id).unwrap();
    assert!(engine.live_adapter(id).is_err());
    assert_no_leak(&mut engine);
}

#[test]
fn what_cannot_be_learnt_fails_and_leaves_the_adapter() {
    let mut engine = engine(tiny("llama"), usual());
    let id = live(&mut engine, "llama");
    let before = values(&engine, id);
    let expected = alone(&mut engine, &greedy(tokens(1, 30), Named::Nothing, 50));
    let reply = submit(&mut engine, &greedy(tokens(1, 30), Named::Nothing, 50));
    let mut bad = two_replies(id, Objective::Reply);
    bad.learning_rate = Some(1e300);
    let job = engine.submit(Job::Learn(bad)).unwrap();
    let mut answers = Answers::default();
    answers.finish(&mut engine);
    assert!(answers.replies[&job].error.is_some());
    assert_eq!(answers.replies[&reply], expected);
    assert_eq!((values(&engine, id), engine.live_adapter(id).unwrap().2), (before, 0));
    taught(&mut engine, &two_replies(id, Objective::Reply));
    assert_no_leak(&mut engine);
}

#[test]
fn replies_pass_between_the_slices_of_a_lesson() {
    let mut engine = engine(tiny("llama"), usual());
    let id = live(&mut engine, "llama");
    let reply: JobId = submit(&mut engine, &greedy(tokens(1, 30), Named::Nothing, 200));
    let lesson = engine.submit(Job::Learn(two_replies(id, Objective::Reply))).unwrap();
    let mut answers = Answers::default();
    while answers.replies.get(&reply).is_none_or(|reply| reply.finish.is_none()) {
        answers.step(&mut engine);
    }
    // Every step takes a second, whatever it does: about a tenth of them learn.
    let learnt = answers.steps - 200;
    assert!((10..=40).contains(&learnt), "{learnt} of {} steps", answers.steps);
    answers.finish(&mut engine);
    assert_eq!(answers.lessons[&lesson].len(), 4);
}
