//! Everything at once, at random: each job answers what it answers alone, no page is lost, and few programs are compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use apprentice_engine::{Engine, Generate, Job, JobId, LearnerOptions, Named};
use apprentice_models::Adapter;
use apprentice_testkit::random::Random;

use crate::common::{self, Setup, adapter, engine, tiny, tokens, usual};
use crate::shared::{Answers, Reply, alone, assert_no_leak, greedy, lesson, model, sampled, sized, submit};

fn scaled(base: &Adapter, factor: f32) -> Arc<Adapter> {
    let mut adapter = base.clone();
    adapter.pairs.iter_mut().for_each(|pair| pair.scale *= factor);
    Arc::new(adapter)
}

/// A job of any kind; prompts have beginnings in common.
fn any(random: &mut Random, names: &[apprentice_engine::AdapterId]) -> Generate {
    let mut prompt = tokens(random.below(3) as u32, random.below(200));
    prompt.extend(tokens(random.bits() as u32, 1 + random.below(40)));
    let named = match random.below(2) {
        0 => Named::Nothing,
        _ => Named::From(random.below(prompt.len() + 4), *random.choose(names)),
    };
    let limit = random.below(25);
    let job = match random.below(2) {
        0 => sampled(prompt, named, limit, random.bits()),
        _ => greedy(prompt, named, limit),
    };
    let logprobs = *random.choose(&[None, Some(2)]);
    Generate { logprobs, ..job }
}

fn everything_at_random(name: &str, setup: Setup, seed: u64) {
    let mut random = Random::new(seed);
    // Little room: 15 pages, so that jobs wait and pages are given up.
    let mut engine = sized(model(name), setup, 320, 3);
    let mut plain = common::engine(model(name), setup);
    let base = adapter(engine.model(), name);
    let load = |engine: &mut Engine| {
        [1.0, 2.0, 0.5].map(|factor| engine.load_adapter(scaled(&base, factor)).unwrap())
    };
    let names = load(&mut engine);
    assert_eq!(load(&mut plain), names);
    let live = engine.live(scaled(&base, 1.5), LearnerOptions::teaching()).unwrap();
    let mut answers = Answers::default();
    let mut jobs: BTreeMap<JobId, Generate> = BTreeMap::new();
    let mut cancelled = Vec::new();
    for _ in 0..60 {
        match random.below(8) {
            0..=3 => {
                let job = any(&mut random, &names);
                jobs.insert(submit(&mut engine, &job), job);
            }
            4 => {
                let lesson = lesson(live, tokens(random.below(3) as u32, 120), 80..110, 1);
                engine.submit(Job::Learn(lesson)).unwrap();
            }
            5 if !jobs.is_empty() => {
                let ids: Vec<JobId> = jobs.keys().copied().collect();
                let id = *random.choose(&ids);
                if engine.cancel(id) {
                    cancelled.push(id);
                }
            }
            _ => (0..random.below(12)).for_each(|_| answers.step(&mut engine)),
        }
    }
    answers.finish(&mut engine);
    for (id, job) in &jobs {
        let expected = alone(&mut plain, job);
        let found = answers.replies.get(id).cloned().unwrap_or_default();
        if cancelled.contains(id) {
            assert!(
                expected.tokens.starts_with(&found.tokens),
                "seed {seed}: {id:?} before it was cancelled"
            );
            assert_eq!(found.finish, None, "seed {seed}: {id:?} ends after it was cancelled");
        } else {
            assert_eq!(found, expected, "seed {seed}: {id:?}");
        }
    }
    assert_no_leak(&mut engine);
}

#[test]
fn jobs_at_random_are_each_alone() {
    for seed in 0..6 {
        for name in ["llama", "gemma3"] {
            everything_at_random(name, usual(), seed);
        }
        everything_at_random("q8_0", common::rounded(), seed);
    }
}

#[test]
fn a_job_cancelled_at_any_step_leaves_its_neighbours_alone() {
    let mut engine = engine(tiny("gemma3"), usual());
    let stays = greedy(tokens(1, 90), Named::Nothing, 12);
    let leaves = greedy(tokens(1, 130), Named::Nothing, 12);
    let expected = alone(&mut engine, &stays);
    for steps in 0..16 {
        engine.forget_cached();
        let ids = [&leaves, &stays].map(|job| submit(&mut engine, job));
        let mut answers = Answers::default();
        for _ in 0..steps {
            answers.step(&mut engine);
        }
        let before = answers.replies.get(&ids[0]).cloned().unwrap_or_default();
        let ended = before.finish.is_some();
        assert_eq!(engine.cancel(ids[0]), !ended, "step {steps}");
        answers.finish(&mut engine);
        assert_eq!(answers.replies[&ids[1]], expected, "cancelled after {steps} steps");
        let after = answers.replies.get(&ids[0]).cloned().unwrap_or_default();
        assert_eq!(after, before, "an event follows a cancellation");
        assert_no_leak(&mut engine);
    }
}

#[test]
fn a_thousand_ragged_batches_compile_few_programs() {
    let mut engine = sized(tiny("qwen2"), usual(), 320, 16);
    let mut random = Random::new(11);
    let base = adapter(engine.model(), "qwen2");
    let mut names = Vec::new();
    let mut answers = Answers::default();
    while answers.steps < 1000 {
        // Nine adapters, then more: the bank begins without any and grows twice.
        if answers.steps > 100 * names.len() {
            names.push(engine.load_adapter(scaled(&base, names.len() as f32 + 1.0)).unwrap());
        }
        for _ in 0..random.below(3) {
            let job = match names.as_slice() {
                [] => greedy(
                    tokens(random.bits() as u32, 1 + random.below(100)),
                    Named::Nothing,
                    random.below(9),
                ),
                names => any(&mut random, names),
            };
            let logprobs = *random.choose(&[None, Some(2)]);
            submit(&mut engine, &Generate { logprobs, ..job });
        }
        answers.step(&mut engine);
    }
    answers.finish(&mut engine);
    let failed = answers.replies.values().filter(|reply: &&Reply| reply.error.is_some()).count();
    let compiled = engine.stats().compiled;
    assert_eq!(failed, 0);
    assert!(answers.replies.len() > 500 && names.len() > 8, "{} jobs", answers.replies.len());
    assert!(compiled <= 12, "{compiled} programs");
    assert_no_leak(&mut engine);
}
