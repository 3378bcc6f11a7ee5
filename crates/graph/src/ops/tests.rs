//! What holds for the cases of every op without any backend: shapes, refusals, finite meanings, text of attributes.

use std::collections::HashSet;

use super::AnyOp;
use crate::array::Array;
use crate::op::{AnyCase, Fill, Given};
use crate::types::{Element, Type};

/// Numbers that look random and are the same every time.
struct Deviates(u64);

impl Deviates {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
    fn array(&mut self, given: &Given) -> Array {
        if !given.ty.is_present() {
            return Array::absent();
        }
        let count = given.ty.shape.count().expect("a case fits the memory");
        let data = match &given.fill {
            Fill::Normal(scale) => (0..count).map(|_| scale * self.normal()).collect(),
            Fill::Positive(floor) => (0..count).map(|_| floor + self.normal().abs()).collect(),
            Fill::Constant(value) => vec![*value; count],
            Fill::Values(values) => values.clone(),
        };
        Array::new(given.ty.shape.0.clone(), data)
    }
}

fn place(case: &AnyCase) -> String {
    let inputs: Vec<String> = case.inputs.iter().map(|given| given.ty.to_string()).collect();
    format!("{} {} of {} ({})", case.op.name(), case.op.attributes(), inputs.join(", "), case.note)
}

fn infer(case: &AnyCase) -> Result<Vec<Type>, String> {
    let types: Vec<&Type> = case.inputs.iter().map(|given| &given.ty).collect();
    case.op.infer(&types).map_err(|error| error.to_string())
}

#[test]
fn a_meaning_has_the_inferred_shapes_and_finite_values() {
    for case in AnyOp::cases().iter().filter(|case| case.refused.is_none()) {
        let place = place(case);
        let types = infer(case).unwrap_or_else(|error| panic!("{place}: {error}"));
        let mut deviates = Deviates(20_250_301);
        let arrays: Vec<Array> = case.inputs.iter().map(|given| deviates.array(given)).collect();
        let outputs = case.op.oracle(&arrays.iter().collect::<Vec<_>>());
        assert_eq!(outputs.len(), types.len(), "{place}");
        for ((output, ty), name) in outputs.iter().zip(&types).zip(case.op.outputs()) {
            assert_eq!(output.shape, ty.shape.0, "{place}: {name}");
            assert!(output.data.iter().all(|v| v.is_finite()), "{place}: {name}");
            if matches!(ty.element, Element::I32 | Element::I8) {
                assert!(output.data.iter().all(|v| v.fract() == 0.0), "{place}: {name}");
            }
        }
    }
}

#[test]
fn refused_cases_give_their_message() {
    for case in &AnyOp::cases() {
        let found = infer(case).err();
        // Not attribute text of a case refused for it: JSON has no NaN.
        let inputs: Vec<String> = case.inputs.iter().map(|given| given.ty.to_string()).collect();
        assert_eq!(found.as_deref(), case.refused, "{} of {}", case.op.name(), inputs.join(", "));
    }
}

#[test]
fn attributes_are_read_back_from_their_json() {
    for case in AnyOp::cases().iter().filter(|case| case.refused.is_none()) {
        let again = AnyOp::from_attributes(case.op.name(), case.op.attributes());
        let again = again.expect("an op knows its name").expect("an op reads its own attributes");
        assert_eq!(again, case.op);
    }
}

#[test]
fn every_op_has_a_name_of_its_own_and_cases_of_both_kinds() {
    let names: HashSet<&str> = AnyOp::NAMES.iter().copied().collect();
    assert_eq!(names.len(), AnyOp::NAMES.len());
    let cases = AnyOp::cases();
    for name in AnyOp::NAMES {
        for refused in [false, true] {
            let found = cases.iter().any(|case| case.op.name() == *name && case.refused.is_some() == refused);
            assert!(found, "{name}: no case that is {}", if refused { "refused" } else { "computed" });
        }
    }
}

#[test]
fn cases_agree_on_the_count_of_each_extent() {
    for case in &AnyOp::cases() {
        if case.refused.is_some() {
            continue;
        }
        let mut counts = std::collections::HashMap::new();
        for ty in case.inputs.iter().map(|given| &given.ty) {
            if let Some(extent) = ty.extent {
                let first = *counts.entry(extent).or_insert(ty.rows());
                assert_eq!(first, ty.rows(), "{}: {extent}", place(case));
            }
        }
    }
}
