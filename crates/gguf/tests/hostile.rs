//! Files made to do harm, one refusal each.

use apprentice_gguf::{ErrorKind, Gguf};
use common::{Raw, folder, sample};

mod common;

#[test]
fn other_files() {
    check(vec![], ErrorKind::Input, "expected a GGUF file, found an empty one");
    check(
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(),
        ErrorKind::Input,
        "expected a GGUF file (magic \"GGUF\"), found \"\\x89PNG\" at byte 0",
    );
    check(
        b"GG".to_vec(),
        ErrorKind::Input,
        "byte 0: expected 4 bytes of magic, found the end of the file after 2",
    );
}

#[test]
fn other_versions_are_refused_by_name() {
    let version = |version: u32| Raw::default().bytes(b"GGUF").u32(version).bytes(&[0; 16]).0;
    for found in [0, 1, 4, u32::MAX] {
        let message = format!("expected GGUF version 2 or 3, found version {found}");
        check(version(found), ErrorKind::Unsupported, &message);
    }
    check(
        version(3 << 24),
        ErrorKind::Unsupported,
        "expected a little-endian file, found a big-endian one (GGUF version 3)",
    );
}

#[test]
fn counts_that_the_file_cannot_hold() {
    for count in [2, 1 << 32, 1 << 61, u64::MAX] {
        check(
            Raw::new(count, 0).data(8).0,
            ErrorKind::Input,
            &format!("byte 8: {count} tensors take at least 24 bytes each, found 24 to the end of the file"),
        );
        check(
            Raw::new(0, count).data(8).0,
            ErrorKind::Input,
            &format!("byte 16: {count} keys take at least 13 bytes each, found 16 to the end of the file"),
        );
        let array = |element: u32| Raw::new(0, 1).string("k").u32(9).u32(element).u64(count).0;
        for (element, each) in [(0, 1), (4, 4), (7, 1), (8, 8), (9, 12), (12, 8)] {
            let message = format!(
                "byte 41: {count} array elements take at least {each} bytes each, found 0 to the end of the file"
            );
            check(array(element), ErrorKind::Input, &message);
        }
    }
}

#[test]
fn lengths_that_the_file_cannot_hold() {
    for length in [6, 1 << 32, u64::MAX] {
        check(
            Raw::new(0, 1).u64(length).bytes(b"k1234").0,
            ErrorKind::Input,
            &format!("byte 32: expected {length} bytes of a key, found the end of the file after 5"),
        );
        check(
            Raw::new(0, 1).string("k").u32(8).u64(length).bytes(b"12345").0,
            ErrorKind::Input,
            &format!(
                "byte 45: expected {length} bytes of a metadata value, found the end of the file after 5"
            ),
        );
    }
}

#[test]
fn values_that_are_none() {
    let value = |value_type: u32, bytes: &[u8]| Raw::new(0, 1).string("k").u32(value_type).bytes(bytes).0;
    check(value(13, &[0; 8]), ErrorKind::Input, "byte 33: expected a value type from 0 to 12, found 13");
    check(value(7, &[2]), ErrorKind::Input, "byte 37: expected a boolean, 0 or 1, found 2");
    let bools = Raw::default().u32(7).u64(3).bytes(&[0, 1, 255]).0;
    check(value(9, &bools), ErrorKind::Input, "byte 51: expected a boolean, 0 or 1, found 255");
    let text = Raw::default().u64(3).bytes(&[b'a', 0xc3, b'b']).0;
    check(value(8, &text), ErrorKind::Input, "byte 46: expected UTF-8 in a metadata value");
    check(
        Raw::new(0, 1).u64(2).bytes(&[b'a', 0xff]).u32(0).bytes(&[1]).0,
        ErrorKind::Input,
        "byte 33: expected UTF-8 in a key",
    );
}

#[test]
fn arrays_nested_without_end() {
    let nested = |levels: usize| {
        let outer = Raw::new(0, 1).string("k").u32(9);
        (1..levels).fold(outer, |raw, _| raw.u32(9).u64(1)).u32(0).u64(0).0
    };
    assert!(Gguf::from_bytes(nested(8)).is_ok());
    for levels in [9, 10_000] {
        check(nested(levels), ErrorKind::Limit, "expected arrays nested at most 8 deep, found more");
    }
}

#[test]
fn names_that_are_there_twice() {
    let keys = Raw::new(0, 2).string("k").u32(0).bytes(&[1]).string("k").u32(0).bytes(&[2]);
    check(keys.0, ErrorKind::Input, "key \"k\": found twice");
    let tensors = Raw::new(2, 0).tensor("t", &[1], 0, 0).tensor("t", &[1], 0, 32).data(64);
    check(tensors.0, ErrorKind::Input, "tensor \"t\": found twice");
}

#[test]
fn names_that_are_too_long() {
    let long = "k".repeat(65536);
    check(
        Raw::new(0, 1).string(&long).u32(0).bytes(&[1]).0,
        ErrorKind::Limit,
        "expected a key of at most 65535 bytes, found 65536",
    );
    check(
        Raw::new(1, 0).tensor(&long, &[1], 0, 0).data(4).0,
        ErrorKind::Limit,
        "expected a tensor's name of at most 65535 bytes, found 65536",
    );
}

#[test]
fn a_name_cannot_break_the_line() {
    check(
        Raw::new(1, 0).tensor("a\nb\x1b[2J", &[1], 20, 0).data(4).0,
        ErrorKind::Unsupported,
        "tensor \"a\\nb\\u{1b}[2J\": block type IQ4_NL (20) is not supported",
    );
}

#[test]
fn alignments_that_are_none() {
    for found in [0, 24, 1 << 40] {
        check(
            Raw::new(0, 1).string("general.alignment").u32(10).u64(found).0,
            ErrorKind::Input,
            &format!("key \"general.alignment\": expected a power of two, found {found}"),
        );
    }
    check(
        Raw::new(0, 1).string("general.alignment").u32(6).u32(0).0,
        ErrorKind::Input,
        "key \"general.alignment\": expected an integer, found f32",
    );
}

#[test]
fn tensors_that_cannot_be() {
    let refuse = |extents: &[u64], block_type: u32, offset: u64, kind: ErrorKind, expected: &str| {
        let file = Raw::new(1, 0).tensor("t", extents, block_type, offset).data(64);
        check(file.0, kind, &format!("tensor \"t\": {expected}"));
    };
    refuse(&[1; 5], 0, 0, ErrorKind::Limit, "expected at most 4 dimensions, found 5");
    refuse(&[1], 77, 0, ErrorKind::Unsupported, "block type 77, which is none of GGUF's, is not supported");
    refuse(&[1], 39, 0, ErrorKind::Unsupported, "block type MXFP4 (39) is not supported");
    refuse(&[8], 0, 4, ErrorKind::Input, "expected an offset that is a multiple of 32, found 4");
    refuse(&[16, 3], 2, 0, ErrorKind::Input, "expected rows of a multiple of 32 values in Q4_0, found 16");
    refuse(
        &[4, 5],
        0,
        0,
        ErrorKind::Input,
        "[5, 4] in F32 needs 80 bytes from offset 0, found 64 bytes of data",
    );
    refuse(
        &[4, 4],
        0,
        32,
        ErrorKind::Input,
        "[4, 4] in F32 needs 64 bytes from offset 32, found 64 bytes of data",
    );
    for offset in [1 << 32, u64::MAX - 31] {
        let expected = format!("[1] in F32 needs 4 bytes from offset {offset}, found 64 bytes of data");
        refuse(&[1], 0, offset, ErrorKind::Input, &expected);
    }
    for extents in [&[1 << 62][..], &[1 << 31, 1 << 31, 4], &[u64::MAX, 1], &[1 << 32, 0, 1 << 32]] {
        let shape: Vec<u64> = extents.iter().rev().copied().collect();
        let expected = format!("shape {shape:?} in F32 has more bytes than can be counted");
        refuse(extents, 0, 0, ErrorKind::Input, &expected);
    }
}

#[test]
fn a_tensor_of_nothing_is_read() {
    let file = Gguf::from_bytes(Raw::new(1, 0).tensor("t", &[32, 0], 8, 0).data(0).0).unwrap();
    assert_eq!((file.tensors()[0].count(), file.bytes(&file.tensors()[0])), (0, &[][..]));
}

#[test]
fn tensors_that_share_bytes() {
    let overlap = |first: u64, second: u64| {
        Raw::new(2, 0).tensor("a", &[16], 0, first).tensor("b", &[16], 0, second).data(128).0
    };
    assert!(Gguf::from_bytes(overlap(0, 64)).is_ok() && Gguf::from_bytes(overlap(64, 0)).is_ok());
    check(overlap(0, 32), ErrorKind::Input, "tensor \"b\": its data begins inside that of \"a\"");
    check(overlap(32, 0), ErrorKind::Input, "tensor \"a\": its data begins inside that of \"b\"");
    check(overlap(32, 32), ErrorKind::Input, "tensor \"b\": its data begins inside that of \"a\"");
}

#[test]
fn a_header_without_end_in_a_sparse_file() {
    let path = folder("sparse").join("file.gguf");
    let array = |element: u32| Raw::new(0, 1).string("k").u32(9).u32(element).u64(1 << 38).0;
    // Terabytes of zeros that take no room: an array of them would be as large as it says.
    for bytes in [array(0), array(8), array(9), Raw::new(1 << 34, 0).0, Raw::new(0, 1 << 34).0] {
        std::fs::write(&path, bytes).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let error = Gguf::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
        assert!(
            error
                .to_string()
                .ends_with("expected metadata and tensor table of at most 67108864 bytes, found more")
        );
    }
}

#[test]
fn things_that_are_no_files() {
    let folder = folder("no-files");
    let missing = Gguf::open(&folder.join("absent.gguf")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Missing);
    assert!(missing.to_string().contains("absent.gguf: "), "{missing}");
    let directory = Gguf::open(&folder).unwrap_err();
    assert!(
        directory.to_string().ends_with("no-files: expected a file, found something else"),
        "{directory}"
    );
    let empty = folder.join("empty.gguf");
    std::fs::write(&empty, b"").unwrap();
    let error = Gguf::open(&empty).unwrap_err();
    assert!(error.to_string().ends_with("empty.gguf: expected a GGUF file, found an empty one"), "{error}");
    assert_eq!(error.cause().to_string(), "expected a GGUF file, found an empty one");
}

#[test]
fn the_fingerprint_sees_header_table_and_heads() {
    let print = |bytes: Vec<u8>| Gguf::from_bytes(bytes).unwrap().fingerprint();
    let bytes = sample();
    assert_eq!(print(bytes.clone()), print(bytes.clone()));
    let file = Raw::new(2, 0).tensor("a", &[2048], 0, 0).tensor("b", &[8], 0, 8192).data(8192 + 32).0;
    let before = print(file.clone());
    let data = file.len() - 8192 - 32;
    for (at, seen) in [(data, true), (data + 4095, true), (data + 4096, false), (data + 8192, true)] {
        let mut changed = file.clone();
        changed[at] ^= 1;
        assert_eq!(print(changed) != before, seen, "byte {at} from {data}");
    }
    // SHA-256 of a file without keys and tensors, taken with another program.
    assert_eq!(print(Raw::new(0, 0).0), "a4e5e156ddec27e286f75328784d7106b60a4eb1d246e950a001a3f944fbda99");
}

/// `bytes` are refused with an error of this kind, whose message holds `expected`.
fn check(bytes: Vec<u8>, kind: ErrorKind, expected: &str) {
    let error = Gguf::from_bytes(bytes).expect_err(expected);
    let message = error.to_string();
    assert!(message.contains(expected), "expected {expected:?}, found {message:?}");
    assert!(!message.contains('\n'), "{message:?} has more than one line");
    assert_eq!(error.kind(), kind, "{message}");
}
