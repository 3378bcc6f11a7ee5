//! From a case of an op to a graph of one node with every input filled: what oracle, backends, differences and the text
//! form are tested on.

use std::fmt::Write;

use apprentice_graph::{AnyCase, BindingKind, Element, Extents, Fill, Format, Given, Type, parse};

use crate::blocks::random_blocks;
use crate::filled::{Data, Filled, kind_of};
use crate::random::Random;

/// How the node gets its inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Straight from the bindings.
    Bound,
    /// float32 data passes through a product with 1 first: it then lies in the arena, between poison, and an op that may
    /// work in place does.
    Computed,
}

/// The graph of `case`, its inputs filled from `seed`. Axes with an extent get a capacity of `slack` rows more than the
/// run counts. The outputs bear the op's names for them.
///
/// # Panics
/// For a refused case: it has no graph.
pub fn case_graph(case: &AnyCase, form: Form, slack: usize, seed: u64) -> Filled {
    let mut random = Random::new(seed);
    let mut extents = Extents::default();
    let (mut bindings, mut copies, mut inputs) = (String::new(), String::new(), Vec::new());
    let mut data = Vec::new();
    let mut types = Vec::new();
    let present = case.inputs.iter().filter(|given| given.ty.is_present()).count();
    let mut next = present;
    for (given, declared) in case.inputs.iter().zip(case.op.inputs()) {
        let ty = roomy(&given.ty, slack);
        if !ty.is_present() {
            inputs.push("_".to_owned());
            types.push(ty);
            continue;
        }
        if let Some(extent) = given.ty.extent {
            extents = extents.with(extent, given.ty.rows());
        }
        let kind = kind_of(declared.name, &ty);
        let mut value = data.len();
        writeln!(bindings, "  %{value} = {} {:?} : {ty}", word(kind), declared.name).expect("memory");
        data.push(fill(given, kind, &mut random));
        if form == Form::Computed && ty.element == Element::F32 && kind == BindingKind::Data {
            writeln!(copies, "  %{next} = scale(%{value}) {{\"factor\":1.0}} \"copy\" : {ty}")
                .expect("memory");
            value = next;
            next += 1;
        }
        inputs.push(format!("%{value}"));
        types.push(ty);
    }
    let outputs = case.op.infer(&types.iter().collect::<Vec<_>>());
    let outputs = outputs.unwrap_or_else(|error| panic!("{}: {error}", describe(case)));
    let ids: Vec<String> = (next..next + outputs.len()).map(|id| format!("%{id}")).collect();
    let outputs: Vec<String> = outputs.iter().map(ToString::to_string).collect();
    let mut text = format!("graph {{\n{bindings}{copies}");
    writeln!(
        text,
        "  {} = {}({}) {} \"case\" : {}",
        ids.join(", "),
        case.op.name(),
        inputs.join(", "),
        case.op.attributes(),
        outputs.join(", ")
    )
    .expect("memory");
    for (name, id) in case.op.outputs().iter().zip(&ids) {
        writeln!(text, "  return {name:?} {id}").expect("memory");
    }
    text.push_str("}\n");
    let graph = parse(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", describe(case)));
    Filled { graph, data, extents }
}

/// Op, attributes, types and note of a case, for messages.
pub fn describe(case: &AnyCase) -> String {
    let inputs: Vec<String> = case.inputs.iter().map(|given| given.ty.to_string()).collect();
    format!("{} {} of {} ({})", case.op.name(), case.op.attributes(), inputs.join(", "), case.note)
}

fn roomy(ty: &Type, slack: usize) -> Type {
    let mut ty = ty.clone();
    if let (Some(_), Some(rows)) = (ty.extent, ty.shape.0.first_mut()) {
        *rows += slack;
    }
    ty
}

fn word(kind: BindingKind) -> &'static str {
    match kind {
        BindingKind::Weight => "weight",
        BindingKind::Data => "data",
        BindingKind::Store => "store",
    }
}

fn fill(given: &Given, kind: BindingKind, random: &mut Random) -> Data {
    let count = given.ty.shape.count().expect("a case fits the memory");
    if let Element::Weight(format) = given.ty.element {
        return Data::Weight(weight(given, format, random));
    }
    let values: Vec<f64> = match &given.fill {
        Fill::Normal(scale) => (0..count).map(|_| scale * random.normal()).collect(),
        Fill::Positive(floor) => (0..count).map(|_| floor + random.normal().abs()).collect(),
        Fill::Constant(value) => vec![*value; count],
        Fill::Values(values) => values.clone(),
    };
    assert_eq!(values.len(), count, "a case gives as many values as its type {} has", given.ty);
    let floats = || values.iter().map(|value| *value as f32).collect();
    match (given.ty.element, kind) {
        (_, BindingKind::Store) => Data::Store(floats()),
        (Element::I32, _) => Data::I32(values.iter().map(|value| *value as i32).collect()),
        (Element::I8, _) => Data::I8(values.iter().map(|value| *value as i8).collect()),
        (Element::F64, _) => Data::F64(values),
        _ => Data::F32(floats()),
    }
}

fn weight(given: &Given, format: Format, random: &mut Random) -> Vec<u8> {
    let Fill::Normal(scale) = given.fill else { panic!("a weight is filled with deviates") };
    let rows = given.ty.shape.0.iter().rev().skip(1).product();
    random_blocks(format, rows, given.ty.width(), scale, random).expect("a case has whole blocks")
}
