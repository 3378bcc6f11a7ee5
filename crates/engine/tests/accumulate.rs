//! A step in one graph or in several, one optimiser or one that was taken apart and put together again: the same bytes.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::ops::Range;

use apprentice_engine::{Engine, EngineError, Learner, LearnerOptions, MicroBatch, Named, Span};
use apprentice_graph::Element;
use apprentice_models::Pair;
use common::{Setup, adapter, all_logits, engine, next_tokens, spans, tiny, tokens, usual};

/// Two conversations and what is learnt from them: two spans that begin inside a block over the pages of the first, the
/// second of them with three blocks, and the whole of the second, three blocks too.
struct Lesson {
    tokens: [Vec<u32>; 2],
    labels: [Vec<i32>; 2],
}

impl Lesson {
    fn new() -> Lesson {
        let tokens = [tokens(21, 300), tokens(22, 170)];
        let labels = [next_tokens(&tokens[0]), next_tokens(&tokens[1])];
        Lesson { tokens, labels }
    }

    fn spans(&self, engine: &mut Engine) -> Vec<Span<'_>> {
        let (context, _) = all_logits(engine, &self.tokens[0], Named::Nothing);
        let mut all = spans(context, &self.tokens[0], &self.labels[0], common::SPANS).to_vec();
        let (tokens, labels) = (&self.tokens[1], &self.labels[1]);
        all.push(Span { context: None, first_position: 0, tokens, labels, weights: None });
        all
    }
}

fn start(engine: &mut Engine, name: &str) -> Learner {
    let adapter = adapter(engine.model(), name);
    engine.start_learner(&adapter, LearnerOptions::default()).unwrap()
}

fn pair_bits(pairs: &[Pair]) -> Vec<u64> {
    let bits = pairs.iter().flat_map(|pair| {
        assert!(pair.a.iter().any(|value| *value != 0.0), "a matrix that is all zero compares nothing");
        pair.a.iter().chain(&pair.b).map(|value| u64::from(value.to_bits()))
    });
    bits.collect()
}

/// Loss, norm, gradients and the next adapter of a step whose spans come in these cuts.
fn step_bits(
    engine: &mut Engine,
    learner: &mut Learner,
    spans: &[Span<'_>],
    cuts: &[Range<usize>],
) -> Vec<u64> {
    let labelled = spans.iter().map(Span::labelled).sum();
    engine.begin(learner, labelled).unwrap();
    let mut found = None;
    for cut in cuts {
        found = Some(engine.accumulate(learner, &spans[cut.clone()]).unwrap());
    }
    let found = found.unwrap();
    assert_eq!(found.labelled, labelled);
    let mut all = vec![found.loss.to_bits(), found.norm.to_bits()];
    all.extend(pair_bits(&engine.read_gradients(learner).unwrap()));
    engine.update(learner).unwrap();
    all.extend(pair_bits(&engine.learnt(learner).unwrap().pairs));
    all
}

/// Two steps, so that the second begins with what the first left behind.
fn two_steps(engine: &mut Engine, name: &str, spans: &[Span<'_>], cuts: &[Range<usize>]) -> Vec<u64> {
    let mut learner = start(engine, name);
    let mut all = step_bits(engine, &mut learner, spans, cuts);
    all.extend(step_bits(engine, &mut learner, spans, cuts));
    engine.end_learner(learner);
    all
}

/// All three spans in one cut.
const WHOLE: Range<usize> = 0..3;

fn check_cuts(name: &str, setup: Setup) {
    let lesson = Lesson::new();
    let mut engine = engine(tiny(name), setup);
    let spans = lesson.spans(&mut engine);
    let whole = two_steps(&mut engine, name, &spans, &[WHOLE]);
    for cuts in [vec![0..1, 1..2, 2..3], vec![0..2, 2..3], vec![0..1, 1..3]] {
        assert!(two_steps(&mut engine, name, &spans, &cuts) == whole, "{name} {cuts:?} {setup:?}");
    }
    let mut learner = start(&mut engine, name);
    let found = engine.gradients(&mut learner, &spans).unwrap();
    assert_eq!(whole[..2], [found.loss.to_bits(), found.norm.to_bits()]);
    engine.end_learner(learner);
}

#[test]
fn cuts_between_spans_change_no_byte() {
    for name in common::INSTANCES {
        check_cuts(name, usual());
    }
    check_cuts("qwen3", Setup { cache: Element::F32, threads: 3, ..usual() });
    for setup in common::others(usual()) {
        check_cuts("llama", setup);
    }
}

#[test]
fn the_order_of_spans_is_an_order_of_additions() {
    let lesson = Lesson::new();
    let mut engine = engine(tiny("llama"), usual());
    let spans = lesson.spans(&mut engine);
    let whole = two_steps(&mut engine, "llama", &spans, &[WHOLE]);
    let turned: Vec<Span<'_>> = spans.iter().rev().copied().collect();
    assert!(two_steps(&mut engine, "llama", &turned, &[WHOLE]) != whole, "the comparison sees roundings");
}

#[test]
fn a_step_beyond_one_graph_is_cut_by_itself() {
    // 40 sequences of 150 rows: more than the 4,096 of one graph.
    let (tokens, count) = (tokens(23, 150), 40);
    let labels = next_tokens(&tokens);
    let span = Span { context: None, first_position: 0, tokens: &tokens, labels: &labels, weights: None };
    let spans = vec![span; count];
    let mut engine = engine(tiny("llama"), usual());
    let all = engine.micro_batches(&spans, MicroBatch::default());
    assert_eq!(all, [0..27, 27..40]);
    let hundred = MicroBatch { rows: 400, ..MicroBatch::default() };
    let small = engine.micro_batches(&spans, hundred);
    assert_eq!(small.len(), 20);
    let mut learner = start(&mut engine, "llama");
    let whole = step_bits(&mut engine, &mut learner, &spans, std::slice::from_ref(&(0..count)));
    let mut learner = start(&mut engine, "llama");
    assert!(step_bits(&mut engine, &mut learner, &spans, &small) == whole);
}

#[test]
fn losses_are_those_of_the_gradients_and_disturb_no_sums() {
    let lesson = Lesson::new();
    let mut engine = engine(tiny("gemma3"), usual());
    let spans = lesson.spans(&mut engine);
    let mut learner = start(&mut engine, "gemma3");
    let plain = engine.gradients(&mut learner, &spans).unwrap();
    let before = pair_bits(&engine.read_gradients(&learner).unwrap());
    let losses = engine.losses(&mut learner, &spans).unwrap();
    assert_eq!((losses.sum / losses.labelled as f64).to_bits(), plain.loss.to_bits());
    assert_eq!(losses.labelled, plain.labelled);
    assert!(pair_bits(&engine.read_gradients(&learner).unwrap()) == before);
    engine.update(&mut learner).unwrap();
    let after = engine.losses(&mut learner, &spans).unwrap();
    assert!(after.sum < losses.sum, "{} {}", after.sum, losses.sum);
}

#[test]
fn spans_of_several_sizes_share_programs() {
    let tokens = tokens(24, 300);
    let labels = next_tokens(&tokens);
    let mut engine = engine(tiny("llama"), usual());
    let mut learner = start(&mut engine, "llama");
    for rows in [290, 20, 100, 200, 3, 290] {
        let (tokens, labels) = (&tokens[..rows], &labels[..rows]);
        engine
            .learn(&mut learner, &[Span { context: None, first_position: 0, tokens, labels, weights: None }])
            .unwrap();
    }
    assert_eq!(learner.compiled(), 2, "one for gradients, one for updates");
}

#[test]
fn a_learner_goes_on_from_its_state() {
    let lesson = Lesson::new();
    let mut engine = engine(tiny("qwen2"), usual());
    let spans = lesson.spans(&mut engine);
    let mut learner = start(&mut engine, "qwen2");
    for _ in 0..2 {
        engine.learn(&mut learner, &spans).unwrap();
    }
    let state = engine.learner_state(&learner).unwrap();
    let cuts = std::slice::from_ref(&(0..3));
    let expected = step_bits(&mut engine, &mut learner, &spans, cuts);
    assert_eq!(learner.steps(), 3);
    engine.restore_learner(&mut learner, &state).unwrap();
    assert_eq!(learner.steps(), 2);
    assert!(step_bits(&mut engine, &mut learner, &spans, cuts) == expected, "the same learner, put back");
    let mut other = start(&mut engine, "qwen2");
    engine.restore_learner(&mut other, &state).unwrap();
    assert!(step_bits(&mut engine, &mut other, &spans, cuts) == expected, "another learner");
}

#[test]
fn states_that_do_not_fit_are_refused() {
    let mut engine = engine(tiny("llama"), usual());
    let mut learner = start(&mut engine, "llama");
    let state = engine.learner_state(&learner).unwrap();
    let mut short = state.clone();
    short.matrices[1].moment.pop();
    let mut renamed = state.clone();
    renamed.matrices[1].name = "other".to_owned();
    let mut fewer = state.clone();
    fewer.matrices.pop();
    let mut infinite = state.clone();
    infinite.matrices[2].square[0] = f32::INFINITY;
    let mut powers = state.clone();
    powers.powers.0 = f64::NAN;
    for wrong in [short, renamed, fewer, infinite, powers] {
        assert!(engine.restore_learner(&mut learner, &wrong).is_err());
        assert!(engine.learner_state(&learner).unwrap() == state, "nothing has changed");
    }
}

#[test]
fn a_step_is_complete_or_not_taken() {
    let (tokens, labels) = (tokens(25, 8), vec![1; 8]);
    let span = Span { context: None, first_position: 0, tokens: &tokens, labels: &labels, weights: None };
    let unlabelled = Span { labels: &[-1; 8], ..span };
    let mut engine = engine(tiny("llama"), usual());
    let mut learner = start(&mut engine, "llama");
    let message = |result: Result<(), EngineError>| result.unwrap_err().to_string();
    assert_eq!(message(engine.begin(&mut learner, 0)), "labels: nothing is given");
    assert_eq!(
        message(engine.accumulate(&mut learner, &[span]).map(drop)),
        "step to learn in: nothing is given"
    );
    engine.begin(&mut learner, 16).unwrap();
    assert_eq!(message(engine.update(&mut learner)), "gradients: nothing is given");
    engine.accumulate(&mut learner, &[span, unlabelled]).unwrap();
    assert_eq!(message(engine.update(&mut learner)), "labelled rows: expected 16 as the step has, found 8");
    assert_eq!(
        message(engine.accumulate(&mut learner, &[span, span]).map(drop)),
        "labelled rows: expected 16 as the step has, found 24"
    );
    engine.accumulate(&mut learner, &[span]).unwrap();
    engine.update_at(&mut learner, 1e-3).unwrap();
    assert_eq!(message(engine.update(&mut learner)), "gradients: nothing is given");
    assert_eq!(learner.steps(), 1);
}

#[test]
fn a_step_at_a_rate_is_that_of_a_learner_with_the_rate() {
    let (tokens, labels) = (tokens(26, 8), vec![1; 8]);
    let span = Span { context: None, first_position: 0, tokens: &tokens, labels: &labels, weights: None };
    let mut engine = engine(tiny("llama"), usual());
    let bits = |engine: &mut Engine, learner: &mut Learner, rate| {
        engine.gradients(learner, &[span]).unwrap();
        match rate {
            Some(rate) => engine.update_at(learner, rate).unwrap(),
            None => engine.update(learner).unwrap(),
        }
        pair_bits(&engine.learnt(learner).unwrap().pairs)
    };
    let mut learner = start(&mut engine, "llama");
    let at = bits(&mut engine, &mut learner, Some(5e-4));
    let mut learner = start(&mut engine, "llama");
    learner.set_learning_rate(5e-4);
    assert!(bits(&mut engine, &mut learner, None) == at);
    let mut learner = start(&mut engine, "llama");
    assert!(bits(&mut engine, &mut learner, None) != at);
}
