//! Memory is known first: the account, taken before anything is allocated, is what is held afterwards.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::sync::Arc;

use apprentice_cpu::{Cpu, CpuOptions};
use apprentice_engine::{
    Account, AdapterShape, Engine, Kind, LearnerOptions, LearnerShape, MicroBatch, Named, Numerics, Options,
    Outputs, Run, StepShape, Workload, account,
};
use apprentice_graph::{Arena, Backend, Element, Interpreter};
use common::{SPANS, adapter, next_tokens, spans, tiny, tokens};

fn options(cache: Element) -> Options {
    Options { cache, context: 320, sequences: 3, segment: 128, numerics: Numerics::F32 }
}

fn cpu() -> Box<dyn Backend> {
    Box::new(Cpu::new(CpuOptions { threads: Some(3), level: None, poison: false }).unwrap())
}

/// Serves every capacity, with an adapter on.
fn serve(engine: &mut Engine, name: &str, rows: usize) {
    let adapter = engine.load_adapter(Arc::new(adapter(engine.model(), name))).unwrap();
    let tokens = tokens(1, rows);
    let named = Named::From(3, adapter);
    let sequence = engine.open_sequence();
    let run = |tokens, outputs| Run { sequence, tokens, named, outputs };
    engine.logits(&[run(&tokens[..20], Outputs::Last)]).unwrap();
    engine.logits(&[run(&tokens[20..22], Outputs::Last)]).unwrap();
    engine.greedy(&[run(&tokens[22..23], Outputs::Last)]).unwrap();
    engine.logits(&[run(&tokens[23..], Outputs::All)]).unwrap();
}

fn check(name: &str, found: &Account, engine: &Engine) {
    let resident = engine.resident();
    let sum = |kinds: &[Kind]| kinds.iter().map(|kind| found.of(*kind)).sum::<u64>();
    let pairs = [
        ("weights", sum(&[Kind::Weights, Kind::CopiedWeights]), resident.weights),
        ("stores", sum(&[Kind::Pages, Kind::Adapters, Kind::Learners]), resident.stores),
        ("arenas", sum(&[Kind::ServingArena, Kind::LearningArena]), resident.arenas),
    ];
    for (what, planned, held) in pairs {
        assert!(held > 0 || what == "arenas", "{name}: no {what}");
        assert_eq!(planned, held, "{name}: {what} (planned, held)");
    }
    // A run of fewer rows than there is room for may need less.
    assert!(sum(&[Kind::Scratch]) >= resident.scratch, "{name}: scratch");
    assert!(found.total() >= resident.total(), "{name}: sum");
}

#[test]
fn what_is_planned_is_what_is_held() {
    for (name, cache) in [("llama", Element::F16), ("gemma3", Element::Q8_0), ("qwen3", Element::F32)] {
        let model = tiny(name);
        let learnt = adapter(&model, name);
        let shape = AdapterShape::of(&learnt);
        let tokens = tokens(3, SPANS[1][1]);
        let labels = next_tokens(&tokens);
        let rows = SPANS.iter().map(|[from, to]| to - from).sum();
        let labelled =
            SPANS.iter().map(|[from, to]| labels[*from..*to].iter().filter(|l| **l >= 0).count()).sum();
        let work = Workload {
            serving: true,
            all_logits: true,
            adapters: vec![shape.clone()],
            learners: vec![LearnerShape::of(&learnt)],
            steps: vec![StepShape {
                sites: shape.sites,
                rank: shape.rank,
                rows,
                labelled,
                sequences: 2,
                context_pages: 2 * tokens.len().div_ceil(64),
            }],
        };
        let backend = cpu();
        let found = account(&model, &options(cache), &work, backend.as_ref()).unwrap();
        assert_eq!(backend.resident().total(), 0, "{name}: to plan takes nothing");
        let mut engine = Engine::new(model, backend, options(cache)).unwrap();
        serve(&mut engine, name, 60);
        let sequence = engine.open_sequence();
        let run = Run { sequence, tokens: &tokens, named: Named::Nothing, outputs: Outputs::Last };
        engine.logits(&[run]).unwrap();
        let mut learner = engine.start_learner(&learnt, LearnerOptions::default()).unwrap();
        let spans = spans(sequence, &tokens, &labels, SPANS);
        engine.learn(&mut learner, &spans).unwrap();
        check(name, &found, &engine);
        assert!(found.of(Kind::Scratch) > 0 && found.of(Kind::Copies) > 0, "{name}");
    }
}

#[test]
fn a_backend_says_itself_what_things_take() {
    let model = tiny("llama");
    let work = Workload {
        serving: true,
        all_logits: true,
        adapters: vec![AdapterShape::of(&adapter(&model, "llama"))],
        ..Workload::default()
    };
    let backend = Box::new(Interpreter::new());
    let found = account(&model, &options(Element::F16), &work, backend.as_ref()).unwrap();
    let mut engine = Engine::new(model, backend, options(Element::F16)).unwrap();
    serve(&mut engine, "llama", 50);
    check("llama", &found, &engine);
}

#[test]
fn programs_name_their_largest_values() {
    let model = tiny("llama");
    let work = Workload { serving: true, ..Workload::default() };
    let found = account(&model, &options(Element::F16), &work, cpu().as_ref()).unwrap();
    assert_eq!(found.plans.len(), 3);
    for plan in &found.plans {
        assert_eq!(plan.arena, Arena::Serving);
        assert!(plan.bytes <= found.of(Kind::ServingArena));
        assert!(plan.largest.is_sorted_by(|a, b| a.bytes >= b.bytes) && !plan.largest.is_empty());
        assert!(plan.largest.iter().all(|value| value.bytes <= plan.bytes && value.output.contains('.')));
    }
    let names: Vec<&str> = found.items.iter().map(|item| item.name.as_str()).collect();
    assert!(
        names.contains(&"token_embd.weight") && names.iter().any(|name| name.ends_with(".keys")),
        "{names:?}"
    );
    assert_eq!(found.items.iter().map(|item| item.bytes).sum::<u64>(), found.total());
}

#[test]
fn pages_of_eight_bits_take_their_steps_too() {
    let model = tiny("llama");
    let group = model.groups()[0].clone();
    let layers = model.hyper().layers as u64;
    let of = |cache| {
        account(&model, &options(cache), &Workload::default(), cpu().as_ref()).unwrap().of(Kind::Pages)
    };
    let cells = 3 * 320 * group.kv_heads as u64;
    let widths = [group.head_dim as u64, group.value_dim as u64];
    assert_eq!(of(Element::F16), layers * cells * widths.iter().map(|width| 2 * width).sum::<u64>());
    let vector = |width: &u64| width + 2 * width.div_ceil(32);
    assert_eq!(of(Element::Q8_0), layers * cells * widths.iter().map(vector).sum::<u64>());
}

#[test]
fn a_step_is_as_large_as_its_largest_cut() {
    let adapter = AdapterShape { sites: vec![0], rank: 4 };
    let limit = MicroBatch { rows: 100, logits_bytes: 1 << 20 };
    let check = |samples: &[(usize, usize)], expected: [usize; 3]| {
        let shape = StepShape::of_samples(&adapter, samples, 128, limit);
        assert_eq!([shape.rows, shape.labelled, shape.sequences], expected, "{samples:?}");
    };
    check(&[(40, 10), (50, 20), (30, 30)], [90, 30, 2]);
    check(&[(300, 7)], [300, 7, 1]);
    check(&[], [0, 0, 0]);
}

#[test]
fn a_site_that_the_model_lacks_is_refused() {
    let model = tiny("llama");
    let adapters = vec![AdapterShape { sites: vec![100_000], rank: 1 }];
    let work = Workload { adapters, ..Workload::default() };
    let refused = account(&model, &options(Element::F16), &work, cpu().as_ref()).unwrap_err();
    assert!(refused.to_string().contains("100000"), "{refused}");
}
