//! Sums of lists, on the budget.
//!
//! The engine of templates adds lists without doing so: a sum is a tree of its parts, which is written out, unpaid, when
//! it is 32 sums deep. A list added to itself so often would be written out as 2^32 items. So each operand of a `+`
//! goes through a filter that writes out what is no plain list yet, and pays for its items (numbers and strings need none):
//! `a + b * c` becomes `(a)|guard + (b * c)|guard`.
//!
//! The operands are found among the words of an expression: names, numbers, strings and brackets with what follows them
//! closer than a `+` (`.name`, `[..]`, `(..)`, `|filter`, `is test`), joined by `*`, `/`, `//`, `%` and `**`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, State};

/// Name of the filter.
pub(super) const FILTER: &str = "guard";

/// Items of a plain list for a unit of fuel.
const ITEMS_A_UNIT: usize = 8;

/// The filter: a list whose items are there and paid for; any other value as it is.
pub(super) fn guard(state: &State, value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Seq => {
            state.consume_fuel((value.len().unwrap_or(0) / ITEMS_A_UNIT) as u64)?;
            Ok(value)
        }
        ValueKind::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter()? {
                state.consume_fuel(1)?;
                items.push(item);
            }
            Ok(Value::from(items))
        }
        _ => Ok(value),
    }
}

/// Operands that are guarded; published templates have some hundred. The engine takes the square of a long sum's length.
const OPERANDS_MAX: usize = 2000;

/// `source` with the operands of its sums guarded; none where it has too many. No line moves.
pub(super) fn guarded(source: &str) -> Option<String> {
    let mut edits = Vec::new();
    let mut at = 0;
    while let Some(found) = source[at..].find('{') {
        let start = at + found;
        at = match source[start..].get(..2) {
            Some("{#") => source[start..].find("#}").map_or(source.len(), |end| start + end + 2),
            Some(open @ ("{{" | "{%")) => {
                let statement = open == "{%";
                let (words, end) = words(source, start + 2, if statement { "%}" } else { "}}" });
                if statement && words.first().is_some_and(|word| &source[word.start..word.end] == "raw") {
                    source[end..].find("endraw").map_or(source.len(), |found| end + found)
                } else {
                    let mut sums = Sums { source, words: &words, edits: &mut edits };
                    sums.terms(usize::from(statement));
                    end
                }
            }
            _ => start + 1,
        };
    }
    if edits.len() > 2 * OPERANDS_MAX {
        return None;
    }
    edits.sort_by_key(|(position, _)| *position);
    let mut written = String::with_capacity(source.len() + edits.len() * 8);
    let mut done = 0;
    for (position, text) in edits {
        written += &source[done..position];
        written += text;
        done = position;
    }
    Some(written + &source[done..])
}

/// A word of an expression, by its bytes of the source.
#[derive(Clone, Copy)]
struct Word {
    kind: Kind,
    start: usize,
    end: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A name that may be a value.
    Name,
    /// A name that is none.
    Keyword,
    Number,
    Text,
    Open,
    Close,
    Operator,
}

const KEYWORDS: [&str; 8] = ["and", "else", "if", "in", "is", "not", "or", "recursive"];

/// The words from `start` to the tag's end, and the byte after that.
fn words(source: &str, start: usize, tag_end: &str) -> (Vec<Word>, usize) {
    let bytes = source.as_bytes();
    let mut words = Vec::new();
    let mut at = start + usize::from(matches!(bytes.get(start), Some(b'-' | b'+')));
    let mut depth = 0usize;
    while let Some(byte) = bytes.get(at) {
        let rest = &source[at..];
        let ends = rest.strip_prefix(['-', '+']).unwrap_or(rest).starts_with(tag_end);
        if ends && (depth == 0 || tag_end == "%}") {
            return (words, at + rest.find(tag_end).unwrap_or(0) + tag_end.len());
        }
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let length = |ends: &dyn Fn(char) -> bool| rest.find(ends).unwrap_or(rest.len());
        let first = rest.chars().next().unwrap_or(' ');
        let (kind, length) = match byte {
            b'\'' | b'"' => (Kind::Text, text_length(rest, *byte)),
            b'(' | b'[' | b'{' => {
                depth += 1;
                (Kind::Open, 1)
            }
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                (Kind::Close, 1)
            }
            b'0'..=b'9' => (Kind::Number, number_length(rest)),
            b'*' | b'/' if bytes.get(at + 1) == Some(byte) => (Kind::Operator, 2),
            _ if is_name(first) => {
                let length = length(&|c| !is_name(c));
                let keyword = KEYWORDS.contains(&&rest[..length]);
                (if keyword { Kind::Keyword } else { Kind::Name }, length)
            }
            _ if first.is_whitespace() => {
                at += first.len_utf8();
                continue;
            }
            _ => (Kind::Operator, first.len_utf8()),
        };
        words.push(Word { kind, start: at, end: at + length });
        at += length;
    }
    (words, source.len())
}

/// Bytes of a string with its quotes.
fn text_length(text: &str, quote: u8) -> usize {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            byte if byte == quote => return index + 1,
            _ => {}
        }
    }
    text.len()
}

/// Bytes of a number: digits, and a point if digits follow.
fn number_length(text: &str) -> usize {
    let digits =
        |text: &str| text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let whole = digits(text);
    match text[whole..].strip_prefix('.') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => whole + 1 + digits(rest),
        _ => whole,
    }
}

/// Finds the operands of sums among words.
struct Sums<'a> {
    source: &'a str,
    words: &'a [Word],
    edits: &'a mut Vec<(usize, &'static str)>,
}

impl Sums<'_> {
    /// Goes over terms from word `at` to the bracket that closes them, or to the end; gives where that is.
    fn terms(&mut self, mut at: usize) -> usize {
        while let Some(word) = self.words.get(at) {
            if word.kind == Kind::Close {
                return at;
            }
            let Some(end) = self.factors(at) else {
                at += 1;
                continue;
            };
            let is_sum = (at > 0 && self.is(at - 1, "+")) || self.is(end, "+");
            let is_list = end > at + 1 || !matches!(word.kind, Kind::Number | Kind::Text);
            if is_sum && is_list {
                self.edits.push((self.words[at].start, "("));
                self.edits.push((self.words[end - 1].end, ")|guard"));
            }
            // What joins two terms is no sign of the second.
            at = end + usize::from(self.kind(end) == Some(Kind::Operator));
        }
        at
    }

    /// The end of the product that begins at word `at`; none where none begins.
    fn factors(&mut self, at: usize) -> Option<usize> {
        let mut end = self.factor(at)?;
        while ["*", "/", "//", "%", "**"].iter().any(|operator| self.is(end, operator)) {
            match self.factor(end + 1) {
                Some(longer) => end = longer,
                None => break,
            }
        }
        Some(end)
    }

    /// The end of one factor: a value, signs before it, and what follows it closely.
    fn factor(&mut self, mut at: usize) -> Option<usize> {
        while self.is(at, "-") {
            at += 1;
        }
        at = match self.kind(at)? {
            Kind::Name | Kind::Number | Kind::Text => at + 1,
            Kind::Open => self.terms(at + 1) + 1,
            Kind::Keyword | Kind::Close | Kind::Operator => return None,
        };
        loop {
            at = if (self.is(at, ".") || self.is(at, "|")) && self.kind(at + 1).is_some() {
                at + 2
            } else if self.kind(at) == Some(Kind::Open) && !self.is(at, "{") {
                self.terms(at + 1) + 1
            } else if self.is(at, "is") {
                let name = at + 1 + usize::from(self.is(at + 1, "not"));
                match self.kind(name + 1) {
                    Some(Kind::Name | Kind::Number | Kind::Text) => self.factor(name + 1).unwrap_or(name + 1),
                    _ => name + 1,
                }
            } else {
                return Some(at.min(self.words.len()));
            };
        }
    }

    fn kind(&self, at: usize) -> Option<Kind> {
        self.words.get(at).map(|word| word.kind)
    }

    fn is(&self, at: usize, text: &str) -> bool {
        self.words
            .get(at)
            .is_some_and(|word| word.kind != Kind::Text && &self.source[word.start..word.end] == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_of_sums_are_guarded() {
        let check =
            |source: &str, expected: &str| assert_eq!(guarded(source).as_deref(), Some(expected), "{source}");
        let same = |source: &str| check(source, source);
        same("a + b");
        same("{# a + b #}{% raw %}{{ a + b }}{% endraw %}");
        same("{{- 'a + b' ~ \"+\\\" + \" -}}{%+ if a - b * -c +%}");
        check("{{ a + b }}", "{{ (a)|guard + (b)|guard }}");
        check("{{a+b+c}}", "{{(a)|guard+(b)|guard+(c)|guard}}");
        check("{{ a - b + -c * d }}", "{{ a - (b)|guard + (-c * d)|guard }}");
        check(
            "{{ 'x}}' + m['a' + b].c(d)|trim ~ e }}",
            "{{ 'x}}' + (m['a' + (b)|guard].c(d)|trim)|guard ~ e }}",
        );
        check(
            "{% set ns.s = (a + b) * 2 + [c] %}",
            "{% set ns.s = ((a)|guard + (b)|guard) * 2)|guard + ([c])|guard %}"
                .replacen("((a)", "(((a)", 1)
                .as_str(),
        );
        check("{% for m in a[1:] + b %}", "{% for m in (a[1:])|guard + (b)|guard %}");
        check("{% if a + 1 == b and c is defined %}", "{% if (a)|guard + 1 == b and c is defined %}");
        check("{{ {'a': b + 1.5}}}", "{{ {'a': (b)|guard + 1.5}}}");
        check(
            "{{ f(x=a + b) if c + d else e }}",
            "{{ f(x=(a)|guard + (b)|guard) if (c)|guard + (d)|guard else e }}",
        );
    }

    #[test]
    fn a_template_of_nothing_but_sums_is_refused() {
        assert!(guarded(&format!("{{{{ n{} }}}}", "+n".repeat(OPERANDS_MAX - 1))).is_some());
        assert!(guarded(&format!("{{{{ n{} }}}}", "+n".repeat(OPERANDS_MAX))).is_none());
    }

    #[test]
    fn any_text_keeps_all_of_itself() {
        let seed = 5u64;
        let mut state = seed;
        for round in 0..20_000 {
            let mut source = String::new();
            for _ in 0..14 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let parts = [
                    "{{ ", " }}", "{%", "%}", "a", " + ", "+", "(", ")", "[", "}", "'", "é", "-", "*", ".",
                    "|", "is ", "1.", "raw", "\\", "{#",
                ];
                source += parts[(state >> 33) as usize % parts.len()];
            }
            let written = guarded(&source).unwrap();
            let mut rest = written.chars();
            assert!(
                source.chars().all(|c| rest.any(|found| found == c)),
                "seed {seed} round {round} {source:?} {written:?}"
            );
        }
    }
}
