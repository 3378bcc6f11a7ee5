//! Sequences, pages and batches: what is refused, and that a refused call changes nothing.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::sync::Arc;

use apprentice_engine::{Named, Outputs, Run, Sampling};
use common::{adapter, all_logits, bits, engine, tiny, tokens, usual};

#[test]
fn refused_batches_leave_sequences_as_they_were() {
    let mut engine = engine(tiny("llama"), usual());
    let tokens = tokens(1, 100);
    let (sequence, _) = all_logits(&mut engine, &tokens, Named::Nothing);
    let other = engine.open_sequence();
    let id = engine.load_adapter(Arc::new(adapter(engine.model(), "llama"))).unwrap();
    engine.unload_adapter(id).unwrap();
    let run = |sequence, tokens| Run { sequence, tokens, named: Named::Nothing, outputs: Outputs::Last };
    let closed = engine.open_sequence();
    engine.close_sequence(closed).unwrap();
    let long = vec![1u32; 300];
    let cases: Vec<(Vec<Run<'_>>, &str)> = vec![
        (vec![], "tokens: nothing is given"),
        (vec![run(other, &[])], "tokens: nothing is given"),
        (vec![run(other, &[1]), run(other, &[2])], "sequence 2: stands twice in the batch"),
        (vec![run(closed, &[1])], "sequence 3: not open"),
        (vec![run(other, &[1, 128])], "token 128 at index 1: the vocabulary has 128"),
        (vec![run(other, &[7]), run(sequence, &long)], "400 positions: the context has 320"),
        (vec![Run { named: Named::From(0, id), ..run(other, &[1]) }], "adapter 1: not loaded"),
    ];
    for (runs, message) in cases {
        assert_eq!(engine.greedy(&runs).unwrap_err().to_string(), message);
        assert_eq!(engine.tokens(sequence).unwrap(), tokens);
        assert!(engine.tokens(other).unwrap().is_empty());
    }
    // Thirty pages, of which the first sequence holds two: five more sequences of a full context fit, a sixth does not.
    let full = vec![3u32; 320];
    engine.close_sequence(other).unwrap();
    for _ in 0..5 {
        let sequence = engine.open_sequence();
        engine.greedy(&[run(sequence, &full)]).unwrap();
    }
    let seventh = engine.open_sequence();
    let error = engine.greedy(&[run(seventh, &full)]).unwrap_err();
    assert_eq!(error.to_string(), "pages: 5, room for 3");
}

#[test]
fn a_truncated_sequence_goes_on_as_if_it_had_never_been_longer() {
    let mut engine = engine(tiny("gemma3"), usual());
    let tokens = tokens(2, 150);
    let (_, expected) = all_logits(&mut engine, &tokens[..100], Named::Nothing);
    let (sequence, _) = all_logits(&mut engine, &tokens, Named::Nothing);
    engine.truncate(sequence, 70).unwrap();
    let run = Run { sequence, tokens: &tokens[70..100], named: Named::Nothing, outputs: Outputs::All };
    let logits = bits(&engine.logits(&[run]).unwrap());
    assert!(logits == expected[70 * engine.model().hyper().vocab..]);
}

#[test]
fn greedy_decoding_follows_the_largest_logit() {
    let mut engine = engine(tiny("qwen2"), usual());
    let prompt = tokens(3, 20);
    let sequence = engine.open_sequence();
    let reply = engine
        .generate(sequence, &prompt, Named::Nothing, 30, &Sampling::greedy(), |_| false, |_| true)
        .unwrap();
    assert_eq!(reply.len(), 30);
    let all: Vec<u32> = prompt.iter().chain(&reply).copied().collect();
    let (_, logits) = all_logits(&mut engine, &all, Named::Nothing);
    let vocab = engine.model().hyper().vocab;
    for (index, token) in reply.iter().enumerate() {
        let row = &logits[(prompt.len() - 1 + index) * vocab..][..vocab];
        let largest = row.iter().map(|bits| f32::from_bits(*bits)).fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(f32::from_bits(row[*token as usize]), largest, "token {index}");
    }
}

#[test]
fn a_sampled_reply_is_the_same_among_neighbours() {
    let mut engine = engine(tiny("gemma3"), usual());
    let prompt = tokens(3, 20);
    let sampling = Sampling { temperature: 1.0, top_k: 40, top_p: 0.95, seed: 5, ..Sampling::greedy() };
    let mut sample = |sampling: &Sampling| {
        let sequence = engine.open_sequence();
        let reply =
            engine.generate(sequence, &prompt, Named::Nothing, 30, sampling, |_| false, |_| true).unwrap();
        engine.close_sequence(sequence).unwrap();
        reply
    };
    let alone = sample(&sampling);
    assert_ne!(alone, sample(&Sampling { seed: 6, ..sampling.clone() }), "another seed gives another reply");
    assert_ne!(alone, sample(&Sampling::greedy()), "a sampled reply is not the greedy one");
    // The same reply, each of its rows run beside another sequence.
    let (sequence, other) = (engine.open_sequence(), engine.open_sequence());
    let mut input = prompt.clone();
    let mut reply = Vec::new();
    for step in 0..30 {
        let run = |sequence, tokens, outputs| Run { sequence, tokens, named: Named::Nothing, outputs };
        let neighbour = tokens(step, 3);
        let runs = [run(other, &neighbour, Outputs::Nothing), run(sequence, &input, Outputs::Last)];
        let logits = engine.logits(&runs).unwrap();
        reply.push(sampling.choose(&logits, engine.tokens(sequence).unwrap()));
        input = vec![reply[reply.len() - 1]];
    }
    assert_eq!(reply, alone);
}

#[test]
fn many_adapters_come_and_go() {
    let mut engine = engine(tiny("qwen3"), usual());
    let base = adapter(engine.model(), "qwen3");
    let list = tokens(4, 30);
    let scaled = |factor: f32| {
        let mut adapter = base.clone();
        adapter.pairs.iter_mut().for_each(|pair| pair.scale *= factor);
        Arc::new(adapter)
    };
    let mut alone = Vec::new();
    for factor in 1..=12 {
        let id = engine.load_adapter(scaled(factor as f32)).unwrap();
        let (sequence, logits) = all_logits(&mut engine, &list, Named::From(0, id));
        engine.close_sequence(sequence).unwrap();
        alone.push(logits);
        engine.unload_adapter(id).unwrap();
    }
    let ids: Vec<_> = (1..=12).map(|factor| engine.load_adapter(scaled(factor as f32)).unwrap()).collect();
    engine.unload_adapter(ids[4]).unwrap();
    for (index, id) in ids.iter().enumerate().filter(|(index, _)| *index != 4) {
        let (sequence, logits) = all_logits(&mut engine, &list, Named::From(0, *id));
        engine.close_sequence(sequence).unwrap();
        assert!(logits == alone[index], "adapter {index} differs among others");
    }
}
