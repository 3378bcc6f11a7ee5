//! Replies: those of a sequence, cold and warm, alone and among others.

use std::sync::Arc;

use apprentice_engine::{Finish, Generate, Job, JobId, Named, Sampling};

use crate::common::{self, Setup, adapter, engine, tiny, tokens, usual};
use crate::shared::{Answers, alone, assert_no_leak, greedy, model, sampled, sized, submit, warm};

#[test]
fn a_job_is_the_reply_of_a_sequence() {
    for name in common::INSTANCES {
        let mut engine = engine(tiny(name), usual());
        let prompt = tokens(3, 90);
        let sequence = engine.open_sequence();
        let sampling = Sampling::greedy();
        let expected =
            engine.generate(sequence, &prompt, Named::Nothing, 40, &sampling, |_| false, |_| true).unwrap();
        engine.close_sequence(sequence).unwrap();
        let reply = alone(&mut engine, &greedy(prompt, Named::Nothing, 40));
        assert_eq!((reply.tokens, reply.finish), (expected, Some(Finish::Length)), "{name}");
        assert_no_leak(&mut engine);
    }
}

#[test]
fn plain_greedy_takes_the_same_tokens_with_and_without_logits() {
    let mut engine = engine(tiny("qwen3"), usual());
    for seed in 0..4 {
        let with = greedy(tokens(seed, 40), Named::Nothing, 40);
        let without = Generate { logprobs: None, ..with.clone() };
        assert_eq!(alone(&mut engine, &without).tokens, alone(&mut engine, &with).tokens);
    }
}

#[test]
fn a_warm_prefix_gives_the_bytes_of_a_cold_one() {
    for name in common::INSTANCES {
        let mut engine = engine(tiny(name), usual());
        let first = tokens(3, 200);
        for shared in [200, 100, 64, 30, 128] {
            let mut second = first[..shared].to_vec();
            second.extend(tokens(9, 200 - shared));
            let second = greedy(second, Named::Nothing, 20);
            let cold = alone(&mut engine, &second);
            engine.forget_cached();
            warm(&mut engine, &greedy(first.clone(), Named::Nothing, 20));
            let (reply, cached) = warm(&mut engine, &second);
            // At least what is shared, but the last token of a prompt is always computed.
            assert!(cached >= shared.min(199) && cached < 200, "{name}: {cached} found of {shared}");
            assert_eq!(reply, cold, "{name}: {shared} shared");
        }
        assert_no_leak(&mut engine);
    }
}

#[test]
fn rows_of_another_adapter_are_not_found() {
    let mut engine = engine(tiny("llama"), usual());
    let content = adapter(engine.model(), "llama");
    let first = engine.load_adapter(Arc::new(content.clone())).unwrap();
    let same = engine.load_adapter(Arc::new(content.clone())).unwrap();
    let mut other = content;
    other.pairs[0].scale *= 2.0;
    let other = engine.load_adapter(Arc::new(other)).unwrap();
    let prompt = tokens(4, 150);
    warm(&mut engine, &greedy(prompt.clone(), Named::From(100, first), 5));
    for (named, expected) in [
        (Named::From(100, first), 149),
        (Named::From(100, same), 149),
        (Named::From(100, other), 100),
        (Named::From(70, first), 70),
        (Named::Nothing, 100),
    ] {
        let job = greedy(prompt.clone(), named, 5);
        let (reply, cached) = warm(&mut engine, &job);
        assert!(cached >= expected, "{named:?}: {cached}");
        if expected < 149 {
            assert!(cached <= 100, "{named:?}: rows of another adapter were found: {cached}");
        }
        assert_eq!(reply, alone(&mut engine, &job), "{named:?}");
        engine.forget_cached();
        warm(&mut engine, &greedy(prompt.clone(), Named::From(100, first), 5));
    }
}

/// Jobs of all kinds; every third names an adapter, half share the beginnings of their prompts.
fn many(engine: &mut apprentice_engine::Engine, name: &str) -> Vec<Generate> {
    let id = engine.load_adapter(Arc::new(adapter(engine.model(), name))).unwrap();
    let job = |index: usize| {
        let named = if index.is_multiple_of(3) { Named::From(index, id) } else { Named::Nothing };
        let (prompt, limit) = (tokens(index as u32 / 2, 10 + 9 * index), 5 + index % 7);
        if index.is_multiple_of(2) {
            sampled(prompt, named, limit, index as u64)
        } else {
            greedy(prompt, named, limit)
        }
    };
    (0..20).map(job).collect()
}

#[test]
fn many_jobs_are_each_alone() {
    for (name, setup) in [("gemma3", usual()), ("q4_k", common::rounded())] {
        let mut engine = engine(model(name), setup);
        let jobs = many(&mut engine, name);
        let expected: Vec<_> = jobs.iter().map(|job| alone(&mut engine, job)).collect();
        for threads in [1, 2, 3, 8] {
            let mut engine = common::engine(model(name), Setup { threads, ..setup });
            let jobs = many(&mut engine, name);
            let ids: Vec<JobId> = jobs.iter().map(|job| submit(&mut engine, job)).collect();
            let mut answers = Answers::default();
            answers.finish(&mut engine);
            for (id, expected) in ids.iter().zip(&expected) {
                assert_eq!(answers.replies[id], *expected, "{id:?}, {threads} threads");
            }
            assert_no_leak(&mut engine);
        }
    }
}

#[test]
fn a_row_beside_a_few_hundred_others() {
    let mut engine = sized(tiny("llama"), usual(), 640, 6);
    let job = greedy(tokens(1, 12), Named::Nothing, 10);
    let expected = alone(&mut engine, &job);
    for others in [254, 255, 256, 511, 600] {
        engine.forget_cached();
        let id = submit(&mut engine, &job);
        let mut answers = Answers::default();
        for _ in 0..3 {
            answers.step(&mut engine);
        }
        submit(&mut engine, &greedy(tokens(others as u32, others), Named::Nothing, 3));
        answers.finish(&mut engine);
        assert_eq!(answers.replies[&id], expected, "{others} rows beside it");
    }
}

#[test]
fn replies_of_one_prompt_read_it_once() {
    let mut engine = engine(tiny("llama"), usual());
    let jobs: Vec<Generate> = (0..4).map(|seed| sampled(tokens(1, 200), Named::Nothing, 20, seed)).collect();
    let expected: Vec<_> = jobs.iter().map(|job| alone(&mut engine, job)).collect();
    engine.forget_cached();
    let before = engine.stats().prompted;
    let ids: Vec<JobId> = jobs.iter().map(|job| submit(&mut engine, job)).collect();
    let mut answers = Answers::default();
    answers.finish(&mut engine);
    for (id, expected) in ids.iter().zip(&expected) {
        assert_eq!(answers.replies[id], *expected);
    }
    assert_eq!(engine.stats().prompted - before, 200 + 3 * 8, "whole pages of the prompt are read once");
}

#[test]
fn few_pages_are_enough_for_many_jobs() {
    for name in ["llama", "gemma3"] {
        let mut large = engine(tiny(name), usual());
        // Five pages: two jobs of 150 positions at a time at most, and what others left is given up again and again.
        let mut small = sized(tiny(name), usual(), 320, 1);
        let jobs: Vec<Generate> = (0..12u32)
            .map(|index| greedy(tokens(index % 4, 100 + index as usize), Named::Nothing, 30))
            .collect();
        let ids: Vec<JobId> = jobs.iter().map(|job| submit(&mut small, job)).collect();
        let mut answers = Answers::default();
        answers.finish(&mut small);
        for (id, job) in ids.iter().zip(&jobs) {
            assert_eq!(answers.replies[id], alone(&mut large, job), "{name}: {id:?}");
        }
        assert_no_leak(&mut small);
    }
}

#[test]
fn a_window_returns_what_it_has_passed() {
    let mut engine = engine(tiny("gemma3"), usual());
    let windows: Vec<_> = engine.model().groups().iter().map(|group| group.window).collect();
    assert!(windows.contains(&None) && windows.iter().flatten().all(|window| *window <= 96), "{windows:?}");
    submit(&mut engine, &greedy(tokens(7, 300), Named::Nothing, 20));
    let mut answers = Answers::default();
    for _ in 0..5 {
        answers.step(&mut engine);
    }
    // Five pages where every position is seen, and in the other group what a window of 96 still reaches, not five.
    let held = engine.stats().pages_used;
    assert!((7..=8).contains(&held), "{held} pages are held");
    answers.finish(&mut engine);
    assert_no_leak(&mut engine);
}

#[test]
fn an_end_is_no_token_and_a_full_context_ends() {
    let mut engine = engine(tiny("llama"), usual());
    let job = greedy(tokens(3, 50), Named::Nothing, 30);
    let whole = alone(&mut engine, &job);
    let end = whole.tokens[10];
    let first = whole.tokens.iter().position(|token| *token == end).unwrap();
    let ended = alone(&mut engine, &Generate { ends: Arc::from([end]), ..job });
    assert_eq!((ended.tokens.as_slice(), ended.finish), (&whole.tokens[..first], Some(Finish::End)));
    let full = alone(&mut engine, &greedy(tokens(3, 310), Named::Nothing, 100));
    assert_eq!((full.tokens.len(), full.finish), (11, Some(Finish::Context)));
    let nothing = alone(&mut engine, &greedy(tokens(3, 70), Named::Nothing, 0));
    assert_eq!((nothing.tokens.len(), nothing.finish), (0, Some(Finish::Length)));
}

#[test]
fn a_row_that_is_not_finite_fails_alone() {
    let mut engine = engine(tiny("llama"), usual());
    let mut broken = adapter(engine.model(), "llama");
    broken.pairs[3].b.iter_mut().for_each(|value| *value = f32::MAX);
    broken.pairs[3].scale = f32::MAX;
    let broken = engine.load_adapter(Arc::new(broken)).unwrap();
    let good = greedy(tokens(1, 30), Named::Nothing, 12);
    let expected = alone(&mut engine, &good);
    for logprobs in [None, Some(2)] {
        let bad = Generate { logprobs, ..greedy(tokens(1, 40), Named::From(30, broken), 12) };
        for neighbour in [None, Some(2)] {
            engine.forget_cached();
            let ids = [&bad, &Generate { logprobs: neighbour, ..good.clone() }]
                .map(|job| engine.submit(Job::Generate(job.clone())).unwrap());
            let mut answers = Answers::default();
            answers.finish(&mut engine);
            let error = answers.replies[&ids[0]].error.clone();
            assert_eq!(error.as_deref(), Some("logits of output row 39: not finite"));
            assert_eq!(answers.replies[&ids[1]].tokens, expected.tokens);
        }
    }
    let sequence = engine.open_sequence();
    let list = tokens(1, 40);
    let named = Named::From(30, broken);
    let outputs = apprentice_engine::Outputs::Last;
    let run = apprentice_engine::Run { sequence, tokens: &list, named, outputs };
    assert_eq!(engine.greedy(&[run]).unwrap_err().to_string(), "logits of output row 0: not finite");
    assert!(engine.tokens(sequence).unwrap().is_empty());
}
