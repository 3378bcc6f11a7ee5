//! Metadata by key and type: conversions that fit, and refusals that say what was found.

use apprentice_gguf::{ErrorKind, Gguf, GgufError, Value, Writer};
use common::{sample, values, written};

mod common;

#[test]
fn integers_of_any_width_are_converted_where_they_fit() {
    for (key, value) in values() {
        let Some(expected) = value.as_integer() else { continue };
        check_integer(key, expected, "u32", |file| file.u32(key));
        check_integer(key, expected, "u64", |file| file.u64(key));
        check_integer(key, expected, "i64", |file| file.i64(key));
    }
}

#[test]
fn arrays_of_integers_of_any_width_too() {
    let file = file();
    for (key, expected) in
        [("u8s", vec![1, 2, 3]), ("i8s", vec![-1, 2]), ("i64s", vec![-1 << 40]), ("empty", vec![])]
    {
        assert_eq!(file.i64s(key).unwrap(), Some(expected));
    }
    assert_eq!(file.u64s("u16s").unwrap(), Some(vec![1, 65535]));
    let error = file.u64s("i8s").unwrap_err();
    assert_eq!(error.to_string(), "key \"i8s\": expected u64, found -1, which does not fit");
}

#[test]
fn floats_strings_and_booleans() {
    let file = file();
    assert_eq!(file.f32("f32").unwrap(), Some(-1.5));
    assert_eq!(file.f32("f64").unwrap(), Some(f32::INFINITY));
    assert_eq!(file.f64("f32").unwrap(), Some(-1.5));
    assert_eq!(file.f64("f64").unwrap(), Some(1e300));
    assert_eq!(file.f32s("f32s").unwrap(), Some(vec![0.25, -0.0]));
    assert_eq!(file.f32s("f64s").unwrap(), Some(vec![0.0]));
    assert_eq!(file.bool("true").unwrap(), Some(true));
    assert_eq!(file.bools("bools").unwrap(), Some(vec![true, false, true]));
    assert_eq!(file.str("string").unwrap(), Some("größer 語"));
    assert_eq!(file.strings("strings").unwrap(), Some(vec!["", "ab", "", "ü"]));
}

#[test]
fn an_absent_key_is_none() {
    let file = file();
    let key = "absent";
    assert!(file.u32(key).unwrap().is_none() && file.u64(key).unwrap().is_none());
    assert!(file.i64(key).unwrap().is_none() && file.i64s(key).unwrap().is_none());
    assert!(file.f32(key).unwrap().is_none() && file.f64(key).unwrap().is_none());
    assert!(file.bool(key).unwrap().is_none() && file.bools(key).unwrap().is_none());
    assert!(file.str(key).unwrap().is_none() && file.strings(key).unwrap().is_none());
    assert!(file.f32s(key).unwrap().is_none() && file.u64s(key).unwrap().is_none());
}

#[test]
fn another_type_is_named() {
    check_refused(|file| file.u32("true").err(), "key \"true\": expected an integer, found bool");
    check_refused(|file| file.u64("f32").err(), "key \"f32\": expected an integer, found f32");
    check_refused(|file| file.f32("u8").err(), "key \"u8\": expected a float, found u8");
    check_refused(|file| file.bool("u8").err(), "key \"u8\": expected bool, found u8");
    check_refused(
        |file| file.str("strings").err(),
        "key \"strings\": expected string, found array of string",
    );
    check_refused(
        |file| file.strings("string").err(),
        "key \"string\": expected array of string, found string",
    );
    check_refused(
        |file| file.f32s("i32s").err(),
        "key \"i32s\": expected array of f32 or f64, found array of i32",
    );
    check_refused(
        |file| file.i64s("nested").err(),
        "key \"nested\": expected array of integers, found array of array",
    );
    check_refused(|file| file.bools("u8s").err(), "key \"u8s\": expected array of bool, found array of u8");
}

#[test]
fn the_architecture_must_be_there() {
    let error = file().architecture().map(str::to_string).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::Missing, "key \"general.architecture\": missing".into())
    );
    let mut writer = Writer::new();
    writer.set("general.architecture", "tiny").unwrap();
    assert_eq!(Gguf::from_bytes(written(&writer)).unwrap().architecture().unwrap(), "tiny");
}

/// The getter `get`, of type `T`, gives `expected` where it fits and says so where it does not.
fn check_integer<T>(
    key: &str,
    expected: i128,
    name: &str,
    get: impl Fn(&Gguf) -> Result<Option<T>, GgufError>,
) where
    T: TryFrom<i128> + PartialEq + std::fmt::Debug,
{
    match (T::try_from(expected).ok(), get(&file())) {
        (Some(expected), Ok(Some(found))) => assert_eq!(found, expected, "{key} as {name}"),
        (None, Err(error)) => {
            let message = format!("key {key:?}: expected {name}, found {expected}, which does not fit");
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::Input, message));
        }
        (_, found) => panic!("{key} as {name}: expected {expected}, found {found:?}"),
    }
}

fn check_refused(get: impl Fn(&Gguf) -> Option<GgufError>, expected: &str) {
    let error = get(&file()).expect("a refusal");
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Input, expected.to_string()));
}

fn file() -> Gguf {
    assert!(values().iter().any(|(_, value)| matches!(value, Value::I64(_))), "the sample has all types");
    Gguf::from_bytes(sample()).expect("a valid file")
}
