//! A graph with something for each of its bindings: what a backend runs, and what the float64 meaning reads.

use std::collections::HashMap;
use std::sync::Arc;

use apprentice_graph::ops::RoundQ8_0;
use apprentice_graph::{
    AnyOp, Arena, Array, Backend, BackendError, BindingKind, Bound, Element, Extents, Format, Graph, Origin,
    Type, ValueId, Weight, evaluate,
};
use half::f16;

/// What is bound to a binding.
#[derive(Clone, PartialEq, Debug)]
pub enum Data {
    /// Bytes of a weight, as its file has them.
    Weight(Vec<u8>),
    /// Contents of a store, row-major.
    Store(Vec<f32>),
    /// int32 data.
    I32(Vec<i32>),
    /// int8 data.
    I8(Vec<i8>),
    /// float32 data.
    F32(Vec<f32>),
    /// float64 data.
    F64(Vec<f64>),
}

/// A graph, its bindings filled, and the counts of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Filled {
    /// What is run.
    pub graph: Graph,
    /// What is bound, in the order of [`Graph::bindings`].
    pub data: Vec<Data>,
    /// The counts.
    pub extents: Extents,
}

impl Filled {
    /// Sizes of `ty` in this run: its capacities, with the count on axis 0.
    pub fn sizes(&self, ty: &Type) -> Vec<usize> {
        let mut sizes = ty.shape.0.clone();
        if let (Some(extent), Some(rows)) = (ty.extent, sizes.first_mut()) {
            *rows = self.extents.get(extent);
        }
        sizes
    }

    /// The float64 array of a binding: blocks decoded, a float16 or q8_0 store rounded.
    pub fn array(&self, value: ValueId) -> Array {
        let Origin::Binding(index) = self.graph.values()[value.index()].origin else {
            panic!("{value} is no binding")
        };
        let ty = self.graph.ty(value);
        let floats = |values: &[f32]| values.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let data = match &self.data[index] {
            Data::Weight(bytes) => decoded(ty, bytes),
            Data::Store(values) if ty.element == Element::F16 => {
                values.iter().map(|v| f16::from_f32(*v).to_f64()).collect()
            }
            Data::Store(values) if ty.element == Element::Q8_0 => {
                let values = Array::new(self.sizes(ty), floats(values));
                AnyOp::from(RoundQ8_0 {}).oracle(&[&values]).swap_remove(0).data
            }
            Data::Store(values) | Data::F32(values) => floats(values),
            Data::I32(values) => values.iter().map(|v| f64::from(*v)).collect(),
            Data::I8(values) => values.iter().map(|v| f64::from(*v)).collect(),
            Data::F64(values) => values.clone(),
        };
        Array::new(self.sizes(ty), data)
    }

    /// The float64 meaning: the array of each output, in order.
    pub fn meaning(&self) -> Vec<Array> {
        self.meaning_with(&HashMap::new())
    }

    /// The same with other arrays for some bindings.
    pub fn meaning_with(&self, instead: &HashMap<ValueId, Array>) -> Vec<Array> {
        let values =
            evaluate(&self.graph, |value| instead.get(&value).cloned().unwrap_or_else(|| self.array(value)));
        self.graph.outputs().iter().map(|output| values[&output.value].clone()).collect()
    }

    /// The outputs by a backend, every one converted to float64 exactly, then the contents of each store that the run
    /// writes, in the order of bindings. Stores are made and given back; weights stay with the backend.
    ///
    /// # Errors
    /// What the backend answers.
    pub fn run(&self, backend: &mut dyn Backend, arena: Arena) -> Result<Vec<Array>, BackendError> {
        enum Held {
            Weight(apprentice_graph::WeightId),
            Store(apprentice_graph::StoreId),
            Data,
        }
        let mut held = Vec::with_capacity(self.data.len());
        for (binding, data) in self.graph.bindings().iter().zip(&self.data) {
            let ty = self.graph.ty(binding.value).clone();
            held.push(match data {
                Data::Weight(bytes) => {
                    let weight = Weight { name: binding.name.clone(), ty, bytes: Arc::new(bytes.clone()) };
                    Held::Weight(backend.weight(weight)?)
                }
                Data::Store(values) => {
                    let store = backend.store(&binding.name, &ty)?;
                    backend.write(store, 0, values)?;
                    Held::Store(store)
                }
                Data::I32(_) | Data::I8(_) | Data::F32(_) | Data::F64(_) => Held::Data,
            });
        }
        let bound: Vec<Bound<'_>> = held
            .iter()
            .zip(&self.data)
            .map(|(held, data)| match (held, data) {
                (Held::Weight(id), _) => Bound::Weight(*id),
                (Held::Store(id), _) => Bound::Store(*id),
                (Held::Data, Data::I32(values)) => Bound::I32(values),
                (Held::Data, Data::I8(values)) => Bound::I8(values),
                (Held::Data, Data::F64(values)) => Bound::F64(values),
                (Held::Data, Data::F32(values) | Data::Store(values)) => Bound::F32(values),
                (Held::Data, Data::Weight(_)) => unreachable!("a weight was taken above"),
            })
            .collect();
        let program = backend.compile(&self.graph, arena)?;
        backend.run(program, &bound, &self.extents)?;
        let mut outputs = Vec::with_capacity(self.graph.outputs().len());
        for (index, output) in self.graph.outputs().iter().enumerate() {
            let mut array = Array::zeros(self.sizes(self.graph.ty(output.value)));
            backend.output_f64(program, index, &mut array.data)?;
            outputs.push(array);
        }
        backend.discard(program);
        for (binding, held) in self.graph.bindings().iter().zip(held) {
            let Held::Store(store) = held else { continue };
            if self.graph.effects().iter().any(|effect| effect.store == binding.value) {
                let sizes = self.graph.ty(binding.value).shape.0.clone();
                let mut contents = vec![0f32; sizes.iter().product()];
                backend.read(store, 0, &mut contents)?;
                outputs.push(Array::new(sizes, contents.into_iter().map(f64::from).collect()));
            }
            backend.release(store);
        }
        Ok(outputs)
    }
}

/// The kind of binding that an input of this name and type is in a test: page pools, float16 and q8_0 are stores.
pub fn kind_of(name: &str, ty: &Type) -> BindingKind {
    match ty.element {
        Element::Weight(_) => BindingKind::Weight,
        Element::F16 | Element::Q8_0 => BindingKind::Store,
        _ if name == "k_pages" || name == "v_pages" => BindingKind::Store,
        _ => BindingKind::Data,
    }
}

/// Whether two arrays have the same bits, every NaN read as one value.
pub fn same_bits(a: &Array, b: &Array) -> bool {
    let bits = |value: &f64| if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
    a.shape == b.shape && a.data.iter().map(bits).eq(b.data.iter().map(bits))
}

fn decoded(ty: &Type, bytes: &[u8]) -> Vec<f64> {
    let format = match ty.element {
        Element::Weight(format) => format,
        Element::F32 => Format::F32,
        Element::F64 => {
            return bytes.as_chunks::<8>().0.iter().map(|chunk| f64::from_le_bytes(*chunk)).collect();
        }
        other => panic!("no weight is made of {other}"),
    };
    let mut values = vec![0f32; ty.shape.count().expect("a test fits the memory")];
    format.decode(bytes, &mut values).expect("the bytes were made for this type");
    values.into_iter().map(f64::from).collect()
}
