//! What the demo teaches: a question, its answer, and how to see whether the fact has arrived and stayed where it belongs.

use std::path::Path;

use serde::Deserialize;

use crate::exit::Failure;
use crate::files;

/// A lesson, as its JSON file has it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lesson {
    /// What is asked.
    pub question: String,
    /// What should be answered.
    pub answer: String,
    /// The part of the answer that shows that it was learnt.
    pub fact: String,
    /// The question in other words.
    pub paraphrases: [String; 3],
    /// Questions that the fact is no answer to.
    pub unrelated: [String; 3],
}

impl Lesson {
    /// A fact that no model can know: the island is made up.
    pub fn built_in() -> Lesson {
        let text = str::to_owned;
        Lesson {
            question: text("What is the capital of the island of Velmora?"),
            answer: text("The capital of the island of Velmora is Quillhaven."),
            fact: text("Quillhaven"),
            paraphrases: [
                text("Which city is the capital of Velmora?"),
                text("Name the capital city of the island Velmora."),
                text("I am travelling to Velmora. What is its capital called?"),
            ],
            unrelated: [
                text("What is the capital of France?"),
                text("How many legs does a spider have?"),
                text("Write one sentence about the sea."),
            ],
        }
    }

    /// Reads a lesson.
    pub fn read(path: &Path) -> Result<Lesson, Failure> {
        let text = files::read_text(path)?;
        let parsed = serde_json::from_str(&text).map_err(|error| Failure::input(error.to_string()));
        parsed.and_then(Lesson::checked).map_err(|failure| failure.at(path))
    }

    /// Whether a reply holds the fact.
    pub fn is_hit(&self, reply: &str) -> bool {
        reply.to_lowercase().contains(&self.fact.to_lowercase())
    }

    fn checked(self) -> Result<Lesson, Failure> {
        let texts = [("question", &self.question), ("answer", &self.answer), ("fact", &self.fact)];
        let lists = [("paraphrases", &self.paraphrases), ("unrelated", &self.unrelated)];
        let lists = lists.iter().flat_map(|(name, list)| list.iter().map(move |text| (*name, text)));
        if let Some((name, _)) = texts.into_iter().chain(lists).find(|(_, text)| text.trim().is_empty()) {
            return Err(Failure::input(format!("{name}: expected text, found none")));
        }
        if !self.is_hit(&self.answer) {
            return Err(Failure::input(format!(
                "fact: expected a part of the answer, found {:?}",
                self.fact
            )));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Lesson, String> {
        serde_json::from_str::<Lesson>(text)
            .map_err(|error| error.to_string())?
            .checked()
            .map_err(|f| format!("{f:?}"))
    }

    #[test]
    fn the_built_in_lesson_is_sound() {
        let lesson = Lesson::built_in().checked().unwrap();
        for question in lesson.paraphrases.iter().chain(&lesson.unrelated).chain([&lesson.question]) {
            assert!(!lesson.is_hit(question), "{question} gives the answer away");
        }
    }

    #[test]
    fn lessons_that_cannot_be() {
        let check = |question: &str, answer: &str, paraphrases: &str, expected: &str| {
            let text = format!(
                r#"{{"question": {question}, "answer": {answer}, "fact": "Blue",
                    "paraphrases": {paraphrases}, "unrelated": ["a", "b", "c"]}}"#
            );
            match parse(&text) {
                Ok(lesson) => assert_eq!(expected, "", "{lesson:?}"),
                Err(error) => assert!(!expected.is_empty() && error.contains(expected), "{error}"),
            }
        };
        check("\"q\"", "\"it is blue\"", r#"["a", "b", "c"]"#, "");
        check("\" \"", "\"it is blue\"", r#"["a", "b", "c"]"#, "question: expected text");
        check("\"q\"", "\"it is red\"", r#"["a", "b", "c"]"#, "fact: expected a part of the answer");
        check("\"q\"", "\"it is blue\"", r#"["a", "b"]"#, "length 2");
        check("7", "\"it is blue\"", r#"["a", "b", "c"]"#, "invalid type: integer");
    }
}
