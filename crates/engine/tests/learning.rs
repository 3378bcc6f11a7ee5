//! Learning against the meaning of its graph, and what it refuses without changing anything.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use apprentice_engine::{Engine, EngineError, LearnerOptions, Named, Span};
use apprentice_graph::Element;
use apprentice_models::Pair;
use common::{
    Setup, adapter, all_logits, engine, learning_bits, meaning, next_tokens, spans, tiny, tokens, usual,
};

/// Gradients of two `reply` spans, and their loss.
fn reply_gradients(engine: &mut Engine, name: &str) -> (f64, Vec<Pair>) {
    let tokens = tokens(5, 300);
    let labels = next_tokens(&tokens);
    let (sequence, _) = all_logits(engine, &tokens, Named::Nothing);
    let adapter = adapter(engine.model(), name);
    let mut learner = engine.start_learner(&adapter, LearnerOptions::default()).unwrap();
    let spans = spans(sequence, &tokens, &labels, common::SPANS);
    let gradients = engine.gradients(&mut learner, &spans).unwrap();
    (gradients.loss, engine.read_gradients(&learner).unwrap())
}

fn relative(found: &[f32], expected: &[f32]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let difference = squares(&mut found.iter().zip(expected).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let size = squares(&mut expected.iter().map(|v| f64::from(*v)));
    assert!(size > 0.0, "a reference of zeros compares nothing");
    (difference / size).sqrt()
}

#[test]
fn reply_gradients_are_those_of_the_meaning() {
    check_reply_gradients(Element::F32, 1e-5, 1e-4);
}

#[test]
fn over_pages_of_eight_bits_too() {
    // A key or value that differs in its last bit may fall to the next level.
    check_reply_gradients(Element::Q8_0, 1e-4, 1e-3);
}

fn check_reply_gradients(cache: Element, loss_bound: f64, bound: f64) {
    for name in common::INSTANCES {
        let (expected_loss, expected) = reply_gradients(&mut meaning(tiny(name), cache), name);
        let setup = Setup { cache, ..usual() };
        let (loss, found) = reply_gradients(&mut engine(tiny(name), setup), name);
        assert!((loss - expected_loss).abs() < loss_bound, "{name}: loss {loss}, meaning {expected_loss}");
        for (found, expected) in found.iter().zip(&expected) {
            for (found, expected) in [(&found.a, &expected.a), (&found.b, &expected.b)] {
                let error = relative(found, expected);
                assert!(error < bound, "{name}: gradient off by {error}");
            }
        }
    }
}

#[test]
fn a_span_from_position_zero_is_the_whole_graph() {
    let tokens = tokens(6, 150);
    let labels = next_tokens(&tokens);
    let mut engine = engine(tiny("qwen3"), usual());
    let adapter = adapter(engine.model(), "qwen3");
    let (sequence, _) = all_logits(&mut engine, &tokens, Named::Nothing);
    let span = |context| Span { context, first_position: 0, tokens: &tokens, labels: &labels, weights: None };
    let alone = learning_bits(&mut engine, &adapter, &[span(None)]);
    assert!(learning_bits(&mut engine, &adapter, &[span(Some(sequence))]) == alone);
}

#[test]
fn losses_fall() {
    let tokens = tokens(7, 60);
    let labels = next_tokens(&tokens);
    let mut engine = engine(tiny("llama"), usual());
    let adapter = adapter(engine.model(), "llama");
    let span = Span { context: None, first_position: 0, tokens: &tokens, labels: &labels, weights: None };
    let options = LearnerOptions { learning_rate: 1e-2, ..LearnerOptions::default() };
    let mut learner = engine.start_learner(&adapter, options).unwrap();
    let losses: Vec<f64> = (0..20).map(|_| engine.learn(&mut learner, &[span]).unwrap().loss).collect();
    assert!(losses[19] < 0.7 * losses[0], "{losses:?}");
    assert_eq!(learner.steps(), 20);
}

#[test]
fn row_weights_are_weights_of_the_loss() {
    let tokens = tokens(8, 40);
    let labels = next_tokens(&tokens);
    let mut engine = engine(tiny("qwen2"), usual());
    let adapter = adapter(engine.model(), "qwen2");
    let mut learner = engine.start_learner(&adapter, LearnerOptions::default()).unwrap();
    let mut loss = |weights: Option<&[f32]>| {
        let span = Span { context: None, first_position: 0, tokens: &tokens, labels: &labels, weights };
        engine.gradients(&mut learner, &[span]).unwrap().loss
    };
    let plain = loss(None);
    let double = vec![2.0; tokens.len()];
    assert!((loss(Some(&double)) - 2.0 * plain).abs() < 1e-9 * plain);
    let zero = vec![0.0; tokens.len()];
    assert_eq!(loss(Some(&zero)), 0.0, "rows of weight zero count in the denominator only");
}

/// A refused call names its reason and leaves the learner as it was, the gradients that it holds included.
fn refuses(spans: &[Span<'_>], message: &str) {
    let mut engine = engine(tiny("llama"), usual());
    let adapter = adapter(engine.model(), "llama");
    let mut learner = engine.start_learner(&adapter, LearnerOptions::default()).unwrap();
    let sound = Span { context: None, first_position: 0, tokens: &[1, 2], labels: &[2, 3], weights: None };
    engine.gradients(&mut learner, &[sound]).unwrap();
    let error = engine.learn(&mut learner, spans).unwrap_err();
    assert_eq!(error.to_string(), message);
    assert_eq!(learner.steps(), 0);
    assert_eq!(engine.learnt(&learner).unwrap(), adapter);
    engine.update(&mut learner).unwrap();
    assert_ne!(engine.learnt(&learner).unwrap(), adapter);
}

#[test]
fn a_step_that_would_not_be_finite_is_not_taken() {
    for learning_rate in [1e300, 1e38] {
        let mut engine = engine(tiny("llama"), usual());
        let adapter = adapter(engine.model(), "llama");
        let options = LearnerOptions { learning_rate, weight_decay: 1e6, ..LearnerOptions::default() };
        let mut learner = engine.start_learner(&adapter, options).unwrap();
        let span = Span { context: None, first_position: 0, tokens: &[1, 2], labels: &[2, 3], weights: None };
        let error = engine.learn(&mut learner, &[span]).unwrap_err();
        assert!(matches!(error, EngineError::Setting { .. } | EngineError::NotFinite { .. }), "{error}");
        assert_eq!(engine.learnt(&learner).unwrap(), adapter);
        assert_eq!(learner.steps(), 0);
    }
}

#[test]
fn spans_that_do_not_fit_are_refused() {
    let (tokens, labels) = (tokens(9, 8), vec![1; 8]);
    let span = Span { context: None, first_position: 0, tokens: &tokens, labels: &labels, weights: None };
    refuses(&[], "spans: nothing is given");
    refuses(&[Span { labels: &[-1; 8], ..span }], "labels: nothing is given");
    refuses(&[Span { labels: &labels[..7], ..span }], "labels: expected 8 as tokens has, found 7");
    refuses(&[Span { labels: &[128; 8], ..span }], "token 128 at index 0: the vocabulary has 128");
    refuses(&[Span { labels: &[-2; 8], ..span }], "token -2 at index 0: the vocabulary has 128");
    refuses(&[Span { tokens: &[500; 8], ..span }], "token 500 at index 0: the vocabulary has 128");
    let far = Span { first_position: 64, ..span };
    refuses(&[far], "span at position 64: its context is not in the sequence's pages");
    refuses(
        &[Span { weights: Some(&[f32::NAN; 8]), ..span }],
        "weight of row 0: not finite; nothing was updated",
    );
    let long = vec![1u32; 400];
    let of_long = vec![1i32; 400];
    refuses(&[Span { tokens: &long, labels: &of_long, ..span }], "400 positions: the context has 320");
}

#[test]
fn what_is_not_finite_stops_before_the_update() {
    let tokens = tokens(9, 8);
    let labels = next_tokens(&tokens);
    let mut engine = engine(tiny("llama"), usual());
    let mut adapter = adapter(engine.model(), "llama");
    adapter.pairs[3].b[5] = f32::MAX; // finite, and its products are not
    let mut learner = engine.start_learner(&adapter, LearnerOptions::default()).unwrap();
    let span = Span { context: None, first_position: 0, tokens: &tokens, labels: &labels, weights: None };
    let error = engine.learn(&mut learner, &[span]).unwrap_err();
    assert!(matches!(error, EngineError::NotFinite { .. }), "{error}");
    assert_eq!(learner.steps(), 0);
    assert_eq!(engine.learnt(&learner).unwrap(), adapter);
    assert!(
        matches!(engine.update(&mut learner), Err(EngineError::Empty { .. })),
        "there is nothing to update with"
    );
}
