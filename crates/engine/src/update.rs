//! The graphs of a learning step: gradients with the square of their norm, and the clipped AdamW update.

use apprentice_graph::{Builder, Graph, GraphError, Target, Type, differentiate_onto, ops, prune};
use apprentice_models::{Model, Request, names};

use crate::error::EngineError;

/// Output of the gradient program: float64 `[1]`, the sum of squares of all gradients summed.
pub(crate) const SQUARES: &str = "squares";
/// Output of the update program: float64 `[1]`, the sum of squares of the next generation; not finite where it is not.
pub(crate) const NEXT_SQUARES: &str = "next_squares";
/// Data of the update program: float32 `[1]`, the norm that gradients are clipped to.
pub(crate) const LIMIT: &str = "limit";
/// Data of the update program: float32 `[8]`, see [`ops::AdamW`].
pub(crate) const SCALARS: &str = "scalars";

/// One trained matrix: what its bindings are called.
pub(crate) struct Trained {
    /// The adapter store, `blk.0.attn_q.weight.lora_a`.
    pub(crate) name: String,
    /// `[rank_rows, width]`.
    pub(crate) ty: Type,
}

/// The matrices of `sites` with `rank_rows` rows, in the order of their names: the order of the norm.
pub(crate) fn trained(model: &Model, sites: &[usize], rank_rows: usize) -> Vec<Trained> {
    let mut all: Vec<Trained> = sites
        .iter()
        .flat_map(|site| {
            let site = &model.sites()[*site];
            [
                Trained { name: names::adapter_a(&site.name), ty: Type::f32([rank_rows, site.input]) },
                Trained { name: names::adapter_b(&site.name), ty: Type::f32([rank_rows, site.output]) },
            ]
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Store of the sum so far of a gradient.
pub(crate) fn gradient(name: &str) -> String {
    format!("{name}.gradient")
}

/// Store of the same with a micro-batch added.
pub(crate) fn next_gradient(name: &str) -> String {
    format!("{name}.next_gradient")
}

/// Losses of the labelled rows; the gradient of every trained matrix, added to the sum so far, as the next sum; and the
/// square of their norm.
pub(crate) fn gradient_graph(model: &Model, request: &Request) -> Result<Graph, EngineError> {
    let trained = trained(model, &request.sites, request.rank_rows);
    let builder = Builder::reopen(model.graph(request)?);
    for matrix in &trained {
        builder.store(&gradient(&matrix.name), matrix.ty.clone());
    }
    let forward = builder.finish()?;
    let missing = |name: &str| GraphError::Unreached { target: name.to_owned() };
    let value = |name: &str| forward.binding(name).map(|binding| binding.value).ok_or_else(|| missing(name));
    let (_, loss) = forward.output(names::LOSS).ok_or_else(|| missing(names::LOSS))?;
    let seeds = [(loss, value(names::FACTORS)?)];
    let target = |matrix: &Trained| {
        Ok(Target { value: value(&matrix.name)?, sum: Some(value(&gradient(&matrix.name))?) })
    };
    let targets = trained.iter().map(target).collect::<Result<Vec<_>, GraphError>>()?;
    let (graph, gradients) = differentiate_onto(forward, &seeds, &targets)?;
    let builder = Builder::reopen(graph);
    builder.site("norm");
    let mut squares = builder.absent();
    for (matrix, gradient_of) in trained.iter().zip(gradients) {
        let sum = builder.value(gradient_of.gradient);
        builder.effect(sum, builder.store(&next_gradient(&matrix.name), matrix.ty.clone()), None);
        [squares] = builder.push(ops::AddSquares {}, [sum, squares]);
    }
    builder.output(SQUARES, squares);
    Ok(prune(&builder.finish()?))
}

/// Names of the stores that an update reads and writes for one matrix.
pub(crate) struct UpdateNames {
    pub(crate) moment: String,
    pub(crate) square: String,
    pub(crate) next: String,
    pub(crate) next_moment: String,
    pub(crate) next_square: String,
}

impl UpdateNames {
    pub(crate) fn new(name: &str) -> UpdateNames {
        UpdateNames {
            moment: format!("{name}.moment"),
            square: format!("{name}.square"),
            next: format!("{name}.next"),
            next_moment: format!("{name}.next_moment"),
            next_square: format!("{name}.next_square"),
        }
    }
}

/// Clips by the norm and takes one AdamW step of every matrix into the next generation's stores.
pub(crate) fn update_graph(trained: &[Trained]) -> Result<Graph, EngineError> {
    let builder = Builder::new();
    builder.site("clip");
    let squares = builder.data(SQUARES, Type::f64([1]));
    let limit = builder.data(LIMIT, Type::f32([1]));
    let scalars = builder.data(SCALARS, Type::f32([8]));
    let [factor] = builder.push(ops::ClipFactor {}, [squares, limit]);
    let mut next_squares = builder.absent();
    for matrix in trained {
        builder.site(&matrix.name);
        let at = UpdateNames::new(&matrix.name);
        let store = |name: &str| builder.store(name, matrix.ty.clone());
        let clipped = store(&gradient(&matrix.name)) * factor;
        let state = [store(&matrix.name), clipped, store(&at.moment), store(&at.square), scalars];
        let [parameter, moment, square] = builder.push(ops::AdamW {}, state);
        [next_squares] = builder.push(ops::AddSquares {}, [parameter, next_squares]);
        builder.effect(parameter, store(&at.next), None);
        builder.effect(moment, store(&at.next_moment), None);
        builder.effect(square, store(&at.next_square), None);
    }
    builder.output(NEXT_SQUARES, next_squares);
    Ok(builder.finish()?)
}
