//! A batch of a model as a filled graph: two sequences, one from its start and one across a border of pages, adapters on
//! every site, some labelled rows; what whole models are compared on below the engine.

use apprentice_graph::{Builder, Element, Extent, Extents, Graph, ValueId, differentiate, prune};
use apprentice_models::{Model, Numerics, Request, Want, names};

use crate::filled::{Data, Filled};
use crate::random::Random;

/// Rows of the batch: 9 from the start of one sequence, 6 of another that crosses a border of pages.
const SEQUENCES: [(usize, usize); 2] = [(9, 0), (6, 60)];
const ROWS: usize = 15;
const LABELLED: [i32; 4] = [2, 8, 10, 14];

/// What a model returns for the batch: logits of some rows, or their losses and the gradients of an adapter on every site
/// but the head. Every sequence has a page of its own for each 64 positions.
///
/// # Panics
/// Where the model gives no such graph, or a binding of it is not known here.
pub fn model_batch(model: &Model, want: Want, cache: Element, numerics: Numerics, seed: u64) -> Filled {
    let sites: Vec<usize> = match want {
        Want::Loss => (0..model.sites().len()).filter(|site| !model.sites()[*site].head).collect(),
        Want::Logits | Want::Greedy => Vec::new(),
    };
    let (rank_rows, cells) = (4, 64 * 4);
    let request = Request {
        want,
        rows: ROWS + 2,
        head_rows: LABELLED.len() + 1,
        sequences: SEQUENCES.len() + 1,
        page_entries: 4,
        cells: vec![cells; model.groups().len()],
        cache,
        sites,
        rank_rows,
        adapters: 2,
        segment: 128,
        numerics,
    };
    let graph = model.graph(&request).expect("a model's graph builds");
    let graph = if want == Want::Loss { with_gradients(graph) } else { graph };
    let mut random = Random::new(seed);
    let extents = Extents::default()
        .with(Extent::Rows, ROWS)
        .with(Extent::Outputs, LABELLED.len())
        .with(Extent::Labelled, LABELLED.len())
        .with(Extent::Sequences, SEQUENCES.len())
        .with(Extent::Adapters, 1)
        .with(Extent::RowBlocks, 3);
    let extents =
        (0..model.groups().len() as u8).fold(extents, |all, group| all.with(Extent::Pages(group), 3));
    let mut filled = Filled { graph, data: Vec::new(), extents };
    for binding in filled.graph.bindings() {
        let ty = filled.graph.ty(binding.value);
        let count: usize = filled.sizes(ty).iter().product();
        let tokens =
            |random: &mut Random| (0..count).map(|_| random.below(model.hyper().vocab) as i32).collect();
        let data = match (binding.name.as_str(), ty.element) {
            (name, _) if model.weight(name).is_some() => {
                let weight = model.weight(name).expect("just found");
                Data::Weight((*weight.bytes).as_ref().to_vec())
            }
            (names::TOKENS | names::LABELS, _) => Data::I32(tokens(&mut random)),
            (names::POSITIONS, _) => {
                let positions = SEQUENCES.iter().flat_map(|(rows, first)| *first..first + rows);
                Data::I32(positions.map(|position| position as i32).collect())
            }
            (names::SEQUENCES, _) => Data::I32(vec![0, 9, 0, 0, 9, 6, 60, 1]),
            (names::OUTPUTS | names::LABELLED, _) => Data::I32(LABELLED.to_vec()),
            (names::NAMED | names::NAMED_HEAD, _) => {
                Data::I32((0..count as i32).map(|row| if row % 4 == 1 { -1 } else { 0 }).collect())
            }
            ("blocks.rows" | "blocks.row_blocks", _) => Data::I32(vec![0, 9, 13, 2, 9, 4]),
            (name, _) if name.starts_with("pages.") => Data::I32(vec![2, 0, 3]),
            // Cell 64 * page + position % 64 of pages 2, then 0 and 3.
            (name, _) if name.starts_with("cells.") => {
                Data::I32((128..137).chain(60..64).chain(192..194).collect())
            }
            (name, Element::I32) if name.ends_with(".table") => Data::I32(vec![1, 3]),
            (name, _) if name.ends_with(".scales") => Data::F32(vec![0.5]),
            (_, Element::F16) => Data::Store(random.normals(count, 1.0)),
            (name, _) if name.ends_with("lora_a") || name.ends_with("lora_b") => {
                Data::Store(random.normals(count, 0.2))
            }
            (name, _) if name.ends_with(".keys") || name.ends_with(".values") => {
                Data::Store(random.normals(count, 1.0))
            }
            (names::FACTORS, _) => Data::F32(random.normals(count, 0.5)),
            (name, element) => panic!("{name:?}: nothing to fill {element} with"),
        };
        filled.data.push(data);
    }
    filled
}

/// The gradients of the weighted losses to the adapters, as outputs.
fn with_gradients(graph: Graph) -> Graph {
    let loss = graph.output(names::LOSS).expect("a graph of losses").1;
    let factors = graph.binding(names::FACTORS).expect("factors of the losses").value;
    let adapters = graph.bindings().iter().filter(|b| b.name.contains(".lora_"));
    let targets: Vec<ValueId> = adapters.map(|binding| binding.value).collect();
    assert!(!targets.is_empty(), "no adapter to be trained");
    let (graph, gradients) =
        differentiate(graph, &[(loss, factors)], &targets).expect("every op has its gradient");
    let builder = Builder::reopen(graph);
    for gradient in gradients {
        builder.output(&format!("gradient {}", gradient.target), builder.value(gradient.gradient));
    }
    prune(&builder.finish().expect("outputs more"))
}
