//! Every op's gradient against central differences, from the op's own cases.

use std::collections::BTreeMap;

use apprentice_graph::{AnyOp, Element, GraphError};
use apprentice_testkit::case_graph::describe;
use apprentice_testkit::difference::{Subject, Verdict};

const SEED: u64 = 20_260_701;

/// Ops whose gradient is refused by name, whole.
const REFUSE: &[&str] = &[
    "adamw",
    "adapt_vjp",
    "add_squares",
    "argmax",
    "attention_vjp",
    "clip_factor",
    "cross_entropy_vjp",
    "gelu_vjp",
    "linear_vjp",
    "silu_vjp",
    "sum_rows",
];
/// Inputs whose gradient is refused in some cases only: a single factor of all elements has none.
const REFUSE_SOMETIMES: &[(&str, &str)] = &[("mul", "b")];
/// Ops without an input that a gradient flows into.
const CONSTANT: &[&str] = &["embed", "quantise_q8", "rope_table"];
/// Ops whose gradient is not their derivative: that of a rounding is 1.
const STRAIGHT_THROUGH: &[&str] = &["linear_q8", "round_f16", "round_q8_0"];

/// What became of each input with a gradient, over all cases of its op.
#[derive(Default)]
struct Tally {
    counted: usize,
    zero: usize,
    refused: usize,
    worst: f64,
}

#[test]
fn every_gradient_is_the_derivative() {
    let mut tallies: BTreeMap<(&str, &str), Tally> = BTreeMap::new();
    for (number, case) in AnyOp::cases().iter().enumerate().filter(|(_, case)| case.refused.is_none()) {
        let name = case.op.name();
        if STRAIGHT_THROUGH.contains(&name) {
            continue;
        }
        let seed = SEED + number as u64;
        for (slot, input) in case.op.inputs().iter().enumerate() {
            let given = &case.inputs[slot].ty;
            if !input.gradient || !given.is_present() {
                continue;
            }
            let tally = tallies.entry((name, input.name)).or_default();
            let subject = match Subject::of_case(case, &[slot], seed) {
                Ok(subject) => subject,
                Err(GraphError::NoVjp { .. }) => {
                    tally.refused += 1;
                    continue;
                }
                Err(other) => panic!("{}, {}: {other}", describe(case), input.name),
            };
            assert_eq!(given.element, Element::F32, "{}: {} has a gradient", describe(case), input.name);
            match subject.check(seed) {
                Ok(verdicts) => verdicts.into_iter().for_each(|verdict| match verdict {
                    Verdict::Agrees(error) => {
                        tally.counted += 1;
                        tally.worst = tally.worst.max(error);
                    }
                    Verdict::Zero => tally.zero += 1,
                }),
                Err(mismatch) => panic!("{}: {mismatch}", describe(case)),
            }
        }
    }
    for ((op, input), tally) in &tallies {
        let Tally { counted, zero, refused, worst } = tally;
        println!("{op} {input}: {counted} agree, worst {worst:.1e}; {zero} are zero; {refused} refused");
        let sometimes = *counted > 0 && *refused > 0;
        assert_eq!(
            sometimes,
            REFUSE_SOMETIMES.contains(&(*op, *input)),
            "{op} {input}: refused in {refused} cases, not in {counted}"
        );
    }
    for name in AnyOp::NAMES {
        let inputs: Vec<&Tally> =
            tallies.iter().filter(|((op, _), _)| op == name).map(|(_, tally)| tally).collect();
        if REFUSE.contains(name) {
            assert!(
                !inputs.is_empty() && inputs.iter().all(|tally| tally.refused > 0 && tally.counted == 0),
                "{name} is listed as refusing and has a gradient"
            );
        } else if CONSTANT.contains(name) || STRAIGHT_THROUGH.contains(name) {
            assert!(inputs.is_empty(), "{name} is listed as having no gradient to be checked");
        } else {
            assert!(!inputs.is_empty(), "{name}: no input with a gradient, and it is not listed");
            assert!(
                inputs.iter().all(|tally| tally.counted > 0),
                "{name}: an input whose gradient no case tests"
            );
        }
    }
}

#[test]
fn listed_ops_exist() {
    for name in [REFUSE, CONSTANT, STRAIGHT_THROUGH].concat() {
        assert!(AnyOp::NAMES.contains(&name), "{name}: no such op");
    }
}
