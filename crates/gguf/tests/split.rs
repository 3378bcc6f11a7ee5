//! Files in several parts.

use std::path::{Path, PathBuf};

use apprentice_gguf::{ErrorKind, Format, Gguf, Writer};
use common::folder;

mod common;

#[test]
fn the_first_part_opens_all() {
    let first = parts("split-all", 3, 6, |_, writer| writer);
    let file = Gguf::open(&first).unwrap();
    assert_eq!(file.str("general.name").unwrap(), Some("part 0"), "the metadata is that of the first part");
    let names: Vec<&str> = file.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["0.a", "0.b", "1.a", "1.b", "2.a", "2.b"]);
    for (index, tensor) in file.tensors().iter().enumerate() {
        let expected = [index as u8; 128];
        assert_eq!((file.bytes(tensor), &*file.shared_bytes(tensor)), (&expected[..], &expected[..]));
    }
}

#[test]
fn one_part_of_one_needs_no_name() {
    let first = parts("split-one", 1, 2, |_, writer| writer);
    let renamed = first.with_file_name("renamed.gguf");
    std::fs::rename(first, &renamed).unwrap();
    assert_eq!(Gguf::open(&renamed).unwrap().tensors().len(), 2);
}

#[test]
fn a_missing_part_is_named() {
    let first = parts("split-missing", 3, 6, |_, writer| writer);
    std::fs::remove_file(first.with_file_name("model-00002-of-00003.gguf")).unwrap();
    check(&first, ErrorKind::Missing, "model-00002-of-00003.gguf: ");
}

#[test]
fn a_part_that_is_no_gguf_file_is_named() {
    let first = parts("split-broken", 2, 4, |_, writer| writer);
    std::fs::write(first.with_file_name("model-00002-of-00002.gguf"), b"").unwrap();
    let expected = "model-00002-of-00002.gguf: expected a GGUF file, found an empty one";
    check(&first, ErrorKind::Input, expected);
}

#[test]
fn a_later_part_names_the_first() {
    let first = parts("split-later", 3, 6, |_, writer| writer);
    let expected = "expected the first of 3 parts, \"model-00001-of-00003.gguf\", found part 3";
    check(&first.with_file_name("model-00003-of-00003.gguf"), ErrorKind::Input, expected);
}

#[test]
fn a_name_without_its_number_is_refused() {
    let first = parts("split-name", 3, 6, |_, writer| writer);
    let renamed = first.with_file_name("renamed.gguf");
    std::fs::rename(&first, &renamed).unwrap();
    check(&renamed, ErrorKind::Input, "to be named like \"NAME-00001-of-00003.gguf\"");
}

#[test]
fn parts_in_the_wrong_place_are_refused() {
    let first = parts("split-swapped", 3, 6, |_, writer| writer);
    let (second, third) = (
        first.with_file_name("model-00002-of-00003.gguf"),
        first.with_file_name("model-00003-of-00003.gguf"),
    );
    std::fs::copy(third, second).unwrap();
    check(&first, ErrorKind::Input, "key \"split.no\": expected 1, for part 2 of 3, found 2");
}

#[test]
fn a_part_of_another_split_is_refused() {
    let first = parts("split-other", 3, 6, |_, writer| writer);
    let other = parts("split-other-2", 2, 4, |_, writer| writer);
    let second = "model-00002-of-00003.gguf";
    std::fs::copy(other.with_file_name("model-00002-of-00002.gguf"), first.with_file_name(second)).unwrap();
    check(&first, ErrorKind::Input, "key \"split.count\": expected 3, for part 2 of 3, found 2");
    std::fs::write(first.with_file_name(second), common::sample()).unwrap();
    check(&first, ErrorKind::Input, "key \"split.no\": expected 1, for part 2 of 3, found none");
}

#[test]
fn the_number_of_all_tensors_must_be_right() {
    let first = parts("split-total", 2, 5, |_, writer| writer);
    check(&first, ErrorKind::Input, "key \"split.tensors.count\": expected 5 tensors in all parts, found 4");
}

#[test]
fn a_tensor_in_two_parts_is_refused() {
    let first = parts("split-twice", 2, 5, |part, mut writer| {
        if part == 1 {
            writer.tensor("0.a", &[1], Format::F32, vec![0; 4]).unwrap();
        }
        writer
    });
    check(&first, ErrorKind::Input, "tensor \"0.a\": found twice");
}

#[test]
fn a_hostile_count_stops_at_the_first_missing_part() {
    let folder = folder("split-hostile");
    for count in [u64::MAX, 1 << 40] {
        let mut writer = Writer::new();
        writer.set("split.count", count).unwrap();
        let path = folder.join(format!("model-00001-of-{count:05}.gguf"));
        writer.write(&path).unwrap();
        check(&path, ErrorKind::Missing, &format!("model-00002-of-{count:05}.gguf: "));
    }
}

#[test]
fn a_file_in_memory_has_no_siblings() {
    let first = parts("split-memory", 2, 4, |_, writer| writer);
    let error = Gguf::from_bytes(std::fs::read(first).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
}

#[test]
fn every_part_is_in_the_fingerprint() {
    let first = parts("split-print", 2, 4, |_, writer| writer);
    let before = Gguf::open(&first).unwrap().fingerprint();
    let second = first.with_file_name("model-00002-of-00002.gguf");
    let mut bytes = std::fs::read(&second).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(second, bytes).unwrap();
    assert_ne!(Gguf::open(&first).unwrap().fingerprint(), before);
}

/// Writes `count` parts of two tensors each into a folder of their own, each changed by `change`, and gives the first.
fn parts(
    name: &str,
    count: u16,
    tensors: i32,
    change: impl for<'a> Fn(u16, Writer<'a>) -> Writer<'a>,
) -> PathBuf {
    let folder = folder(name);
    let path = |part: u16| folder.join(format!("model-{:05}-of-{count:05}.gguf", part + 1));
    for part in 0..count {
        let mut writer = Writer::new();
        writer.set("general.name", format!("part {part}")).expect("a key");
        writer.set("split.no", part).expect("a key");
        writer.set("split.count", count).expect("a key");
        writer.set("split.tensors.count", tensors).expect("a key");
        for (index, letter) in ["a", "b"].iter().enumerate() {
            let bytes = vec![(2 * part) as u8 + index as u8; 128];
            writer.tensor(&format!("{part}.{letter}"), &[32], Format::F32, bytes).expect("a tensor");
        }
        change(part, writer).write(&path(part)).expect("a part");
    }
    path(0)
}

/// Opening `path` fails with an error of this kind, whose message holds `expected`.
fn check(path: &Path, kind: ErrorKind, expected: &str) {
    let error = Gguf::open(path).expect_err(expected);
    assert!(error.to_string().contains(expected), "expected {expected:?}, found {error}");
    assert_eq!(error.kind(), kind, "{error}");
}
