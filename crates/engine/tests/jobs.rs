//! Jobs: replies beside each other are those of each alone, and pages are shared without changing a byte.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use apprentice_engine::{
    Engine, Event, Finish, Generate, Job, JobId, LearnerOptions, Lesson, Logprobs, Named, Objective, Sampling,
};
use common::{adapter, engine, tiny, tokens, usual};

/// A reply as it came: tokens with their log probabilities, why it ended, and how much of its prompt was found.
#[derive(Clone, Debug, Default, PartialEq)]
struct Reply {
    tokens: Vec<u32>,
    logprobs: Vec<Option<Logprobs>>,
    finish: Option<Finish>,
    cached: usize,
}

fn greedy(prompt: Vec<u32>, named: Named, limit: usize) -> Generate {
    let sampling = Sampling::greedy();
    Generate { prompt, named, limit, sampling, logprobs: Some(3), ends: Arc::default() }
}

/// Steps until nothing is left; the replies of `jobs` in their order.
fn finish(engine: &mut Engine, jobs: &[JobId]) -> Vec<Reply> {
    let mut replies = vec![Reply::default(); jobs.len()];
    for _ in 0..10_000 {
        if engine.idle() {
            return replies;
        }
        for event in engine.step(Duration::ZERO) {
            let Some(reply) = jobs.iter().position(|job| *job == event.job()).map(|at| &mut replies[at])
            else {
                continue;
            };
            match event {
                Event::Started { cached, .. } => reply.cached = cached,
                Event::Token { token, logprobs, .. } => {
                    reply.tokens.push(token);
                    reply.logprobs.push(logprobs);
                }
                Event::Finished { reason, .. } => reply.finish = Some(reason),
                Event::Failed { error, .. } => panic!("{error}"),
                Event::Stepped { .. } | Event::Learnt { .. } => {}
            }
        }
    }
    panic!("the engine does not come to an end");
}

fn one(engine: &mut Engine, generate: Generate) -> Reply {
    let job = engine.submit(Job::Generate(generate)).unwrap();
    finish(engine, &[job]).remove(0)
}

#[test]
fn a_job_is_the_reply_of_a_sequence() {
    for name in common::INSTANCES {
        let mut engine = engine(tiny(name), usual());
        let prompt = tokens(3, 90);
        let sequence = engine.open_sequence();
        let sampling = Sampling::greedy();
        let expected =
            engine.generate(sequence, &prompt, Named::Nothing, 40, &sampling, |_| false, |_| true).unwrap();
        let reply = one(&mut engine, greedy(prompt, Named::Nothing, 40));
        assert_eq!(reply.tokens, expected, "{name}");
        assert_eq!((reply.finish, reply.cached), (Some(Finish::Length), 0), "{name}");
    }
}

#[test]
fn a_warm_prefix_gives_the_bytes_of_a_cold_one() {
    for name in common::INSTANCES {
        for (shared, found) in [(200, 199), (100, 100), (64, 64), (30, 30), (128, 128)] {
            let mut engine = engine(tiny(name), usual());
            let first = tokens(3, 200);
            let mut second = first[..shared].to_vec();
            second.extend(tokens(9, 200 - shared));
            let cold = one(&mut engine, greedy(second.clone(), Named::Nothing, 20));
            assert_eq!(cold.cached, 0);
            engine.forget_cached();
            one(&mut engine, greedy(first, Named::Nothing, 20));
            let warm = one(&mut engine, greedy(second, Named::Nothing, 20));
            assert!(warm.cached >= found && warm.cached < 200, "{name}: {} found of {found}", warm.cached);
            assert_eq!(Reply { cached: 0, ..warm }, cold, "{name}: shared {shared}");
        }
    }
}

#[test]
fn many_jobs_are_each_alone() {
    let mut engine = engine(tiny("gemma3"), usual());
    let id = engine.load_adapter(Arc::new(adapter(engine.model(), "gemma3"))).unwrap();
    let jobs: Vec<Generate> = (0..20usize)
        .map(|index| {
            let named = if index.is_multiple_of(3) { Named::From(index, id) } else { Named::Nothing };
            let sampling = Sampling { temperature: 1.0, seed: index as u64, ..Sampling::greedy() };
            let mut job = greedy(tokens(index as u32 / 2, 10 + 9 * index), named, 5 + index % 7);
            if index.is_multiple_of(2) {
                job.sampling = sampling;
            }
            job
        })
        .collect();
    let mut alone = Vec::new();
    for job in &jobs {
        engine.forget_cached();
        alone.push(Reply { cached: 0, ..one(&mut engine, job.clone()) });
    }
    engine.forget_cached();
    let ids: Vec<JobId> = jobs.iter().map(|job| engine.submit(Job::Generate(job.clone())).unwrap()).collect();
    for (index, reply) in finish(&mut engine, &ids).into_iter().enumerate() {
        assert_eq!(Reply { cached: 0, ..reply }, alone[index], "job {index}");
    }
    engine.forget_cached();
    assert_eq!(engine.stats().pages_used + engine.stats().pages_cached, 0);
}

#[test]
fn a_lesson_between_replies() {
    let mut engine = engine(tiny("llama"), usual());
    let live = engine.live(Arc::new(adapter(engine.model(), "llama")), LearnerOptions::teaching()).unwrap();
    let (first, _, generation) = engine.live_adapter(live).unwrap();
    assert_eq!(generation, 0);
    let talk = tokens(5, 150);
    let job = greedy(talk[..100].to_vec(), Named::From(99, first), 30);
    let alone = one(&mut engine, job.clone());
    let lesson = Lesson {
        adapter: live,
        tokens: talk.clone(),
        replies: vec![100..150],
        objective: Objective::Reply,
        steps: 3,
        learning_rate: Some(1e-2),
    };
    let reply = engine.submit(Job::Generate(job)).unwrap();
    let lesson = engine.submit(Job::Learn(lesson)).unwrap();
    let mut learnt = None;
    let mut tokens = Vec::new();
    while !engine.idle() {
        for event in engine.step(Duration::ZERO) {
            match event {
                Event::Learnt { job, loss_before, loss_after, labelled, generation, .. } => {
                    assert_eq!((job, labelled, generation), (lesson, 50, 1));
                    assert!(loss_after < loss_before, "{loss_before} {loss_after}");
                    learnt = Some(loss_after);
                }
                Event::Token { job, token, .. } if job == reply => tokens.push(token),
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }
    assert_eq!(tokens, alone.tokens);
    assert!(learnt.is_some());
}
