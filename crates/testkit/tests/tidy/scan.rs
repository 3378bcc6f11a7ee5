//! Enough of Rust's lexical rules to tell code from comments and strings.

/// What becomes of the contents of strings.
#[derive(Clone, Copy, PartialEq)]
pub enum Strings {
    Keep,
    Blank,
}

/// `text` with comments, and on request the contents of strings, replaced by blanks. Line breaks stay.
pub fn without(text: &str, strings: Strings) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let comment = comment_length(rest);
        if comment > 0 {
            blank(&rest[..comment], &mut out);
            rest = &rest[comment..];
            continue;
        }
        let (open, close) = literal_borders(rest);
        if close == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        // A literal: its quotes stay, so that the code keeps its form.
        let body = &rest[open..close];
        // A raw string opens with one character more than it closes with.
        let end = (close + open.max(2) - 1).min(rest.len());
        out.push_str(&rest[..open]);
        match strings {
            Strings::Keep => out.push_str(body),
            Strings::Blank => blank(body, &mut out),
        }
        out.push_str(&rest[close..end]);
        rest = &rest[end..];
    }
    out
}

/// `code` (comments gone) without its `#[cfg(test)] mod .. { .. }`, found by the closing brace at a line's start.
pub fn without_tests(code: &str) -> String {
    let Some(from) = code.find("#[cfg(test)]\nmod ") else { return code.to_string() };
    match code[from..].find("\n}") {
        Some(length) => format!("{}{}", &code[..from], without_tests(&code[from + length + 2..])),
        None => code[..from].to_string(),
    }
}

/// Bodies of the ordinary strings in `code` (comments gone).
pub fn string_literals(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '\'']) {
        rest = &rest[at..];
        let (open, close) = literal_borders(rest);
        if close == 0 {
            rest = &rest[1..];
            continue;
        }
        if rest.starts_with('"') {
            found.push(&rest[open..close]);
        }
        rest = rest.get(close + 1..).unwrap_or_default();
    }
    found
}

/// Whether `word` stands in `code` as a whole word.
pub fn has_word(code: &str, word: &str) -> bool {
    let part_of_a_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        !code[..at].ends_with(part_of_a_word) && !code[at + word.len()..].starts_with(part_of_a_word)
    })
}

fn blank(text: &str, out: &mut String) {
    out.extend(text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
}

/// Length of the comment that `text` begins with, 0 where there is none. Block comments nest.
fn comment_length(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if !text.starts_with("/*") {
        return 0;
    }
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// Where the body of the string or character that `text` begins with starts and ends; (0, 0) where there is none.
fn literal_borders(text: &str) -> (usize, usize) {
    if text.starts_with('"') {
        return (1, escaped_end(text, 1, '"'));
    }
    if text.starts_with("r\"") || text.starts_with("r#") {
        let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
        let open = hashes + 2;
        if text[1 + hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            return (open, text[open..].find(&close).map_or(text.len(), |at| open + at));
        }
    }
    if let Some(rest) = text.strip_prefix('\'') {
        // A lifetime has no closing quote after one character.
        let first = rest.chars().next().unwrap_or(' ');
        if first == '\\' || rest[first.len_utf8()..].starts_with('\'') {
            return (1, escaped_end(text, 1, '\''));
        }
    }
    (0, 0)
}

fn escaped_end(text: &str, from: usize, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text[from..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return from + at,
            _ => {}
        }
    }
    text.len()
}

#[test]
fn the_scanner_knows_strings_from_comments() {
    let scan =
        |text: &str, strings: Strings, expected: &str| assert_eq!(without(text, strings), expected, "{text}");
    scan("a // b\nc", Strings::Blank, "a     \nc");
    scan("a /* b /* c */ d */ e", Strings::Blank, "a                   e");
    scan(r#"f("a // b", c)"#, Strings::Blank, r#"f("      ", c)"#);
    scan(r#"f("a // b", c)"#, Strings::Keep, r#"f("a // b", c)"#);
    scan(r#"f("\"x", y)"#, Strings::Blank, r#"f("   ", y)"#);
    scan(r##"f(r#"a"b"#, y)"##, Strings::Blank, r##"f(r#"   "#, y)"##);
    scan("'\"' + 'a 'b' \"c\"", Strings::Blank, "' ' + 'a ' ' \" \"");
    assert!(has_word("an unsafe {", "unsafe") && !has_word("forbid(unsafe_code)", "unsafe"));
    assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\n {}\n}\nb"), "a\n\nb");
    assert_eq!(string_literals(r#"f("a", "b\"c")"#), ["a", "b\\\"c"]);
}
