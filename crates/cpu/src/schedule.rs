//! The steps of a program over certain bindings, made once: what each does and where its operands lie, in the order in which
//! they are needed. A run that differs in counts and data only sets those.

use std::ops::Range;

use apprentice_graph::{
    AnyOp, BindingKind, Bound, Element, Extent, Extents, Graph, Origin, Plan, Storage, Type, ValueId,
};

use crate::isa::Level;
use crate::kernels::prefetch::prefetch;
use crate::lower::{Size, Work};
use crate::memory::{Place, data_place};
use crate::operand::{Operand, Operands};

/// Steps of a program: nodes in their order, but for views, then effects.
pub(crate) struct Schedule {
    steps: Vec<Step>,
    operands: Vec<Operand>,
    units: Vec<usize>,
    effects: usize,
    scratch: usize,
    extents: Extents,
    /// Operands that lie in data of the caller: the operand, and the binding.
    data: Vec<(usize, usize)>,
    /// Operands whose rows are counted at run time.
    counted: Vec<Counted>,
}

struct Step {
    work: Work,
    operands: Range<usize>,
    inputs: usize,
    /// Index of the node; of no use for an effect.
    node: usize,
}

struct Counted {
    extent: Extent,
    operand: usize,
    step: usize,
}

impl Schedule {
    /// The steps of a verified graph by its plan, with the places of its bindings and of the arena.
    pub(crate) fn new(
        graph: &Graph,
        plan: &Plan,
        extents: &Extents,
        bindings: &[Place],
        arena: Place,
    ) -> Schedule {
        let mut made = Maker {
            graph,
            plan,
            bindings,
            arena,
            schedule: Schedule {
                steps: Vec::new(),
                operands: Vec::new(),
                units: Vec::new(),
                effects: 0,
                scratch: 0,
                extents: *extents,
                data: Vec::new(),
                counted: Vec::new(),
            },
        };
        for (index, node) in graph.nodes().iter().enumerate() {
            if node.op.storage() != Storage::View {
                let outputs = node.outputs.iter().copied().map(Some);
                let values: Vec<Option<ValueId>> = node.inputs.iter().copied().chain(outputs).collect();
                made.step(Work::Node(node.op.clone()), &values, node.inputs.len(), index);
            }
        }
        made.schedule.effects = made.schedule.steps.len();
        for effect in graph.effects() {
            match effect.cells {
                Some(cells) => {
                    let values = [effect.value, cells, effect.store].map(Some);
                    made.step(Work::Write, &values, values.len(), 0);
                }
                None => {
                    let values = [effect.value, effect.store].map(Some);
                    made.step(Work::Copy, &values, values.len(), 0);
                }
            }
        }
        let mut schedule = made.schedule;
        for step in 0..schedule.steps.len() {
            schedule.count(step);
        }
        schedule
    }

    /// Sets the counts and the caller's data of a run over the same weights, stores and arena.
    pub(crate) fn set(&mut self, extents: &Extents, bindings: &[Bound<'_>]) {
        for (operand, binding) in &self.data {
            let place = data_place(&bindings[*binding]).expect("a binding of data is bound to data");
            self.operands[*operand].place = place;
        }
        if self.extents == *extents {
            return;
        }
        let mut changed = usize::MAX;
        for index in 0..self.counted.len() {
            let Counted { extent, operand, step } = self.counted[index];
            if self.extents.get(extent) == extents.get(extent) {
                continue;
            }
            self.operands[operand].set_rows(extents.get(extent));
            // Operands of a step follow each other: its units are counted when its last one is set.
            if changed != step && changed != usize::MAX {
                self.count(changed);
            }
            changed = step;
        }
        if changed != usize::MAX {
            self.count(changed);
        }
        self.extents = *extents;
    }

    /// Units of each step; a step without any is passed over.
    pub(crate) fn units(&self) -> &[usize] {
        &self.units
    }

    /// float32 that a worker needs as working memory.
    pub(crate) fn scratch(&self) -> usize {
        self.scratch
    }

    /// The first step that writes a store.
    pub(crate) fn first_effect(&self) -> usize {
        self.effects
    }

    /// Where a part ends that begins at `from` and may spend about `limit` FLOPs. Effects are in the last part only.
    pub(crate) fn end_of_part(&self, graph: &Graph, from: usize, limit: u64) -> usize {
        if limit == u64::MAX {
            return self.steps.len();
        }
        let mut spent = 0u64;
        for step in from..self.effects {
            spent = spent.saturating_add(self.flops(graph, step));
            if spent >= limit && step + 1 < self.effects {
                return step + 1;
            }
        }
        self.steps.len()
    }

    /// Does `units` of one step.
    ///
    /// # Safety
    /// Every place that the schedule was made with, and the data that was [`Schedule::set`] last, is valid for reads, and
    /// the arena and the stores that the graph writes for writes too, with no access but by this schedule until the run is
    /// over. Bindings were checked against the graph. Steps are done in order, each unit once.
    pub(crate) unsafe fn execute(&self, level: Level, step: usize, units: Range<usize>, scratch: &mut [f32]) {
        if let Some(next) = self.steps.get(step + 1)
            && units.start == 0
        {
            // By then the weights of this step have gone through the caches.
            prefetch(&self.operands, next.operands.start, 0..next.operands.len());
            prefetch(&self.steps, step + 2, 0..1);
        }
        let step = &self.steps[step];
        // SAFETY: the caller's promise.
        let operands = unsafe { Operands::new(&self.operands[step.operands.clone()], step.inputs) };
        step.work.execute(operands, level, units, scratch);
    }

    /// What each step does, for a table of times: the op, of a product also the shape of its weight.
    pub(crate) fn names(&self, graph: &Graph) -> impl Iterator<Item = String> {
        self.steps.iter().map(|step| {
            let Work::Node(op) = &step.work else { return "write".to_owned() };
            let inputs = graph.nodes()[step.node].inputs.iter().flatten().map(|input| graph.ty(*input));
            let weight = inputs.into_iter().find(|ty| matches!(ty.element, Element::Weight(_)));
            let shape = weight.map(|ty| format!(" {}x{} {}", ty.rows(), ty.width(), ty.element));
            format!("{}{}", op.name(), shape.unwrap_or_default())
        })
    }

    /// Counts the units of a step.
    fn count(&mut self, step: usize) {
        let Step { work, operands, inputs, .. } = &self.steps[step];
        // SAFETY: a kernel that is asked for its size reads and writes nothing of what its slices lead to.
        let operands = unsafe { Operands::new(&self.operands[operands.clone()], *inputs) };
        let Size { units, scratch } = work.size(operands);
        self.units[step] = units;
        self.scratch = self.scratch.max(scratch);
    }

    /// FLOPs of a step with the counts of this run, about: its share of what it would be at full capacity.
    fn flops(&self, graph: &Graph, step: usize) -> u64 {
        let Step { work: Work::Node(op), node, .. } = &self.steps[step] else { return 0 };
        let node = &graph.nodes()[*node];
        let absent = Type::absent();
        let types: Vec<&Type> = node.inputs.iter().map(|id| id.map_or(&absent, |id| graph.ty(id))).collect();
        let out = graph.ty(node.outputs[0]);
        let rows = out.extent.map_or(out.rows(), |extent| self.extents.get(extent));
        (u128::from(op.cost(&types).flops) * rows as u128 / out.rows().max(1) as u128) as u64
    }
}

struct Maker<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    bindings: &'a [Place],
    arena: Place,
    schedule: Schedule,
}

impl Maker<'_> {
    /// Adds a step over these values, of which the first `inputs` are inputs.
    fn step(&mut self, work: Work, values: &[Option<ValueId>], inputs: usize, node: usize) {
        let (start, step) = (self.schedule.operands.len(), self.schedule.steps.len());
        let root = |value: ValueId| self.plan.roots[value.index()];
        let output = values.get(inputs).copied().flatten();
        for value in values {
            let Some(value) = *value else {
                self.schedule.operands.push(Operand::ABSENT);
                continue;
            };
            let ty = self.graph.ty(value);
            let rows = ty.extent.map_or(ty.rows(), |extent| self.schedule.extents.get(extent));
            let mut operand = Operand::new(ty, rows, self.place(value));
            operand.in_place = output.is_some_and(|output| root(output) == root(value));
            let index = self.schedule.operands.len();
            if let Some(extent) = ty.extent {
                self.schedule.counted.push(Counted { extent, operand: index, step });
            }
            if let Origin::Binding(binding) = self.graph.values()[root(value).index()].origin
                && self.graph.bindings()[binding].kind == BindingKind::Data
            {
                self.schedule.data.push((index, binding));
            }
            self.schedule.operands.push(operand);
        }
        let operands = start..self.schedule.operands.len();
        self.schedule.steps.push(Step { work, operands, inputs, node });
        self.schedule.units.push(0);
    }

    fn place(&self, value: ValueId) -> Place {
        let root = self.plan.roots[value.index()];
        match self.graph.values()[root.index()].origin {
            Origin::Binding(index) => self.bindings[index],
            Origin::Node { .. } => {
                let offset = self.plan.offsets[value.index()].expect("the plan places what nodes make");
                let bytes = self.graph.ty(root).bytes().expect("a verified type has a size");
                assert!(offset + bytes <= self.arena.bytes, "{value}: outside the arena");
                // SAFETY: inside the arena by the line above.
                Place { start: unsafe { self.arena.start.add(offset) }, bytes }
            }
        }
    }
}

/// Whether every value of a graph fits an [`Operand`].
pub(crate) fn fits(graph: &Graph) -> Result<(), (&'static str, &Type)> {
    for node in graph.nodes() {
        let values = node.inputs.iter().flatten().chain(&node.outputs);
        for ty in values.map(|value| graph.ty(*value)) {
            if ty.rank() > crate::operand::AXES || ty.shape.0.iter().any(|size| u32::try_from(*size).is_err())
            {
                return Err((AnyOp::name(&node.op), ty));
            }
        }
    }
    Ok(())
}
