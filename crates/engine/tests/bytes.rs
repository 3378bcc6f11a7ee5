//! The first law: a row's logits and a span's gradient depend on the file, the tokens before, the adapters that rows name
//! and the cache type. Nothing else changes a byte.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::sync::Arc;

use apprentice_engine::{Engine, Named, Outputs, Run};
use apprentice_graph::Element;
use apprentice_models::Model;
use common::{
    Setup, adapter, all_logits, bits, engine, learning_bits, next_tokens, others, rounded, spans, tiny,
    tokens, usual,
};

/// Runs a check on every golden model, and with rounded products on a model in each format.
fn each_tiny(check: impl Fn(&dyn Fn() -> Model, &str, Setup)) {
    for name in common::INSTANCES {
        check(&|| tiny(name), name, usual());
    }
    for format in common::ROUNDED {
        check(&|| common::tiny_in(format), format.name(), rounded());
    }
}

fn same_bytes_on_every_setup(model: &dyn Fn() -> Model, name: &str, places: [[usize; 2]; 2], base: Setup) {
    let tokens = tokens(1, places[1][1]);
    let labels = next_tokens(&tokens);
    let everything = |setup: Setup| {
        let mut engine = engine(model(), setup);
        let adapter = adapter(engine.model(), name);
        let (sequence, logits) = all_logits(&mut engine, &tokens, Named::Nothing);
        let spans = spans(sequence, &tokens, &labels, places);
        (logits, learning_bits(&mut engine, &adapter, &spans))
    };
    let expected = everything(base);
    for setup in others(base) {
        assert!(everything(setup) == expected, "{name}: {setup:?} gives other bytes than {base:?}");
    }
}

fn same_bytes_for_every_cut(
    model: &dyn Fn() -> Model,
    name: &str,
    setup: Setup,
    count: usize,
    cuts: &[&[usize]],
) {
    let mut engine = engine(model(), setup);
    let tokens = tokens(2, count);
    let id = engine.load_adapter(Arc::new(adapter(engine.model(), name))).unwrap();
    // With no adapter, and with one that rows name from the middle of a block on.
    for named in [Named::Nothing, Named::From(70, id)] {
        let (whole, expected) = all_logits(&mut engine, &tokens, named);
        engine.close_sequence(whole).unwrap();
        for cut in cuts {
            let sequence = engine.open_sequence();
            let mut logits = Vec::new();
            let borders: Vec<usize> =
                [0].into_iter().chain(cut.iter().copied()).chain([tokens.len()]).collect();
            for part in borders.windows(2) {
                let run = Run { sequence, tokens: &tokens[part[0]..part[1]], named, outputs: Outputs::All };
                logits.extend(engine.logits(&[run]).unwrap());
            }
            assert!(
                bits(&logits) == expected,
                "{name}: cut at {cut:?} with {setup:?} gives other bytes, {named:?}"
            );
            engine.close_sequence(sequence).unwrap();
        }
    }
}

fn neighbours_change_nothing(engine: &mut Engine, name: &str) {
    let adapter = Arc::new(adapter(engine.model(), name));
    let lists: Vec<Vec<u32>> = (0..4).map(|seed| tokens(10 + seed, 5 + 7 * seed as usize)).collect();
    let plain: Vec<Vec<u32>> = lists.iter().map(|list| all_logits(engine, list, Named::Nothing).1).collect();
    let id = engine.load_adapter(adapter).unwrap();
    let unnamed: Vec<Vec<u32>> =
        lists.iter().map(|list| all_logits(engine, list, Named::Nothing).1).collect();
    assert!(unnamed == plain, "{name}: an adapter that is loaded and not named changes bytes");
    // Alone: the second and fourth name the adapter, the fourth from its third row on.
    let named = [Named::Nothing, Named::From(0, id), Named::Nothing, Named::From(2, id)];
    let alone: Vec<Vec<u32>> =
        lists.iter().zip(named).map(|(list, named)| all_logits(engine, list, named).1).collect();
    assert!(
        alone[1] != plain[1] && alone[3] != plain[3],
        "{name}: a named adapter that does nothing tests nothing"
    );
    assert!(alone[0] == plain[0] && alone[2] == plain[2], "{name}: rows that name no adapter differ");
    let vocab = engine.model().hyper().vocab;
    assert!(
        alone[3][..2 * vocab] == plain[3][..2 * vocab],
        "{name}: rows before the first that names it differ"
    );
    // Together, twice: a whole batch, and with the longest list cut off after some rows.
    for border in [1, 3, 26] {
        let sequences: Vec<_> = lists.iter().map(|_| engine.open_sequence()).collect();
        let part = |first: bool| -> Vec<Run<'_>> {
            let runs = lists.iter().zip(&sequences).zip(named).map(|((list, sequence), named)| {
                let (head, tail) = list.split_at(border.min(list.len()));
                let tokens = if first { head } else { tail };
                Run { sequence: *sequence, tokens, named, outputs: Outputs::All }
            });
            runs.filter(|run| !run.tokens.is_empty()).collect()
        };
        let mut together: Vec<Vec<f32>> = vec![Vec::new(); lists.len()];
        for runs in [part(true), part(false)].into_iter().filter(|runs| !runs.is_empty()) {
            let mut logits = engine.logits(&runs).unwrap();
            for run in runs {
                let index = sequences.iter().position(|sequence| *sequence == run.sequence).unwrap();
                let rest = logits.split_off(run.tokens.len() * vocab);
                together[index].extend(std::mem::replace(&mut logits, rest));
            }
        }
        for (index, logits) in together.iter().enumerate() {
            assert!(
                bits(logits) == alone[index],
                "{name}: sequence {index} differs among neighbours, border {border}"
            );
        }
        for sequence in sequences {
            engine.close_sequence(sequence).unwrap();
        }
    }
}

fn learning_disturbs_nothing(model: &dyn Fn() -> Model, name: &str, places: [[usize; 2]; 2], setup: Setup) {
    let tokens = tokens(3, places[1][1]);
    let labels = next_tokens(&tokens);
    let more = common::tokens(4, 9);
    let serve = |learn: bool| {
        let mut engine = engine(model(), setup);
        let adapter = adapter(engine.model(), name);
        let (sequence, _) = all_logits(&mut engine, &tokens, Named::Nothing);
        if learn {
            let spans = spans(sequence, &tokens, &labels, places);
            learning_bits(&mut engine, &adapter, &spans);
        }
        let pages = bits(&engine.page_contents(sequence).unwrap());
        let run = Run { sequence, tokens: &more, named: Named::Nothing, outputs: Outputs::All };
        (pages, bits(&engine.logits(&[run]).unwrap()))
    };
    assert!(serve(true) == serve(false), "{name}: a sequence differs after learning");
}

#[test]
fn threads_levels_and_poison() {
    each_tiny(|model, name, base| same_bytes_on_every_setup(model, name, common::SPANS, base));
}

#[test]
fn cuts_of_a_prompt() {
    let cuts: &[&[usize]] =
        &[&[1], &[63], &[64], &[65], &[7, 20], &[96, 97, 98, 160], &[16, 32, 48, 64, 80, 199]];
    for cache in [Element::F32, Element::F16] {
        each_tiny(|model, name, base| {
            same_bytes_for_every_cut(model, name, Setup { cache, ..base }, 200, cuts);
        });
    }
}

#[test]
fn one_token_at_a_time() {
    let every: Vec<usize> = (1..200).collect();
    each_tiny(|model, name, base| same_bytes_for_every_cut(model, name, base, 200, &[&every]));
}

#[test]
fn neighbours_and_their_adapters() {
    each_tiny(|model, name, base| neighbours_change_nothing(&mut engine(model(), base), name));
}

#[test]
fn a_sequence_after_learning() {
    each_tiny(|model, name, base| learning_disturbs_nothing(model, name, common::SPANS, base));
}

#[test]
fn a_row_alone_and_among_many() {
    for format in common::ROUNDED {
        let cuts: &[&[usize]] = &[&[1], &[2], &[255], &[256], &[1, 2]];
        same_bytes_for_every_cut(&|| common::tiny_in(format), format.name(), rounded(), 258, cuts);
    }
}

#[test]
fn rounded_products_are_other_products() {
    for format in common::ROUNDED {
        let tokens = tokens(5, 40);
        let logits =
            |setup| all_logits(&mut engine(common::tiny_in(format), setup), &tokens, Named::Nothing).1;
        let (smooth, rounded) = (logits(usual()), logits(rounded()));
        let same = smooth.iter().zip(&rounded).filter(|(a, b)| a == b).count();
        assert!(100 * same < smooth.len(), "{format}: {same} of {} logits are the same", smooth.len());
    }
}

/// Two short spans across a border of blocks: one element at a time, a real model is slow.
const SPANS_REAL: [[usize; 2]; 2] = [[30, 36], [60, 70]];

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn real_model_threads_and_levels() {
    for base in [usual(), rounded()] {
        same_bytes_on_every_setup(&|| common::real("smollm2"), "smollm2", SPANS_REAL, base);
    }
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn real_model_cuts() {
    let cuts: &[&[usize]] = &[&[1, 65], &[7, 20, 96]];
    for base in [usual(), rounded()] {
        same_bytes_for_every_cut(&|| common::real("smollm2"), "smollm2", base, 200, cuts);
    }
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn real_model_neighbours() {
    for base in [usual(), rounded()] {
        neighbours_change_nothing(&mut engine(common::real("smollm2"), base), "smollm2");
    }
}

#[test]
#[ignore = "needs the real models: scripts/test --models"]
fn real_model_after_learning() {
    for base in [usual(), rounded()] {
        learning_disturbs_nothing(&|| common::real("smollm2"), "smollm2", SPANS_REAL, base);
    }
}
