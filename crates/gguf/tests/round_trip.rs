//! What is written is read back: values, tensors, alignments, versions; and what a writer refuses.

use std::io::Write as _;

use apprentice_gguf::{Array, ErrorKind, Format, Gguf, GgufError, Value, ValueType, Writer};
use common::{folder, sample, strings, tensors, values, written};

mod common;

#[test]
fn every_type_of_value_and_every_tensor() {
    check(&sample(), 3, 32);
}

#[test]
fn version_2() {
    let mut bytes = sample();
    bytes[4] = 2;
    check(&bytes, 2, 32);
}

#[test]
fn any_power_of_two_aligns_the_data() {
    for alignment in [1u32, 8, 32, 64, 4096] {
        let mut writer = Writer::new();
        writer.set("general.alignment", alignment).unwrap();
        for (name, shape, format, bytes) in tensors() {
            writer.tensor(name, &shape, format, bytes).unwrap();
        }
        let bytes = written(&writer);
        let file = Gguf::from_bytes(bytes.clone()).unwrap();
        assert_eq!(file.alignment(), u64::from(alignment));
        let start = file.bytes(&file.tensors()[0]).as_ptr() as usize;
        for (tensor, (name, _, _, expected)) in file.tensors().iter().zip(tensors()) {
            let found = file.bytes(tensor);
            assert_eq!((tensor.name.as_str(), found), (name, &expected[..]), "alignment {alignment}");
            let offset = found.as_ptr() as usize - start;
            assert!(
                offset.is_multiple_of(alignment as usize),
                "{name}: offset {offset}, alignment {alignment}"
            );
        }
        assert!(bytes.len().is_multiple_of(alignment as usize), "the end is padded too");
    }
}

#[test]
fn type_numbers_are_those_of_the_format() {
    let expected = "u8 i8 u16 i16 u32 i32 f32 bool string array u64 i64 f64";
    let names: Vec<&str> = ValueType::ALL.iter().map(|value| value.name()).collect();
    assert_eq!(names.join(" "), expected);
    for (id, value) in ValueType::ALL.iter().enumerate() {
        assert_eq!((value.id(), ValueType::from_id(id as u32)), (id as u32, Some(*value)));
    }
    assert_eq!(ValueType::from_id(13), None);
}

#[test]
fn bytes_lie_where_the_format_says() {
    let mut writer = Writer::new();
    writer.set("k", 5u16).unwrap();
    writer.tensor("t", &[2, 1], Format::F16, vec![1, 2, 3, 4]).unwrap();
    let mut expected = b"GGUF\x03\0\0\0".to_vec();
    expected.extend(*b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0");
    expected.extend(*b"\x01\0\0\0\0\0\0\0k\x02\0\0\0\x05\0");
    expected.extend(*b"\x01\0\0\0\0\0\0\0t\x02\0\0\0");
    expected.extend(*b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"); // innermost first
    expected.extend(*b"\x01\0\0\0\0\0\0\0\0\0\0\0");
    expected.resize(96, 0); // 80 bytes of header
    expected.extend(*b"\x01\x02\x03\x04");
    expected.resize(128, 0);
    assert_eq!(written(&writer), expected);
}

#[test]
fn a_file_without_tensors_needs_no_data() {
    let mut writer = Writer::new();
    writer.set("general.name", "vocabulary").unwrap();
    let bytes = written(&writer);
    let header = 8 + 16 + (8 + 12) + 4 + (8 + 10);
    for length in [bytes.len(), header] {
        let file = Gguf::from_bytes(bytes[..length].to_vec()).unwrap();
        assert_eq!(file.str("general.name").unwrap(), Some("vocabulary"));
        assert!(file.tensors().is_empty());
    }
}

#[test]
fn padding_after_the_last_tensor_may_be_absent() {
    let mut writer = Writer::new();
    writer.tensor("a", &[3], Format::F32, vec![7; 12]).unwrap();
    let mut bytes = written(&writer);
    bytes.truncate(bytes.len() - 20);
    let file = Gguf::from_bytes(bytes).unwrap();
    assert_eq!(file.bytes(&file.tensors()[0]), [7; 12]);
}

#[test]
fn shared_bytes_outlive_their_file() {
    let path = folder("shared").join("file.gguf");
    std::fs::write(&path, sample()).unwrap();
    let file = Gguf::open(&path).unwrap();
    let shared = file.shared_bytes(file.tensor("b").unwrap());
    drop(file);
    let second = shared.clone();
    drop(shared);
    let sum = std::thread::spawn(move || second.iter().map(|&byte| u32::from(byte)).sum::<u32>());
    assert_eq!(sum.join().unwrap(), (0..170).sum());
}

#[test]
fn writing_replaces_a_file_and_leaves_nothing_else() {
    let folder = folder("atomic");
    let path = folder.join("file.gguf");
    for length in [4, 8] {
        let mut writer = Writer::new();
        writer.tensor("a", &[length], Format::F32, vec![1; 4 * length]).unwrap();
        writer.write(&path).unwrap();
        assert_eq!(Gguf::open(&path).unwrap().tensors()[0].shape, [length]);
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");

    let error = Writer::new().write(&folder.join("absent/file.gguf")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
    assert!(error.to_string().contains("absent/file.gguf: "), "{error}");
    // A folder cannot be replaced by a file.
    let error = Writer::new().write(&folder).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let siblings = std::fs::read_dir(folder.parent().unwrap()).unwrap();
    let left =
        siblings.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains(".tmp"));
    assert_eq!(left.count(), 0, "the temporary file is removed after a failure");
}

#[test]
fn a_failure_to_write_is_reported() {
    let mut full = [0; 100];
    let error = {
        let mut out = &mut full[..];
        let mut writer = Writer::new();
        writer.tensor("a", &[64], Format::F32, vec![1; 256]).unwrap();
        writer.write_to(&mut out).and_then(|()| Ok(out.flush()?)).unwrap_err()
    };
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn a_writer_refuses_what_a_reader_would() {
    let refuse = |change: &dyn Fn(&mut Writer<'_>) -> Result<(), GgufError>, expected: &str| {
        let mut writer = Writer::new();
        writer.set("key", 1u8).unwrap();
        writer.tensor("name", &[1], Format::F32, vec![0; 4]).unwrap();
        let before = written(&writer);
        assert_eq!(change(&mut writer).unwrap_err().to_string(), expected);
        assert_eq!(written(&writer), before, "{expected}: the writer is unchanged");
    };
    refuse(&|writer| writer.set("key", 2u8), "key \"key\": found twice");
    refuse(
        &|writer| writer.set("general.alignment", 24u32),
        "key \"general.alignment\": expected a power of two, found 24",
    );
    refuse(
        &|writer| writer.set("general.alignment", "wide"),
        "key \"general.alignment\": expected an integer, found string",
    );
    refuse(
        &|writer| writer.set("deep", (0..8).fold(Array::U8(vec![]), |array, _| Array::Arrays(vec![array]))),
        "expected arrays nested at most 8 deep, found more",
    );
    refuse(
        &|writer| writer.set(&"k".repeat(65536), 0u8),
        "expected a key of at most 65535 bytes, found 65536",
    );
    refuse(&|writer| writer.tensor("name", &[1], Format::F32, vec![0; 4]), "tensor \"name\": found twice");
    refuse(
        &|writer| writer.tensor("other", &[2, 2], Format::F32, vec![0; 15]),
        "tensor \"other\": [2, 2] in F32 needs 16 bytes, found 15",
    );
    refuse(
        &|writer| writer.tensor("other", &[2, 33], Format::Q8_0, vec![0; 70]),
        "tensor \"other\": expected rows of a multiple of 32 values in Q8_0, found 33",
    );
    refuse(
        &|writer| writer.tensor("other", &[1; 5], Format::F32, vec![0; 4]),
        "tensor \"other\": expected at most 4 dimensions, found 5",
    );
    refuse(
        &|writer| writer.tensor("other", &[0, usize::MAX, 4], Format::F32, vec![]),
        &format!("tensor \"other\": shape [0, {}, 4] in F32 has more bytes than can be counted", usize::MAX),
    );
}

#[test]
fn strings_share_one_text() {
    let all = strings(&["", "ab", "", "ü"]);
    assert_eq!((all.len(), all.is_empty()), (4, false));
    assert_eq!(
        (0..5).map(|index| all.get(index)).collect::<Vec<_>>(),
        [Some(""), Some("ab"), Some(""), Some("ü"), None]
    );
    assert_eq!(all.iter().collect::<Vec<_>>(), ["", "ab", "", "ü"]);
    assert_eq!(all.iter().len(), 4);
    assert_eq!(format!("{all:?}"), r#"["", "ab", "", "ü"]"#);
}

/// `bytes` hold `values` and `tensors` in their order.
fn check(bytes: &[u8], version: u32, alignment: u64) {
    let file = Gguf::from_bytes(bytes.to_vec()).expect("a valid file");
    assert_eq!((file.version(), file.alignment()), (version, alignment));
    let found: Vec<(&str, &Value)> = file.metadata().collect();
    let expected = values();
    assert_eq!(found, expected.iter().map(|(key, value)| (*key, value)).collect::<Vec<_>>());
    for (key, value) in &expected {
        assert_eq!(file.get(key), Some(value));
    }
    assert_eq!(file.get("absent"), None);
    assert_eq!(file.tensors().len(), tensors().len());
    for (tensor, (name, shape, format, bytes)) in file.tensors().iter().zip(tensors()) {
        assert_eq!((tensor.name.as_str(), &tensor.shape, tensor.format), (name, &shape, format));
        assert_eq!((tensor.count(), tensor.byte_count()), (shape.iter().product(), bytes.len()));
        assert_eq!(file.bytes(tensor), bytes);
        assert_eq!(file.tensor(name), Some(tensor));
    }
    assert_eq!(file.tensor("absent"), None);
}
