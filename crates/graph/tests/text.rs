//! Text that is no graph: refused with its line, never a panic.

use apprentice_graph::parse;

/// The message for a graph whose body is `body`, one line or more from line 2 on.
fn check(body: &str, expected: &str) {
    let text = format!("graph {{\n{body}\n}}\n");
    let found = parse(&text).err().map(|error| error.to_string());
    assert_eq!(found.as_deref(), Some(expected), "{text}");
}

#[test]
fn statements_that_cannot_be_read() {
    check("x", r#"line 2: expected %, found "x""#);
    check("%0", r#"line 2: expected =, found """#);
    check(
        "%1 = data \"x\" : f32[2]",
        r#"line 2: expected value %0 next, not %1, found "= data \"x\" : f32[2]""#,
    );
    check(
        "%0, %1 = data \"x\" : f32[2]",
        r#"line 2: expected one value of a binding, found "\"x\" : f32[2]""#,
    );
    check("%0 = data x : f32[2]", r#"line 2: expected a quoted name, found "x : f32[2]""#);
    check("%0 = data 7 : f32[2]", r#"line 2: expected a quoted name, found ": f32[2]""#);
    check("%0 = data \"x\" f32[2]", r#"line 2: expected :, found "f32[2]""#);
    check("%0 = data \"x\" : f32[2] %1", r#"line 2: expected the end of the line, found "%1""#);
    check("%0 = data \"x\" : f32[2], f32[2]", r#"line 2: expected the end of the line, found ", f32[2]""#);
    check("return x %0", r#"line 2: expected a quoted name, found "x %0""#);
    check("write %0 %1", r#"line 2: expected ->, found "%1""#);
    check("graph {", r#"line 2: expected %, found "graph {""#);
}

#[test]
fn types_that_cannot_be_read() {
    check("%0 = data \"x\" : f31[2]", r#"line 2: expected an element, not "f31", found "[2]""#);
    check("%0 = weight \"x\" : weight:Q9[2]", r#"line 2: expected an element, not "weight:Q9", found "[2]""#);
    check("%0 = data \"x\" : f32", r#"line 2: expected [, found """#);
    check("%0 = data \"x\" : f32[2", r#"line 2: expected ,, found """#);
    check("%0 = data \"x\" : f32[-2]", r#"line 2: expected a number, found "-2]""#);
    check("%0 = data \"x\" : f32[99999999999999999999]", r#"line 2: expected a number that fits, found "]""#);
    check("%0 = data \"x\" : f32[2]@columns", r#"line 2: expected an extent, not "columns", found """#);
}

#[test]
fn nodes_that_cannot_be_read() {
    let node = |text: &str, expected: &str| {
        check(&format!("%0 = data \"x\" : f32[2]\n{text}"), expected);
    };
    node(
        "%1 = square(%0) {} \"a\" : f32[2]",
        r#"line 3: expected an op, not "square", found "\"a\" : f32[2]""#,
    );
    node("%1 = silu %0 {} \"a\" : f32[2]", r#"line 3: expected (, found "%0 {} \"a\" : f32[2]""#);
    node("%1 = silu(%0 %0) {} \"a\" : f32[2]", r#"line 3: expected ,, found "%0) {} \"a\" : f32[2]""#);
    node(
        "%1 = silu(%4294967296) {} \"a\" : f32[2]",
        r#"line 3: expected a value id below 2^32, found ") {} \"a\" : f32[2]""#,
    );
    node(
        "%1 = silu(%0) \"a\" : f32[2]",
        r#"line 3: expected attributes of silu: invalid type: string "a", expected struct Silu, found ": f32[2]""#,
    );
    node(
        "%1 = scale(%0) {} \"a\" : f32[2]",
        r#"line 3: expected attributes of scale: missing field `factor`, found "\"a\" : f32[2]""#,
    );
    node(
        "%1 = scale(%0) {\"factor\": \"a\" : f32[2]",
        r#"line 3: expected attributes, found "{\"factor\": \"a\" : f32[2]""#,
    );
}

#[test]
fn graphs_that_do_not_begin_or_end() {
    let check = |text: &str, expected: &str| {
        assert_eq!(parse(text).err().map(|error| error.to_string()).as_deref(), Some(expected), "{text}");
    };
    check("", r#"line 1: expected }, found """#);
    check("graph {", r#"line 2: expected }, found """#);
    check("}", r#"line 1: expected graph {, found "}""#);
    check("; graph {\n}", r#"line 2: expected graph {, found "}""#);
    assert!(parse("graph {\n}").is_ok());
}

#[test]
fn no_prefix_and_no_changed_byte_panics() {
    let text = include_str!("attention.graph");
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        let _ = parse(&text[..end]);
    }
    for at in 0..text.len() {
        for with in [b'0', b'9', b'"', b'%', b'{', b'[', b' ', b'\n', b'_', b'\\', b';'] {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = with;
            let _ = parse(std::str::from_utf8(&bytes).unwrap());
        }
    }
}
