//! Pages of eight bits keep the laws: no byte depends on a cut, a thread or an instruction set, and learning
//! writes none of them.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use apprentice_engine::{Engine, Named, Outputs, Run};
use apprentice_graph::Element;
use common::{
    Setup, adapter, all_logits, bits, engine, learning_bits, meaning, next_tokens, others, spans, tiny,
    tokens, usual,
};

const COUNT: usize = 150;
const SPANS: [[usize; 2]; 2] = [[41, 80], [90, 140]];

fn narrow(setup: Setup) -> Setup {
    Setup { cache: Element::Q8_0, ..setup }
}

/// Logits of all tokens, cut at these positions, and what the pages then hold.
fn logits(engine: &mut Engine, tokens: &[u32], cuts: &[usize]) -> (Vec<u32>, Vec<u32>) {
    let sequence = engine.open_sequence();
    let mut found = Vec::new();
    let ends = cuts.iter().copied().chain([tokens.len()]);
    let mut start = 0;
    for end in ends {
        let run = Run { sequence, tokens: &tokens[start..end], named: Named::Nothing, outputs: Outputs::All };
        found.extend(engine.logits(&[run]).unwrap());
        start = end;
    }
    let pages = engine.page_contents(sequence).unwrap();
    engine.close_sequence(sequence).unwrap();
    (bits(&found), bits(&pages))
}

#[test]
fn a_cut_changes_no_byte() {
    let tokens = tokens(2, COUNT);
    for name in common::INSTANCES {
        let mut engine = engine(tiny(name), narrow(usual()));
        let whole = logits(&mut engine, &tokens, &[]);
        let every: Vec<usize> = (1..COUNT).collect();
        for cuts in [&[1][..], &[63, 64, 65], &[7, 20, 128], &every] {
            assert!(logits(&mut engine, &tokens, cuts) == whole, "{name}: cut at {cuts:?}");
        }
    }
}

#[test]
fn it_is_not_float16() {
    let tokens = tokens(2, COUNT);
    for name in common::INSTANCES {
        let [eight, sixteen] =
            [narrow(usual()), usual()].map(|setup| logits(&mut engine(tiny(name), setup), &tokens, &[]));
        assert!(eight.0 != sixteen.0 && eight.1 != sixteen.1, "{name}: nothing was rounded further");
    }
}

#[test]
fn threads_levels_and_learning_change_no_byte() {
    let tokens = tokens(1, COUNT);
    let labels = next_tokens(&tokens);
    for name in ["gemma3", "qwen3"] {
        let everything = |setup: Setup| {
            let mut engine = engine(tiny(name), setup);
            let adapter = adapter(engine.model(), name);
            let (sequence, found) = all_logits(&mut engine, &tokens, Named::Nothing);
            let before = bits(&engine.page_contents(sequence).unwrap());
            let learnt = learning_bits(&mut engine, &adapter, &spans(sequence, &tokens, &labels, SPANS));
            let after = bits(&engine.page_contents(sequence).unwrap());
            assert!(before == after, "{name}: learning has written a page");
            (found, before, learnt)
        };
        let expected = everything(narrow(usual()));
        for setup in others(narrow(usual())) {
            assert!(everything(setup) == expected, "{name}: {setup:?} gives other bytes");
        }
    }
}

#[test]
fn logits_are_near_their_meaning() {
    let tokens = tokens(4, 100);
    for name in common::INSTANCES {
        let values = |mut engine: Engine| -> Vec<f64> {
            let (_, bits) = all_logits(&mut engine, &tokens, Named::Nothing);
            bits.into_iter().map(|bits| f64::from(f32::from_bits(bits))).collect()
        };
        let expected = values(meaning(tiny(name), Element::Q8_0));
        let found = values(engine(tiny(name), narrow(usual())));
        let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
        let error = squares(&mut expected.iter().zip(&found).map(|(a, b)| a - b));
        let size = squares(&mut expected.iter().copied());
        // A key or value that differs in its last bit may fall to the next level.
        assert!(size > 0.0 && (error / size).sqrt() < 1e-3, "{name}: off by {}", (error / size).sqrt());
    }
}
