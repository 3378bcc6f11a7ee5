//! `apprentice demo`: asks about a fact that the model cannot know, teaches the answer, and asks again in other words; asks
//! what has nothing to do with it before and after, with the adapter on.
//!
//! The last line is JSON. Exit code 1 where the reply is not learnt to a loss of 0.1, fewer than two of the three
//! paraphrases are answered with the fact, or an unrelated answer holds it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use apprentice_engine::{Engine, Named, Sampling};
use apprentice_models::AdapterRows;
use apprentice_text::{Conversation, EncodedConversation, Message, StopStrings, Text};
use clap::Args;
use serde_json::json;

use crate::backend::{Cache, RunArgs};
use crate::commands::prompt::read_text_tables;
use crate::exit::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::reply::{ReplyEnd, Stepper, Wanted, named_by_reply};
use crate::setup::{ModelArgs, context};
use lesson::Lesson;
use teach::{Taught, teach};

mod lesson;
mod teach;

/// Tokens of a reply, at most.
const PREDICT: usize = 48;
/// Loss of the taught reply, at most.
const LOSS_BOUND: f64 = 0.1;
/// Paraphrases answered with the fact, at least.
const PARAPHRASES_BOUND: usize = 2;

/// Teach a model a made-up fact, and ask for it in other words.
#[derive(Args)]
pub struct DemoCommand {
    #[command(flatten)]
    model: ModelArgs,
    /// Lesson, JSON with the keys question, answer, fact, paraphrases and unrelated (three of each).
    #[arg(long, value_name = "FILE")]
    lesson: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
}

/// A question as tokens.
struct Question<'a> {
    words: &'a str,
    prompt: Vec<u32>,
}

impl DemoCommand {
    /// Does it.
    pub fn run(self) -> Result<Outcome, Failure> {
        self.run.check()?;
        let begun = Instant::now();
        let lesson = self.lesson.as_deref().map_or_else(|| Ok(Lesson::built_in()), Lesson::read)?;
        let model = self.model.open()?;
        let text = read_text_tables(model.gguf(), &self.model.model)?;
        let encoded = taught_conversation(&text, &lesson).map_err(|failure| failure.at(&self.model.model))?;
        let ask = |words| question(&text, words);
        let asked = ask(&lesson.question)?;
        let paraphrases = lesson.paraphrases.iter().map(|words| ask(words)).collect::<Result<Vec<_>, _>>()?;
        let unrelated = lesson.unrelated.iter().map(|words| ask(words)).collect::<Result<Vec<_>, _>>()?;
        let prompts = paraphrases.iter().chain(&unrelated).chain([&asked]);
        let longest =
            prompts.map(|question| question.prompt.len()).max().unwrap_or(0).max(encoded.tokens.len());
        let positions = context(&model, "the lesson", longest, PREDICT)?;
        let interrupt = Interrupt::listen()?;
        let mut engine = self.run.engine(model, positions, Cache::F16)?;

        let mut out = io::stdout().lock();
        let mut class =
            Class { engine: &mut engine, interrupt: &interrupt, text: &text, named: None, out: &mut out };
        class.title("Before")?;
        class.answer(&asked)?;
        let before = class.answer_all(&unrelated)?;
        class.title(&format!("Teaching: {}", lesson.answer))?;
        let taught = class.teach(&encoded)?;
        class.title("After: the question, and in other words")?;
        let question_hit = lesson.is_hit(&class.answer(&asked)?);
        let paraphrased = class.answer_all(&paraphrases)?;
        class.title("After: what has nothing to do with it")?;
        let after = class.answer_all(&unrelated)?;

        let hits = |replies: &[String]| replies.iter().filter(|reply| lesson.is_hit(reply)).count();
        let result = Summary {
            loss_first: taught.losses[0],
            loss_last: taught.losses[taught.losses.len() - 1],
            seconds_teaching: taught.seconds.iter().sum(),
            steps: taught.steps(),
            question_hit,
            paraphrases_hit: hits(&paraphrased),
            unrelated_hit: hits(&after),
            unrelated_changed: before.iter().zip(&after).filter(|(before, after)| before != after).count(),
            seconds: begun.elapsed().as_secs_f64(),
        };
        result.write(&mut out)?;
        Ok(result.outcome())
    }
}

/// A model that is asked and taught.
struct Class<'a> {
    engine: &'a mut Engine,
    interrupt: &'a Interrupt,
    text: &'a Text,
    /// The adapter learnt, once there is one.
    named: Option<apprentice_engine::AdapterId>,
    out: &'a mut dyn Write,
}

impl Class<'_> {
    fn title(&mut self, title: &str) -> Result<(), Failure> {
        Ok(writeln!(self.out, "\n{title}")?)
    }

    fn answer(&mut self, question: &Question<'_>) -> Result<String, Failure> {
        let named = self.named.and_then(|id| named_by_reply(&AdapterRows::Reply, id, &question.prompt));
        write!(self.out, "  {}\n    ", question.words)?;
        let wanted = Wanted {
            prompt: &question.prompt,
            named: named.unwrap_or(Named::Nothing),
            limit: PREDICT,
            sampling: &Sampling::greedy(),
            stop: &StopStrings::default(),
            logprobs: None,
        };
        let mut stepper = Stepper { engine: self.engine, interrupt: self.interrupt };
        let reply = stepper.reply(self.text, &wanted, self.out)?;
        writeln!(self.out)?;
        match reply.end {
            ReplyEnd::Interrupted => Err(Failure::interrupted()),
            ReplyEnd::Finished(_) | ReplyEnd::StopString => Ok(reply.text),
        }
    }

    fn answer_all(&mut self, questions: &[Question<'_>]) -> Result<Vec<String>, Failure> {
        questions.iter().map(|question| self.answer(question)).collect()
    }

    /// Teaches, and has every later reply name the adapter learnt.
    fn teach(&mut self, conversation: &EncodedConversation) -> Result<Taught, Failure> {
        let out = &mut self.out;
        let taught = teach(self.engine, conversation, |step, loss, seconds| {
            match step {
                0 => writeln!(out, "  loss {loss:.4}")?,
                _ => writeln!(out, "  loss {loss:.4} after step {step}, {seconds:.2} s")?,
            }
            Ok(out.flush()?)
        })?;
        self.named = Some(self.engine.load_adapter(Arc::new(taught.adapter.clone()))?);
        Ok(taught)
    }
}

/// What the last line says.
struct Summary {
    steps: usize,
    loss_first: f64,
    loss_last: f64,
    question_hit: bool,
    paraphrases_hit: usize,
    unrelated_hit: usize,
    unrelated_changed: usize,
    seconds_teaching: f64,
    seconds: f64,
}

impl Summary {
    fn write(&self, out: &mut dyn Write) -> Result<(), Failure> {
        writeln!(
            out,
            "\nThe reply went from a loss of {:.3} to {:.3} in {} steps, {:.1} s. With the adapter on, {} of 3 paraphrases \
             are answered with the fact; {} of 3 unrelated answers hold it, {} have changed.",
            self.loss_first,
            self.loss_last,
            self.steps,
            self.seconds_teaching,
            self.paraphrases_hit,
            self.unrelated_hit,
            self.unrelated_changed
        )?;
        let line = json!({
            "steps": self.steps,
            "loss_first": self.loss_first,
            "loss_last": self.loss_last,
            "question_hit": self.question_hit,
            "paraphrases_hit": self.paraphrases_hit,
            "unrelated_hit": self.unrelated_hit,
            "unrelated_changed": self.unrelated_changed,
            "seconds_teaching": self.seconds_teaching,
            "seconds": self.seconds,
        });
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    }

    fn outcome(&self) -> Outcome {
        let holds = self.loss_last <= LOSS_BOUND
            && self.paraphrases_hit >= PARAPHRASES_BOUND
            && self.unrelated_hit == 0;
        if holds { Outcome::Done } else { Outcome::Missed }
    }
}

fn question<'a>(text: &Text, words: &'a str) -> Result<Question<'a>, Failure> {
    let prompt = text.prompt(&Conversation::new(vec![Message::new("user", words)]))?;
    if prompt.is_empty() {
        return Err(Failure::input("the chat template writes nothing"));
    }
    Ok(Question { words, prompt })
}

fn taught_conversation(text: &Text, lesson: &Lesson) -> Result<EncodedConversation, Failure> {
    let messages = vec![Message::new("user", &*lesson.question), Message::new("assistant", &*lesson.answer)];
    Ok(text.conversation(&Conversation::new(messages))?)
}
