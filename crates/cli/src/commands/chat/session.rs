//! A chat: the conversation, what is done at a line, and what is taught.
//!
//! A line that is refused has changed nothing.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use apprentice_engine::{Engine, Finish, Sampling};
use apprentice_text::{Conversation, Message, StopStrings, Text};

use crate::commands::chat::adapters::{Adapters, Teaching, count};
use crate::commands::chat::order::{Order, help};
use crate::exit::Failure;
use crate::files::apart;
use crate::interrupt::Interrupt;
use crate::reply::{ReplyEnd, Stepper, Wanted};

/// How replies are made and lessons learnt.
pub struct Settings {
    /// The model's file.
    pub model: PathBuf,
    /// Positions of a conversation.
    pub context: usize,
    /// Tokens of a reply, at most.
    pub predict: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// What ends a reply.
    pub stop: StopStrings,
    /// Steps of a lesson.
    pub steps: usize,
    /// Learning rate of a lesson, in place of the engine's.
    pub learning_rate: Option<f64>,
}

/// A chat.
pub struct Session {
    /// Runs the model.
    pub engine: Engine,
    /// Its text.
    pub text: Text,
    /// Whether to stop.
    pub interrupt: Interrupt,
    /// How replies are made and lessons learnt.
    pub settings: Settings,
    /// What the model is told first.
    pub system: Option<String>,
    /// What it has learnt.
    pub adapters: Adapters,
    /// What was said, the system's text aside.
    pub messages: Vec<Message>,
    /// Replies that lessons have replaced, one a lesson, oldest first.
    pub replaced: Vec<Replaced>,
    /// Replies so far, also those that are forgotten: each has random numbers of its own.
    pub replies: u32,
}

/// A reply that a lesson has replaced.
pub struct Replaced {
    message: usize,
    was: String,
    became: String,
}

/// What comes after a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The next line.
    Line,
    /// Nothing: the chat is to be left.
    End,
    /// The next line; Ctrl-C has stopped this one.
    Interrupted,
}

impl Session {
    /// Does what a line says and writes to `out` what there is to say.
    pub fn line(&mut self, line: &str, out: &mut dyn Write) -> Result<Next, Failure> {
        let Some(order) = Order::read(line)? else { return Ok(Next::Line) };
        match order {
            Order::Say(text) => self.say(text, out)?,
            Order::Teach(reply) => self.teach(reply, out)?,
            Order::Undo => self.undo(out)?,
            Order::Save(path) => {
                apart(&[("--model", &self.settings.model)], &[("/save", Path::new(&path))])?;
                let name = self.adapters.save(&self.engine, Path::new(&path))?;
                writeln!(out, "{name} is in {path}")?;
            }
            Order::Adapters(name) => {
                if let Some(name) = name {
                    self.adapters.switch(&name)?;
                }
                out.write_all(self.adapters.list().as_bytes())?;
            }
            Order::System(text) => self.system = Some(text).filter(|text| !text.is_empty()),
            Order::Clear => {
                self.messages.clear();
                self.replaced.iter_mut().for_each(|replaced| replaced.message = usize::MAX);
            }
            Order::Help => out.write_all(help().as_bytes())?,
            Order::Quit => return Ok(Next::End),
        }
        out.flush()?;
        Ok(if self.interrupt.take() { Next::Interrupted } else { Next::Line })
    }

    /// What leaving would lose, if anything.
    pub fn hint(&self) -> Option<String> {
        match self.adapters.unsaved() {
            0 => None,
            1 => Some("1 lesson is not saved; /save FILE keeps it".to_owned()),
            many => Some(format!("{many} lessons are not saved; /save FILE keeps them")),
        }
    }

    fn say(&mut self, text: String, out: &mut dyn Write) -> Result<(), Failure> {
        self.messages.push(Message::new("user", text));
        let answered = self.answer(out);
        if !matches!(answered, Ok(true)) {
            self.messages.pop();
        }
        answered.map(drop)
    }

    /// Replies to the conversation. `false` if nothing was said, because Ctrl-C came before.
    fn answer(&mut self, out: &mut dyn Write) -> Result<bool, Failure> {
        let prompt = self.text.prompt(&self.conversation(self.messages.len()))?;
        if prompt.is_empty() {
            return Err(Failure::input("the chat template writes nothing"));
        }
        let context = self.settings.context;
        let room = context.saturating_sub(prompt.len());
        if room == 0 {
            let count = prompt.len();
            let message = format!(
                "the conversation has {count} tokens, the context {context}; /clear begins a new one"
            );
            return Err(Failure::limit(message));
        }
        let limit = self.settings.predict.min(room);
        let wanted = Wanted {
            prompt: &prompt,
            named: self.adapters.named(&self.engine, &prompt)?,
            limit,
            sampling: &Sampling { stream: self.replies, ..self.settings.sampling.clone() },
            stop: &self.settings.stop,
            logprobs: None,
        };
        let mut stepper = Stepper { engine: &mut self.engine, interrupt: &self.interrupt };
        let reply = stepper.reply(&self.text, &wanted, out)?;
        writeln!(out)?;
        match reply.end {
            ReplyEnd::Interrupted => note("stopped"),
            ReplyEnd::Finished(Finish::Length | Finish::Context) if limit == room => {
                note(&format!("the context of {context} tokens is full; /clear begins a new conversation"));
            }
            ReplyEnd::Finished(Finish::Length | Finish::Context) => {
                note(&format!("{}, and no more; --predict allows more", count(limit, "token")));
            }
            ReplyEnd::Finished(Finish::End) | ReplyEnd::StopString => {}
        }
        self.replies = self.replies.wrapping_add(1);
        if reply.end == ReplyEnd::Interrupted && reply.text.is_empty() {
            return Ok(false);
        }
        self.messages.push(Message::new("assistant", reply.text));
        Ok(true)
    }

    /// Has the last reply become `reply`, and learns it.
    fn teach(&mut self, reply: String, out: &mut dyn Write) -> Result<(), Failure> {
        let message = self.messages.len().wrapping_sub(1);
        if self.messages.last().is_none_or(|message| message.role != "assistant") {
            return Err(Failure::input("there is no reply to correct yet"));
        }
        let encoded = self.text.reply(&self.conversation(message), &reply)?;
        let (prompt, tokens) = (encoded.prompt.len(), [encoded.prompt, encoded.reply].concat());
        if tokens.len() > self.settings.context {
            let (count, context) = (tokens.len(), self.settings.context);
            let message =
                format!("the conversation with this reply has {count} tokens, the context {context}");
            return Err(Failure::limit(message));
        }
        let begun = Instant::now();
        let (steps, learning_rate) = (self.settings.steps, self.settings.learning_rate);
        let mut stepper = Stepper { engine: &mut self.engine, interrupt: &self.interrupt };
        let learnt = self.adapters.teach(&mut stepper, Teaching { tokens, prompt, steps, learning_rate })?;
        let Some(learnt) = learnt else {
            note("stopped; nothing was learnt");
            return Ok(());
        };
        let was = std::mem::replace(&mut self.messages[message].content, reply.clone());
        self.replaced.push(Replaced { message, was, became: reply });
        let milliseconds = begun.elapsed().as_millis();
        writeln!(
            out,
            "learnt: loss {:.3} before, {:.3} after {}, {milliseconds} ms; /undo takes it back, /save FILE keeps it",
            learnt.loss_before,
            learnt.loss_after,
            count(steps, "step"),
        )?;
        Ok(())
    }

    /// Takes the last lesson back, and its text out of the conversation if it is there still.
    fn undo(&mut self, out: &mut dyn Write) -> Result<(), Failure> {
        let name = self.adapters.undo(&mut self.engine)?;
        writeln!(out, "{name} has forgotten the last lesson")?;
        if let Some(Replaced { message, was, became }) = self.replaced.pop()
            && let Some(found) = self.messages.get_mut(message)
            && found.content == became
        {
            found.content = was;
        }
        Ok(())
    }

    /// The system's text and the first `count` messages.
    fn conversation(&self, count: usize) -> Conversation {
        let system = self.system.iter().map(|text| Message::new("system", text.as_str()));
        Conversation::new(system.chain(self.messages[..count].iter().cloned()).collect())
    }
}

/// Says what is neither a reply nor an answer, and does not belong to what a script gets.
fn note(text: &str) {
    eprintln!("[{text}]");
}
