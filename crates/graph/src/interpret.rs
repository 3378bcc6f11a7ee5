//! The meaning of a graph: every node by its op's float64 oracle. As a [`Backend`] it runs whole decode and learn steps;
//! it is as slow as it is plain.

use std::collections::HashMap;

use apprentice_quant::Format;

use crate::array::Array;
use crate::backend::{
    Arena, Backend, BackendError, Bound, Need, ProgramId, Resident, StoreId, Support, Weight, WeightId,
    run_shape,
};
use crate::graph::{Graph, Origin};
use crate::ids::ValueId;
use crate::ops::{AnyOp, RoundF16, RoundQ8_0};
use crate::types::{Element, Extents, Type};

/// Evaluates `graph`; `bound(value)` gives the array of a binding. Values are dropped after their last reader; the answer
/// holds those that the graph returns or writes, and the cells of its effects.
pub fn evaluate(graph: &Graph, mut bound: impl FnMut(ValueId) -> Array) -> HashMap<ValueId, Array> {
    let mut readers = vec![0usize; graph.values().len()];
    let kept = graph.outputs().iter().map(|output| output.value);
    let written =
        graph.effects().iter().flat_map(|effect| [Some(effect.value), effect.cells].into_iter().flatten());
    for value in
        kept.chain(written).chain(graph.nodes().iter().flat_map(|node| node.inputs.iter().flatten().copied()))
    {
        readers[value.index()] += 1;
    }
    let mut values: HashMap<ValueId, Array> = HashMap::new();
    for (index, value) in graph.values().iter().enumerate() {
        let id = ValueId::new(index);
        if matches!(value.origin, Origin::Binding(_)) && readers[index] > 0 {
            values.insert(id, bound(id));
        }
    }
    let absent = Array::absent();
    for node in graph.nodes() {
        let inputs: Vec<&Array> =
            node.inputs.iter().map(|id| id.map_or(&absent, |id| &values[&id])).collect();
        let outputs = node.op.oracle(&inputs);
        for value in node.inputs.iter().flatten() {
            readers[value.index()] -= 1;
            if readers[value.index()] == 0 {
                values.remove(value);
            }
        }
        for (id, output) in node.outputs.iter().zip(outputs) {
            if readers[id.index()] > 0 {
                values.insert(*id, output);
            }
        }
    }
    values
}

/// The interpreter as a backend.
#[derive(Default)]
pub struct Interpreter {
    weights: Vec<(Type, Array)>,
    stores: Vec<Option<(Type, Array)>>,
    programs: Vec<Option<Program>>,
}

struct Program {
    graph: Graph,
    results: HashMap<ValueId, Array>,
}

impl Interpreter {
    /// An interpreter that holds nothing.
    pub fn new() -> Interpreter {
        Interpreter::default()
    }

    fn store_at(&self, store: StoreId) -> Result<&(Type, Array), BackendError> {
        let slot = self.stores.get(store.0 as usize).and_then(Option::as_ref);
        slot.ok_or(BackendError::Handle { what: "store", index: store.0 as usize })
    }

    fn program_at(&self, program: ProgramId) -> Result<&Program, BackendError> {
        let slot = self.programs.get(program.0 as usize).and_then(Option::as_ref);
        slot.ok_or(BackendError::Handle { what: "program", index: program.0 as usize })
    }

    fn result(&self, program: ProgramId, index: usize, count: usize) -> Result<&Array, BackendError> {
        let program = self.program_at(program)?;
        let output =
            program.graph.outputs().get(index).ok_or(BackendError::Handle { what: "output", index })?;
        let array =
            program.results.get(&output.value).ok_or(BackendError::Handle { what: "output", index })?;
        if array.data.len() != count {
            let (expected, found) = (array.data.len().to_string(), count.to_string());
            return Err(BackendError::Range { what: format!("output {:?}", output.name), expected, found });
        }
        Ok(array)
    }
}

impl Backend for Interpreter {
    fn name(&self) -> &'static str {
        "interpreter"
    }

    fn weight(&mut self, weight: Weight) -> Result<WeightId, BackendError> {
        let array = decode(&weight)?;
        self.weights.push((weight.ty, array));
        Ok(WeightId(self.weights.len() as u32 - 1))
    }

    fn store(&mut self, _name: &str, ty: &Type) -> Result<StoreId, BackendError> {
        self.stores.push(Some((ty.clone(), Array::zeros(ty.shape.0.clone()))));
        Ok(StoreId(self.stores.len() as u32 - 1))
    }

    fn release(&mut self, store: StoreId) {
        if let Some(slot) = self.stores.get_mut(store.0 as usize) {
            *slot = None;
        }
    }

    fn write(&mut self, store: StoreId, first: usize, values: &[f32]) -> Result<(), BackendError> {
        let range = cells(&self.store_at(store)?.1, first, values.len())?;
        if let Some((ty, array)) = &mut self.stores[store.0 as usize] {
            let width = array.width();
            let values = values.iter().map(|value| f64::from(*value)).collect();
            array.data[range].copy_from_slice(&rounded(ty.element, width, values));
        }
        Ok(())
    }

    fn read(&self, store: StoreId, first: usize, into: &mut [f32]) -> Result<(), BackendError> {
        let (_, array) = self.store_at(store)?;
        let range = cells(array, first, into.len())?;
        for (slot, value) in into.iter_mut().zip(&array.data[range]) {
            *slot = *value as f32;
        }
        Ok(())
    }

    fn copy(&mut self, store: StoreId, from: usize, to: usize, count: usize) -> Result<(), BackendError> {
        let array = &self.store_at(store)?.1;
        let elements = count.saturating_mul(array.row_count());
        let (from, to) = (cells(array, from, elements)?, cells(array, to, elements)?);
        if let Some((_, array)) = &mut self.stores[store.0 as usize] {
            array.data.copy_within(from, to.start);
        }
        Ok(())
    }

    fn compile(&mut self, graph: &Graph, _arena: Arena) -> Result<ProgramId, BackendError> {
        self.programs.push(Some(Program { graph: graph.clone(), results: HashMap::new() }));
        Ok(ProgramId(self.programs.len() as u32 - 1))
    }

    fn discard(&mut self, program: ProgramId) {
        if let Some(slot) = self.programs.get_mut(program.0 as usize) {
            *slot = None;
        }
    }

    /// Does everything in the first part.
    fn run_part(
        &mut self,
        program: ProgramId,
        bindings: &[Bound<'_>],
        extents: &Extents,
        from: usize,
        _limit: u64,
    ) -> Result<Option<usize>, BackendError> {
        if from != 0 {
            return Err(BackendError::Part { expected: None, found: from });
        }
        let graph = &self.program_at(program)?.graph;
        graph.check_bindings(bindings, extents, |bound| match bound {
            Bound::Weight(id) => self.weights.get(id.0 as usize).map(|(ty, _)| ty),
            Bound::Store(id) => self.store_at(id).ok().map(|(ty, _)| ty),
            _ => None,
        })?;
        let array_of = |value: ValueId| {
            let Origin::Binding(index) = graph.values()[value.index()].origin else {
                unreachable!("only bindings are asked for")
            };
            let shape = run_shape(graph.ty(value), extents);
            match bindings[index] {
                Bound::Weight(id) => self.weights[id.0 as usize].1.clone(),
                Bound::Store(id) => self.stores[id.0 as usize].as_ref().expect("checked above").1.clone(),
                Bound::I32(data) => Array::new(shape, data.iter().map(|v| f64::from(*v)).collect()),
                Bound::I8(data) => Array::new(shape, data.iter().map(|v| f64::from(*v)).collect()),
                Bound::F32(data) => Array::new(shape, data.iter().map(|v| f64::from(*v)).collect()),
                Bound::F64(data) => Array::new(shape, data.to_vec()),
            }
        };
        let results = evaluate(graph, array_of);
        let mut writes = Vec::new();
        for effect in graph.effects() {
            let Origin::Binding(index) = graph.values()[effect.store.index()].origin else {
                unreachable!("a verified effect writes a store")
            };
            let Bound::Store(store) = bindings[index] else { unreachable!("bindings were checked") };
            let (ty, array) = self.store_at(store)?;
            let value = &results[&effect.value];
            match effect.cells {
                None => writes.push((store, 0, value.data.clone())),
                Some(cells_of) => {
                    let cell_ids = &results[&cells_of];
                    for row in 0..value.rows() {
                        let cell = cell_ids.int(row);
                        if cell < 0 {
                            continue;
                        }
                        let name = graph.bindings()[index].name.clone();
                        let at = usize::try_from(cell).ok().filter(|cell| *cell < array.rows());
                        let at = at.ok_or(BackendError::Index { name, index: cell, limit: array.rows() })?;
                        let row = rounded(ty.element, array.width(), value.row(row).to_vec());
                        writes.push((store, at * array.row_count(), row));
                    }
                }
            }
        }
        for (store, start, data) in writes {
            if let Some((_, array)) = &mut self.stores[store.0 as usize] {
                array.data[start..start + data.len()].copy_from_slice(&data);
            }
        }
        if let Some(program) = &mut self.programs[program.0 as usize] {
            program.results = results;
        }
        Ok(None)
    }

    fn output_f32(&self, program: ProgramId, index: usize, into: &mut [f32]) -> Result<(), BackendError> {
        let array = self.result(program, index, into.len())?;
        for (slot, value) in into.iter_mut().zip(&array.data) {
            *slot = *value as f32;
        }
        Ok(())
    }

    fn output_f64(&self, program: ProgramId, index: usize, into: &mut [f64]) -> Result<(), BackendError> {
        into.copy_from_slice(&self.result(program, index, into.len())?.data);
        Ok(())
    }

    fn resident(&self) -> Resident {
        let bytes = |array: &Array| array.data.len() as u64 * 8;
        Resident {
            weights: self.weights.iter().map(|(_, array)| bytes(array)).sum(),
            stores: self.stores.iter().flatten().map(|(_, array)| bytes(array)).sum(),
            arenas: 0,
            scratch: 0,
        }
    }

    /// Weights and stores are float64 of their elements; values of a run are not counted.
    fn need(&self, of: Need<'_>) -> Result<u64, BackendError> {
        Ok(match of {
            Need::Weight(ty) | Need::Copied(ty) | Need::Store(ty) => {
                ty.shape.count().and_then(|count| count.checked_mul(8)).unwrap_or(usize::MAX) as u64
            }
            Need::Arena(_) | Need::Scratch(_) => 0,
        })
    }

    fn support(&self, _op: &AnyOp, _inputs: &[&Type]) -> Support {
        Support::Yes
    }
}

/// Elements `[first * row, first * row + count)` of a store, if they are whole cells that exist.
fn cells(array: &Array, first: usize, count: usize) -> Result<std::ops::Range<usize>, BackendError> {
    let row = array.row_count().max(1);
    let start = first.saturating_mul(row);
    let end = start.saturating_add(count);
    if !count.is_multiple_of(row) || end > array.data.len() {
        return Err(BackendError::Range {
            what: "store".to_owned(),
            expected: format!("{} cells of {row}", array.rows()),
            found: format!("{count} elements from cell {first}"),
        });
    }
    Ok(start..end)
}

/// What a store of this element keeps of vectors of `width`. A float32 store of the interpreter keeps float64.
fn rounded(element: Element, width: usize, values: Vec<f64>) -> Vec<f64> {
    let op: AnyOp = match element {
        Element::F16 => RoundF16 {}.into(),
        Element::Q8_0 => RoundQ8_0 {}.into(),
        _ => return values,
    };
    let vectors = Array::new([values.len() / width.max(1), width], values);
    op.oracle(&[&vectors]).swap_remove(0).data
}

fn decode(weight: &Weight) -> Result<Array, BackendError> {
    let bytes: &[u8] = (*weight.bytes).as_ref();
    let wrong = |found: String| BackendError::Binding {
        name: weight.name.clone(),
        expected: format!("{} bytes of {}", weight.ty.bytes().unwrap_or(0), weight.ty),
        found,
    };
    if weight.ty.bytes() != Some(bytes.len()) {
        return Err(wrong(format!("{} bytes", bytes.len())));
    }
    let count = weight.ty.shape.count().unwrap_or(0);
    let floats = |format: Format| {
        let mut values = vec![0f32; count];
        format.decode(bytes, &mut values).map_err(|error| wrong(error.to_string()))?;
        Ok::<Vec<f64>, BackendError>(values.into_iter().map(f64::from).collect())
    };
    let data: Vec<f64> = match weight.ty.element {
        Element::F32 => floats(Format::F32)?,
        Element::Weight(format) => floats(format)?,
        Element::F64 => bytes.as_chunks::<8>().0.iter().map(|chunk| f64::from_le_bytes(*chunk)).collect(),
        Element::I32 | Element::I8 | Element::F16 | Element::Q8_0 | Element::Absent => {
            return Err(wrong(weight.ty.to_string()));
        }
    };
    Ok(Array::new(weight.ty.shape.0.clone(), data))
}
