//! `{% generation %}` blocks: what a template itself says is a reply's text.
//!
//! Templates of the training side mark replies by this block, which writes its content and nothing more. The engine
//! of templates has no such block, so it becomes a block of a filter, which writes its content between two marks:
//! characters of a private use plane that occur nowhere in what is rendered. They are taken out of the text again.
//!
//! Source: the chat templates of Hugging Face transformers, `return_assistant_tokens_mask`.

use std::ops::{Range, RangeInclusive};

use memchr::memmem;

/// Name of the filter that the blocks become. A template may use it like any other; it changes nothing by itself.
pub(super) const FILTER: &str = "generation";

/// Where marks are taken from: a private use plane, without its last two places, which are no characters.
const PRIVATE: RangeInclusive<u32> = 0xf_0000..=0xf_fffd;

/// `source` with its generation blocks as blocks of [`FILTER`]; none where it has no such block. No line moves.
pub(super) fn as_filter(source: &str) -> Option<String> {
    let mut written = String::new();
    let mut done = 0;
    for start in memmem::find_iter(source.as_bytes(), "{%") {
        let Some(tag) = Tag::read(&source[start..]) else { continue };
        written += &source[done..start + tag.name.start];
        written += if tag.ends { "endfilter" } else { "filter generation" };
        done = start + tag.name.end;
    }
    (done > 0).then(|| written + &source[done..])
}

/// A tag that begins or ends a generation block.
struct Tag {
    ends: bool,
    /// Bytes of its name, from the tag's `{%` on.
    name: Range<usize>,
}

impl Tag {
    /// Reads `{%- generation -%}` at the start of `text`, or the end of such a block.
    fn read(text: &str) -> Option<Tag> {
        let inner = text.strip_prefix("{%")?;
        let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner).trim_start();
        let start = text.len() - inner.len();
        let length = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
        let rest = inner[length..].trim_start();
        let closed = rest.strip_prefix(['-', '+']).unwrap_or(rest).starts_with("%}");
        let ends = match &inner[..length] {
            "generation" => false,
            "endgeneration" => true,
            _ => return None,
        };
        closed.then(|| Tag { ends, name: start..start + length })
    }
}

/// The two marks of one rendering.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    open: char,
    close: char,
}

impl Marks {
    /// Marks that occur in none of `texts`; `None` where those use the whole plane.
    pub(super) fn absent_from<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Marks> {
        let mut used: Vec<char> =
            texts.flat_map(str::chars).filter(|c| PRIVATE.contains(&u32::from(*c))).collect();
        used.sort_unstable();
        let mut free = PRIVATE.filter_map(char::from_u32).filter(|c| used.binary_search(c).is_err());
        Some(Marks { open: free.next()?, close: free.next()? })
    }

    /// `content` between the marks.
    pub(super) fn around(self, content: &str) -> String {
        format!("{}{content}{}", self.open, self.close)
    }

    /// `text` without marks, and the bytes of it that stood between them, ascending. Of blocks in each other the outer
    /// one counts.
    pub(super) fn take(self, text: &str) -> (String, Vec<Range<usize>>) {
        let mut plain = String::with_capacity(text.len());
        let (mut blocks, mut begun, mut depth) = (Vec::new(), 0, 0usize);
        for part in text.split_inclusive([self.open, self.close]) {
            let unmarked = part.strip_suffix([self.open, self.close]).unwrap_or(part);
            plain += unmarked;
            if part.ends_with(self.open) {
                begun = if depth == 0 { plain.len() } else { begun };
                depth += 1;
            } else if part.ends_with(self.close) && depth > 0 {
                depth -= 1;
                if depth == 0 {
                    blocks.push(begun..plain.len());
                }
            }
        }
        (plain, blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_become_a_filter() {
        let check = |source: &str, expected: Option<&str>| {
            assert_eq!(as_filter(source).as_deref(), expected, "{source}");
        };
        check("{% if x %}{% endif %}", None);
        check("{% set generation = 1 %}{{ generation }}", None);
        check("{% generations %}{% generation", None);
        check("{% generation %}x{% endgeneration %}", Some("{% filter generation %}x{% endfilter %}"));
        check(
            "a{%-generation-%}\n x{%+ endgeneration\n-%}b",
            Some("a{%-filter generation-%}\n x{%+ endfilter\n-%}b"),
        );
        check("{% é %}{% generation %}é", Some("{% é %}{% filter generation %}é"));
    }

    #[test]
    fn marks_are_taken_out() {
        let marks = Marks::absent_from(["a\u{f0000}", "\u{f0002}"].into_iter()).unwrap();
        assert_eq!((marks.open, marks.close), ('\u{f0001}', '\u{f0003}'));
        let check = |text: &str, plain: &str, blocks: &[Range<usize>]| {
            let text = text.replace('<', "\u{f0001}").replace('>', "\u{f0003}");
            assert_eq!(marks.take(&text), (plain.to_owned(), blocks.to_vec()), "{text}");
        };
        check("ab", "ab", &[]);
        check("a<é>b<>c", "aébc", &[1..3, 4..4]);
        check("<a<b>c>d<e>", "abcde", &[0..3, 4..5]);
        check("a>b<c", "abc", &[]);
    }
}
