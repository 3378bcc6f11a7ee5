//! Differences catch what they should: no mutant of a gradient gets past them.

use std::collections::BTreeMap;

use apprentice_graph::AnyOp;
use apprentice_testkit::case_graph::describe;
use apprentice_testkit::difference::{Reference, Subject, Verdict};
use apprentice_testkit::filled::Filled;
use apprentice_testkit::little_model::LittleModel;
use apprentice_testkit::mutate::mutants;

const SEED: u64 = 20_260_702;

/// How many mutants of `joint` there are, and those that pass the judgement of `reference`.
fn judge(reference: &Reference, joint: &Filled) -> (usize, Vec<String>) {
    let all = mutants(&joint.graph);
    let count = all.len();
    let passed = all.into_iter().filter(|mutant| {
        let joint = Filled { graph: mutant.graph.clone(), ..joint.clone() };
        reference.judge(&joint).is_ok()
    });
    (count, passed.map(|mutant| mutant.change).collect())
}

#[test]
fn no_mutant_of_a_little_model_and_its_gradients_passes() {
    let forward = LittleModel::exact().forward(SEED);
    let targets = LittleModel::exact().targets(&forward.graph);
    assert!(targets.len() > 30, "{} targets", targets.len());
    let subject = Subject::new(forward, 0, &targets, SEED).unwrap();
    let reference = subject.reference(SEED);
    let verdicts = reference.judge(subject.joint()).unwrap();
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Agrees(_))), "{verdicts:?}");

    let (count, passed) = judge(&reference, subject.joint());
    println!("{} of {count} mutants caught", count - passed.len());
    assert!(count > 500, "only {count} mutants");
    assert!(passed.is_empty(), "not caught:\n{}", passed.join("\n"));
}

#[test]
fn no_mutant_of_an_op_and_its_gradient_passes_all_cases() {
    // Whether a change was caught in a case of its op: a change of pages is no change where none is read.
    let mut changes: BTreeMap<(&str, String), bool> = BTreeMap::new();
    for (number, case) in AnyOp::cases().iter().enumerate() {
        let name = case.op.name();
        if case.refused.is_some() || ["linear_q8", "round_f16", "round_q8_0"].contains(&name) {
            continue; // of a rounding the gradient is no derivative
        }
        let seed = SEED + number as u64;
        let declared = case.op.inputs().iter().zip(&case.inputs).enumerate();
        let slots = declared.filter(|(_, (input, given))| input.gradient && given.ty.is_present());
        let slots: Vec<usize> = slots.map(|(slot, _)| slot).collect();
        let Ok(subject) = Subject::of_case(case, &slots, seed) else { continue };
        let reference = subject.reference(seed);
        reference.judge(subject.joint()).unwrap_or_else(|error| panic!("{}: {error}", describe(case)));
        for mutant in mutants(&subject.joint().graph) {
            let joint = Filled { graph: mutant.graph, ..subject.joint().clone() };
            *changes.entry((name, mutant.change)).or_default() |= reference.judge(&joint).is_err();
        }
    }
    println!("{} changes", changes.len());
    assert!(changes.len() > 150, "only {} changes", changes.len());
    let passed: Vec<&(&str, String)> =
        changes.iter().filter(|(_, caught)| !**caught).map(|(c, _)| c).collect();
    assert!(passed.is_empty(), "caught by no case: {passed:#?}");
}
