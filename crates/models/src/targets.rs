//! Names of targets turned into sites: what `--targets` and PEFT's `target_modules` mean.

use std::collections::BTreeSet;

use crate::error::ModelError;
use crate::model::{Model, Site};

/// The word for every linear but the head.
pub const ALL_LINEAR: &str = "all-linear";

/// Indices of the sites that `names` mean, ascending.
///
/// A name is [`ALL_LINEAR`], or a PEFT module path or GGUF tensor name, whole or its last parts: `q_proj`,
/// `model.layers.0.self_attn.q_proj`, `attn_q`, `blk.0.attn_q.weight`.
///
/// # Errors
/// [`ModelError::Target`] for a name that means no site.
pub fn resolve(model: &Model, names: &[impl AsRef<str>]) -> Result<Vec<usize>, ModelError> {
    let mut indices = BTreeSet::new();
    for name in names {
        let name = name.as_ref();
        let mut found = model.sites().iter().enumerate().filter(|(_, site)| means(name, site)).peekable();
        if found.peek().is_none() {
            return Err(ModelError::Target { found: name.to_owned(), known: known(model) });
        }
        indices.extend(found.map(|(index, _)| index));
    }
    Ok(indices.into_iter().collect())
}

fn means(name: &str, site: &Site) -> bool {
    let ends = |whole: &str, end: &str| {
        whole.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    match name {
        "" => false,
        ALL_LINEAR => !site.head,
        _ => ends(&site.module, name) || ends(stem(&site.name), stem(name)),
    }
}

fn stem(name: &str) -> &str {
    name.strip_suffix(".weight").unwrap_or(name)
}

/// Every short name once, in the order of the sites.
fn known(model: &Model) -> String {
    let mut names = vec![ALL_LINEAR.to_owned()];
    for site in model.sites() {
        let [module, tensor] =
            [&site.module, stem(&site.name)].map(|name| name.rsplit('.').next().unwrap_or(name));
        let name = format!("{module} ({tensor})");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}
