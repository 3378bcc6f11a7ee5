//! The adapters of a chat: which there are, which is on, and what each was taught.

use std::path::Path;
use std::sync::Arc;

use apprentice_engine::{
    AdapterId, Engine, LearnerOptions, Lesson, LiveId, Named, Objective, teaching_adapter,
};
use apprentice_models::{Adapter, AdapterRows, adapter_file};

use crate::exit::Failure;
use crate::reply::{Learnt, Stepper, named_by_reply};

/// Name of the adapter that is made when something is taught and none is there.
const DEFAULT: &str = "default";

/// Adapters, and the lessons that were taught, oldest first.
#[derive(Default)]
pub struct Adapters {
    entries: Vec<Entry>,
    /// The one that orders speak of.
    current: usize,
    /// Whether replies name it.
    on: bool,
    lessons: Vec<Taught>,
}

/// An adapter.
struct Entry {
    name: String,
    state: State,
    /// Lessons that a file holds.
    saved: usize,
}

/// Where the engine has an adapter.
#[derive(Clone)]
enum State {
    /// Loaded, and never taught so far.
    Loaded(AdapterId, Arc<Adapter>),
    /// In training.
    Live(LiveId),
}

/// A lesson that was learnt.
struct Taught {
    entry: usize,
    /// The adapter before it.
    before: Arc<Adapter>,
}

/// What is to be learnt.
pub struct Teaching {
    /// Prompt and reply.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Steps of the optimiser.
    pub steps: usize,
    /// Learning rate; the engine's for teaching, unless given.
    pub learning_rate: Option<f64>,
}

impl Adapters {
    /// Adds an adapter; the first is on.
    ///
    /// # Errors
    /// A name that another has; what the engine refuses.
    pub fn add(&mut self, engine: &mut Engine, name: &str, adapter: Adapter) -> Result<(), Failure> {
        if self.position(name).is_some() {
            return Err(Failure::input(format!("two adapters are called {name}")));
        }
        let adapter = Arc::new(adapter);
        let state = State::Loaded(engine.load_adapter(adapter.clone())?, adapter);
        self.entries.push(Entry { name: name.to_owned(), state, saved: 0 });
        self.on = true;
        Ok(())
    }

    /// Which adapter the rows of a reply to `prompt` name.
    pub fn named(&self, engine: &Engine, prompt: &[u32]) -> Result<Named, Failure> {
        let Some(entry) = self.entries.get(self.current).filter(|_| self.on) else {
            return Ok(Named::Nothing);
        };
        let (id, adapter) = entry.state.newest(engine)?;
        Ok(named_by_reply(&adapter.rows, id, prompt).unwrap_or(Named::Nothing))
    }

    /// Has the current adapter learn, and switches it on; makes one where there is none. None where Ctrl-C came: nothing
    /// was learnt then.
    pub fn teach(
        &mut self,
        stepper: &mut Stepper<'_>,
        teaching: Teaching,
    ) -> Result<Option<Learnt>, Failure> {
        if self.entries.is_empty() {
            let fresh = teaching_adapter(stepper.engine.model())?;
            self.add(stepper.engine, DEFAULT, fresh)?;
        }
        let (live, before) = self.live(stepper.engine)?;
        let objective = match before.rows {
            AdapterRows::All => Objective::All,
            AdapterRows::Reply => Objective::Reply,
            AdapterRows::Invocation(_) => {
                return Err(Failure::unsupported("teaching an adapter with invocation tokens is not built"));
            }
        };
        let Teaching { tokens, prompt, steps, learning_rate } = teaching;
        let reply = prompt..tokens.len();
        let replies = Vec::from([reply]);
        let lesson = Lesson { adapter: live, tokens, replies, objective, steps, learning_rate };
        let learnt = stepper.learn(lesson)?;
        if learnt.is_some() {
            self.lessons.push(Taught { entry: self.current, before });
            self.on = true;
        }
        Ok(learnt)
    }

    /// Takes the last lesson back; gives the name of the adapter that has forgotten it.
    ///
    /// # Errors
    /// No lesson.
    pub fn undo(&mut self, engine: &mut Engine) -> Result<&str, Failure> {
        let Some(Taught { entry: index, before }) = self.lessons.last() else {
            return Err(Failure::input("there is no lesson to take back"));
        };
        let (index, before) = (*index, before.clone());
        let State::Live(live) = self.entries[index].state else {
            unreachable!("an adapter that was taught is in training");
        };
        // The engine takes back one lesson. What was before that one goes into training anew.
        let known = engine.revert(live).is_ok_and(|(_, adapter, _)| *adapter == *before);
        if !known {
            let renewed = engine.live(before, LearnerOptions::teaching())?;
            self.entries[index].state = State::Live(renewed);
            engine.end_live(live)?;
        }
        self.lessons.pop();
        let left = self.lessons_of(index);
        let entry = &mut self.entries[index];
        entry.saved = entry.saved.min(left);
        Ok(&entry.name)
    }

    /// Writes the current adapter; gives its name.
    ///
    /// # Errors
    /// No adapter; a path that cannot be written.
    pub fn save(&mut self, engine: &Engine, path: &Path) -> Result<&str, Failure> {
        let lessons = self.lessons_of(self.current);
        let Some(entry) = self.entries.get_mut(self.current) else {
            return Err(Failure::input("there is no adapter to save; /teach makes one"));
        };
        let (_, adapter) = entry.state.newest(engine)?;
        adapter_file::write(engine.model(), &adapter, path)?;
        entry.saved = lessons;
        Ok(&entry.name)
    }

    /// Switches to the adapter of this name, or, by `on` and `off`, the current one.
    ///
    /// # Errors
    /// A name that no adapter has.
    pub fn switch(&mut self, name: &str) -> Result<(), Failure> {
        match (self.position(name), name) {
            (Some(index), _) => (self.current, self.on) = (index, true),
            (None, "on") if !self.entries.is_empty() => self.on = true,
            (None, "off") if !self.entries.is_empty() => self.on = false,
            _ => {
                let names: Vec<&str> = self.entries.iter().map(|entry| entry.name.as_str()).collect();
                let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(Failure::input(format!("no adapter is called {name:?}; there is {known}")));
            }
        }
        Ok(())
    }

    /// A line an adapter; a star is before the one that is on.
    pub fn list(&self) -> String {
        if self.entries.is_empty() {
            return "no adapters; /teach makes one\n".to_owned();
        }
        let line = |(index, entry): (usize, &Entry)| {
            let star = if self.on && index == self.current { "*" } else { " " };
            let (lessons, unsaved) = (self.lessons_of(index), self.unsaved_of(index));
            let unsaved = if unsaved > 0 { format!(", {unsaved} not saved") } else { String::new() };
            format!("{star} {}: {}{unsaved}\n", entry.name, count(lessons, "lesson"))
        };
        self.entries.iter().enumerate().map(line).collect()
    }

    /// Lessons that no file holds.
    pub fn unsaved(&self) -> usize {
        (0..self.entries.len()).map(|index| self.unsaved_of(index)).sum()
    }

    fn lessons_of(&self, index: usize) -> usize {
        self.lessons.iter().filter(|lesson| lesson.entry == index).count()
    }

    fn unsaved_of(&self, index: usize) -> usize {
        self.lessons_of(index) - self.entries[index].saved
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.name == name)
    }

    /// The current adapter in training, which it is from its first lesson on, and its content.
    fn live(&mut self, engine: &mut Engine) -> Result<(LiveId, Arc<Adapter>), Failure> {
        let entry = &mut self.entries[self.current];
        let live = match &entry.state {
            State::Live(live) => *live,
            State::Loaded(loaded, adapter) => {
                let live = engine.live(adapter.clone(), LearnerOptions::teaching())?;
                engine.unload_adapter(*loaded)?;
                entry.state = State::Live(live);
                live
            }
        };
        Ok((live, engine.live_adapter(live)?.1))
    }
}

impl State {
    /// The newest generation.
    fn newest(&self, engine: &Engine) -> Result<(AdapterId, Arc<Adapter>), Failure> {
        match self {
            State::Loaded(id, adapter) => Ok((*id, adapter.clone())),
            State::Live(live) => {
                let (id, adapter, _) = engine.live_adapter(*live)?;
                Ok((id, adapter))
            }
        }
    }
}

/// `1 lesson`, `2 lessons`.
pub fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
