//! The memory plan, by a run in which every byte remembers which value was written to it last.

use apprentice_graph::ops::{AdamW, Reshape, Silu};
use apprentice_graph::{Builder, Extent, Graph, Origin, Plan, Storage, Type, ValueId, plan};
use apprentice_testkit::little_model::LittleModel;
use apprentice_testkit::random::Random;
use apprentice_testkit::random_graph::random_graph;

const SEED: u64 = 20_260_704;
const GRAPHS: u64 = 300;

/// Runs the plan on tags. A view has the content of what it views; any other output is new content.
struct Tags<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    arena: Vec<Option<usize>>,
    /// For each value, the value whose node wrote its content.
    content: Vec<usize>,
    in_place: usize,
}

/// Bytes of one tag. Offsets are multiples of it.
const CELL: usize = 4;

impl Tags<'_> {
    fn range(&self, value: ValueId) -> Option<std::ops::Range<usize>> {
        let start = self.plan.offsets[value.index()]?;
        let bytes = self.graph.ty(value).bytes().expect("a size that fits");
        assert!(start.is_multiple_of(64), "{value} at {start}: no cache line");
        assert!(start + bytes <= self.plan.bytes, "{value} ends beyond the peak");
        Some(start / CELL..(start + bytes).div_ceil(CELL))
    }

    fn expect_intact(&self, value: ValueId, reader: &str) {
        let Some(range) = self.range(value) else {
            let bound =
                |value: ValueId| matches!(self.graph.values()[value.index()].origin, Origin::Binding(_));
            assert!(bound(self.plan.roots[value.index()]), "{value} has no place");
            return;
        };
        let wanted = Some(self.content[value.index()]);
        assert!(self.arena[range].iter().all(|tag| *tag == wanted), "{reader} reads {value}: overwritten");
    }

    fn node(&mut self, index: usize) {
        let node = &self.graph.nodes()[index];
        let reader = format!("node {index} {}", node.op.name());
        node.inputs.iter().flatten().for_each(|value| self.expect_intact(*value, &reader));
        for (output, value) in node.outputs.iter().enumerate() {
            if node.op.storage() == Storage::View && output == 0 {
                let viewed = node.inputs[0].expect("a view has an input");
                assert_eq!(self.range(*value), self.range(viewed), "{reader}: a view lies elsewhere");
                assert_eq!(self.plan.roots[value.index()], self.plan.roots[viewed.index()]);
                self.content[value.index()] = self.content[viewed.index()];
                continue;
            }
            let range = self.range(*value).unwrap_or_else(|| panic!("{reader}: {value} has no place"));
            for (slot, input) in node.inputs.iter().enumerate() {
                let Some(input) = input.and_then(|input| self.range(input)) else { continue };
                if input.start < range.end && range.start < input.end {
                    let allowed = output == 0 && node.op.storage() == Storage::InPlace(slot);
                    assert!(allowed, "{reader}: output {output} overlaps input {slot}");
                    assert_eq!(input, range, "{reader}: in place, and not in the same bytes");
                    self.in_place += 1;
                }
            }
        }
        // All outputs are written at once: none may lie in another's bytes.
        for value in &node.outputs {
            if self.content[value.index()] == value.index() {
                let range = self.range(*value).expect("looked up above");
                self.arena[range].fill(Some(value.index()));
            }
        }
        node.outputs.iter().for_each(|value| self.expect_intact(*value, &reader));
    }
}

/// Checks the plan of `graph` and counts what was written in place.
fn check(graph: &Graph) -> usize {
    check_plan(graph, &plan(graph))
}

fn check_plan(graph: &Graph, plan: &Plan) -> usize {
    let arena = vec![None; plan.bytes.div_ceil(CELL)];
    let content = (0..graph.values().len()).collect();
    let mut tags = Tags { graph, plan, arena, content, in_place: 0 };
    (0..graph.nodes().len()).for_each(|index| tags.node(index));
    graph.outputs().iter().for_each(|output| tags.expect_intact(output.value, "the caller"));
    for effect in graph.effects() {
        tags.expect_intact(effect.value, "an effect");
        effect.cells.into_iter().for_each(|cells| tags.expect_intact(cells, "an effect"));
    }
    let text = plan.to_string();
    assert_eq!(text.lines().last(), Some(format!("peak {} bytes", plan.bytes).as_str()));
    assert_eq!(plan.largest(usize::MAX).count(), text.lines().count() - 1, "a line a place");
    tags.in_place
}

#[test]
fn no_value_is_overwritten_before_its_last_reader() {
    let mut in_place = 0;
    for seed in SEED..SEED + GRAPHS {
        println!("seed {seed}");
        let nodes = 1 + Random::new(seed).below(60);
        in_place += check(&random_graph(seed, nodes).graph);
    }
    assert!(in_place > 1000, "only {in_place} nodes worked in place");
}

#[test]
fn a_value_moved_into_another_is_noticed() {
    let builder = Builder::new();
    let x = builder.data("x", Type::f32([4, 64])).scale(2.0);
    let [y] = builder.push(Silu {}, [x]);
    builder.output("y", y + x);
    let [x, y] = [x, y].map(|value| value.id().unwrap().index());
    let graph = builder.finish().unwrap();
    let (right, mut wrong) = (plan(&graph), plan(&graph));
    check_plan(&graph, &right);
    wrong.offsets[y] = right.offsets[x];
    assert!(std::panic::catch_unwind(|| check_plan(&graph, &wrong)).is_err());
}

#[test]
fn a_training_step_keeps_what_it_needs() {
    let step = LittleModel::exact().step(SEED).unwrap();
    assert!(step.graph.nodes().len() > 200);
    check(&step.graph);
}

#[test]
fn the_peak_is_to_the_byte() {
    let rows = || Type::f32([16, 64]).counted(Extent::Rows); // 4,096 bytes
    let check_peak = |expected: usize, build: &dyn Fn(&Builder)| {
        let builder = Builder::new();
        build(&builder);
        let graph = builder.finish().unwrap();
        check(&graph);
        assert_eq!(plan(&graph).bytes, expected, "{graph}{}", plan(&graph));
    };
    // A chain works in one place.
    check_peak(4096, &|b| b.output("y", b.data("x", rows()).scale(2.0).offset(1.0).scale(3.0)));
    // A binding is never written in place: each use has its own bytes.
    check_peak(8192, &|b| {
        let x = b.data("x", rows());
        b.output("y", x.scale(2.0));
        b.output("z", x.scale(3.0));
    });
    // A later reader keeps the input: no place is shared.
    check_peak(8192, &|b| {
        let x = b.data("x", rows()).scale(2.0);
        let [y] = b.push(Silu {}, [x]);
        b.output("y", y + x);
    });
    // Read by a view only, and the view is read later.
    check_peak(8192, &|b| {
        let x = b.data("x", rows()).scale(2.0);
        let [view] = b.push(Reshape { inner: vec![8, 8] }, [x]);
        b.output("y", x.offset(1.0));
        b.output("view", view);
    });
    // Both inputs the same value: in place would read what it has written.
    check_peak(8192, &|b| {
        let x = b.data("x", rows()).scale(2.0);
        b.output("y", x + x);
    });
    // Several outputs: the first in place, the others beside it.
    check_peak(3 * 4096, &|b| {
        let [p, g, m, v] = ["p", "g", "m", "v"].map(|name| b.data(name, rows()));
        let scalars = b.data("scalars", Type::f32([8]));
        let [p, m, v] = b.push(AdamW {}, [p.scale(1.0), g, m, v, scalars]);
        [("p", p), ("m", m), ("v", v)].into_iter().for_each(|(name, value)| b.output(name, value));
    });
    // Small values are rounded up to a cache line.
    check_peak(64, &|b| b.output("y", b.data("x", Type::f32([1])).scale(2.0)));
}
