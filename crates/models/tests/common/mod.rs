//! What the tests of adapters share: tiny golden models, folders to write in, tensors of files.
#![allow(clippy::unwrap_used, reason = "a helper of a test may fail as the test does")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use apprentice_gguf::Gguf;
use apprentice_models::adapter_file::{self, ReadOptions};
use apprentice_models::{Adapter, AdapterNaming, Model};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

/// The golden instances.
pub const INSTANCES: [&str; 5] = ["llama", "qwen2", "qwen3", "gemma3", "extra/llamabias"];

/// Tensors of a safetensors file: shape and float32 values by name.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// A file of the golden instances.
pub fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/archs").join(file)
}

/// A golden model.
pub fn model(name: &str) -> Model {
    Model::open(Gguf::open(&golden(&format!("{name}.gguf"))).unwrap()).unwrap()
}

/// The golden adapter of a model, alpha 4.
pub fn adapter(model: &Model, name: &str) -> (Adapter, AdapterNaming) {
    let options = ReadOptions { alpha: Some(4.0), force: false };
    adapter_file::read(model, &golden(&format!("{name}.adapter.safetensors")), &options).unwrap()
}

/// An empty folder of this name.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The tensors of a file, which are all float32.
pub fn read_tensors(path: &Path) -> Tensors {
    let bytes = fs::read(path).unwrap();
    let parsed = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |(name, view): (String, TensorView<'_>)| {
        assert_eq!(view.dtype(), Dtype::F32, "{name}");
        let values = view.data().chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()));
        (name, (view.shape().to_vec(), values.collect()))
    };
    parsed.tensors().into_iter().map(tensor).collect()
}

/// A safetensors file.
pub fn write_tensors(path: &Path, tensors: &Tensors, metadata: &[(&str, &str)]) {
    let bytes: Vec<_> = tensors
        .values()
        .map(|(_, values)| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
        .collect();
    let views = tensors.iter().zip(&bytes).map(|((name, (shape, _)), bytes)| {
        (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    let metadata: HashMap<_, _> =
        metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    fs::write(
        path,
        safetensors::serialize(views, Some(metadata).filter(|metadata| !metadata.is_empty())).unwrap(),
    )
    .unwrap();
}

/// The same values to the bit.
pub fn assert_same(found: &Adapter, expected: &Adapter) {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(found.rows, expected.rows);
    assert_eq!(found.sites(), expected.sites());
    for (found, expected) in found.pairs.iter().zip(&expected.pairs) {
        let site = found.site;
        assert_eq!(found.rank, expected.rank, "rank at site {site}");
        assert_eq!(found.scale.to_bits(), expected.scale.to_bits(), "scale at site {site}");
        assert_eq!(bits(&found.a), bits(&expected.a), "A at site {site}");
        assert_eq!(bits(&found.b), bits(&expected.b), "B at site {site}");
    }
}
