//! The engine's thread: takes what is asked, lets the engine take a step, sends what happened to whoever asked.
//!
//! Nobody is waited for. What is asked comes through a bounded queue; an answer goes into a channel that is as deep as the
//! answer can be long. A client that has gone has dropped its end of the channel: its jobs are cancelled before the next
//! step.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use apprentice_engine::{Engine, Event, Finish, Generate, Job, JobId, Logprobs, Named, Sampling};
use apprentice_text::Text;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::command::{Command, Generation, Part, Reason};
use crate::metrics::Metrics;
use crate::reject::Reject;
use crate::reply::{Piece, Reply};
use crate::shelf::Shelf;
use crate::slots::{Held, Slots};
use lessons::{Current, Waiting};

mod lessons;

/// What the engine's thread owns.
pub struct Worker {
    /// The engine.
    pub engine: Engine,
    /// Its text.
    pub text: Text,
    /// Its adapters.
    pub shelf: Shelf,
    /// What conversations were.
    pub slots: Slots,
    /// Adapter of requests that name none.
    pub adapter: Option<String>,
    /// What may wait of either kind.
    pub queue: usize,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Name of the model.
    pub model: String,
}

/// The state of the loop.
struct Running {
    worker: Worker,
    ends: Arc<[u32]>,
    waiting: VecDeque<(Box<Generation>, mpsc::Sender<Part>)>,
    requests: BTreeMap<u64, Request>,
    streams: HashMap<JobId, Stream>,
    lessons: VecDeque<Waiting>,
    lesson: Option<Current>,
    next: u64,
}

/// A request in a slot.
struct Request {
    sender: mpsc::Sender<Part>,
    deadline: Instant,
    slot: usize,
    held: Held,
    named: Named,
    /// Its jobs that are not finished.
    jobs: Vec<JobId>,
}

/// A reply that is being made.
struct Stream {
    request: u64,
    choice: u32,
    reply: Reply,
    cached: usize,
}

impl Worker {
    /// Works until nobody can ask any more.
    pub fn run(self, commands: &Receiver<Command>) {
        let ends = Arc::from(self.text.end_ids());
        let mut running = Running {
            worker: self,
            ends,
            waiting: VecDeque::new(),
            requests: BTreeMap::new(),
            streams: HashMap::new(),
            lessons: VecDeque::new(),
            lesson: None,
            next: 0,
        };
        let begun = Instant::now();
        while running.take(commands) {
            running.reap(Instant::now());
            running.begin_waiting();
            running.begin_lesson();
            if !running.worker.engine.idle() {
                for event in running.worker.engine.step(begun.elapsed()) {
                    running.route(event);
                }
            }
            running.publish();
        }
        running.stop();
    }
}

impl Running {
    /// Takes what is asked; waits for it when there is nothing else to do. `false` once nobody can ask.
    fn take(&mut self, commands: &Receiver<Command>) -> bool {
        let busy = !self.requests.is_empty() || self.lesson.is_some() || !self.worker.engine.idle();
        if !busy && self.waiting.is_empty() && self.lessons.is_empty() {
            match commands.recv() {
                Ok(command) => self.obey(command),
                Err(_) => return false,
            }
        }
        for _ in 0..=self.worker.queue {
            match commands.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    fn obey(&mut self, command: Command) {
        // Whoever asked may have gone: an answer that nobody takes is no error.
        match command {
            Command::Generate(generation, sender) => self.enqueue(generation, sender),
            Command::Learn(teaching, answer) => self.enqueue_lesson(teaching, answer),
            Command::Held(place, answer) => {
                let _ = answer.send(self.worker.slots.held(&place).map(|(_, held)| held.clone()));
            }
            Command::Slots(answer) => {
                let _ = answer.send(Ok(self.slots()));
            }
            Command::Adapters(answer) => {
                let _ = answer.send(Ok(self.adapters()));
            }
            Command::Save(name, wanted, peft, answer) => {
                let Worker { shelf, engine, .. } = &mut self.worker;
                let _ = answer.send(shelf.save(engine, &name, wanted.as_deref(), peft));
            }
            Command::Delete(name, answer) => {
                let _ = answer.send(self.delete(&name));
            }
        }
    }

    fn delete(&mut self, name: &str) -> Result<(), Reject> {
        let learns = |lesson: &Waiting| lesson.teaching.adapter == name;
        if self.lessons.iter().chain(self.lesson.iter().map(|current| &current.lesson)).any(learns) {
            let message = format!("adapter {name:?}: it is being taught");
            return Err(Reject::conflict("adapter_busy", message).at("adapter"));
        }
        let Worker { shelf, engine, .. } = &mut self.worker;
        shelf.delete(engine, name)
    }

    fn slots(&self) -> Value {
        let slots = self.worker.slots.all().iter().enumerate().map(|(index, slot)| {
            json!({
                "id": index,
                "busy": slot.busy,
                "conversation": slot.conversation,
                "adapter": slot.held.adapter,
                "n_prefix": slot.held.reply_start,
                "n_tokens": slot.held.tokens.len(),
            })
        });
        slots.collect()
    }

    fn adapters(&self) -> Value {
        let Worker { shelf, engine, model, adapter, .. } = &self.worker;
        let list = shelf.all().map(|(name, entry)| {
            let adapter = &entry.adapter;
            let rows = match &adapter.rows {
                apprentice_models::AdapterRows::All => "all",
                apprentice_models::AdapterRows::Reply => "reply",
                apprentice_models::AdapterRows::Invocation(_) => "invocation",
            };
            let sites = engine.model().sites();
            let parameters: usize =
                adapter.pairs.iter().map(|pair| pair.rank * (sites[pair.site].input + sites[pair.site].output)).sum();
            json!({
                "name": name,
                "model": format!("{model}:{name}"),
                "generation": entry.generation,
                "rank": adapter.rank(),
                "rows": rows,
                "sites": adapter.pairs.len(),
                "parameters": parameters,
                "file": entry.path.as_ref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy()),
            })
        });
        json!({"object": "list", "default": adapter, "data": list.collect::<Vec<_>>()})
    }

    // Replies.

    fn enqueue(&mut self, generation: Box<Generation>, sender: mpsc::Sender<Part>) {
        let known = match self.adapter_of(&generation) {
            Some(name) => self.worker.shelf.entry(&name).map(|_| ()),
            None => Ok(()),
        };
        let refused = known.err().or((self.waiting.len() >= self.worker.queue).then(Reject::busy));
        match refused {
            Some(reject) => drop(sender.try_send(Part::Failed(reject))),
            None => self.waiting.push_back((generation, sender)),
        }
    }

    /// The adapter that a request means: its own, or that of all requests once it is there.
    fn adapter_of(&self, generation: &Generation) -> Option<String> {
        let Worker { shelf, adapter, .. } = &self.worker;
        match &generation.adapter {
            Some(name) => Some(name.clone()).filter(|name| !name.is_empty()),
            None => adapter.clone().filter(|name| shelf.entry(name).is_ok()),
        }
    }

    /// Gives up requests whose client has gone or whose time is over.
    fn reap(&mut self, now: Instant) {
        let metrics = &self.worker.metrics;
        self.waiting.retain(|(generation, sender)| {
            let late = generation.deadline <= now;
            if late {
                drop(sender.try_send(Part::Failed(Reject::timeout())));
            }
            let keep = !late && !sender.is_closed();
            if !keep {
                metrics.cancelled.fetch_add(1, Relaxed);
            }
            keep
        });
        let over = |request: &Request| request.sender.is_closed() || request.deadline <= now;
        let over: Vec<u64> =
            self.requests.iter().filter(|(_, request)| over(request)).map(|(id, _)| *id).collect();
        for id in over {
            self.worker.metrics.cancelled.fetch_add(1, Relaxed);
            self.fail(id, Reject::timeout());
        }
    }

    /// Lets requests into the slots that are free, the oldest first.
    fn begin_waiting(&mut self) {
        let mut later = VecDeque::new();
        while let Some((generation, sender)) = self.waiting.pop_front() {
            match self.worker.slots.pick(&generation.place) {
                Some(slot) => self.begin(*generation, sender, slot),
                None => later.push_back((generation, sender)),
            }
        }
        self.waiting = later;
    }

    fn begin(&mut self, generation: Generation, sender: mpsc::Sender<Part>, slot: usize) {
        let adapter = self.adapter_of(&generation);
        let held = Held {
            tokens: generation.prompt.clone(),
            reply_start: generation.prompt.len(),
            messages: generation.messages.clone(),
            adapter: adapter.clone(),
        };
        let begun = self
            .replies(&generation)
            .and_then(|replies| Ok((replies, self.submit(&generation, adapter.as_deref())?)));
        let (replies, (named, jobs)) = match begun {
            Ok(begun) => begun,
            Err(reject) => return drop(sender.try_send(Part::Failed(reject))),
        };
        self.worker.slots.take(slot, &generation.place);
        let id = self.next;
        self.next += 1;
        for ((job, reply), choice) in jobs.iter().zip(replies).zip(0..) {
            self.streams.insert(*job, Stream { request: id, choice, reply, cached: 0 });
        }
        if let Named::From(_, id) = named {
            self.worker.shelf.hold(id);
        }
        drop(sender.try_send(Part::Begun { slot, adapter }));
        let deadline = generation.deadline;
        self.requests.insert(id, Request { sender, deadline, slot, held, named, jobs });
        self.worker.metrics.prompt_tokens.fetch_add(generation.prompt.len() as u64, Relaxed);
    }

    fn replies(&self, generation: &Generation) -> Result<Vec<Reply>, Reject> {
        let replies = (0..generation.choices).map(|_| Reply::new(&self.worker.text, &generation.stops));
        Ok(replies.collect::<Result<_, _>>()?)
    }

    /// Submits the jobs of a request: all of them or none.
    fn submit(
        &mut self,
        generation: &Generation,
        adapter: Option<&str>,
    ) -> Result<(Named, Vec<JobId>), Reject> {
        let named = match adapter {
            Some(name) => self.worker.shelf.named(name, &generation.prompt)?,
            None => Named::Nothing,
        };
        let mut jobs = Vec::new();
        for stream in 0..generation.choices {
            let job = Job::Generate(Generate {
                prompt: generation.prompt.clone(),
                named,
                limit: generation.limit,
                sampling: Sampling { stream, ..generation.sampling.clone() },
                logprobs: generation.logprobs,
                ends: self.ends.clone(),
            });
            match self.worker.engine.submit(job) {
                Ok(job) => jobs.push(job),
                Err(error) => {
                    for job in jobs {
                        self.worker.engine.cancel(job);
                    }
                    return Err(error.into());
                }
            }
        }
        Ok((named, jobs))
    }

    /// Sends an event to whoever waits for it.
    fn route(&mut self, event: Event) {
        let job = event.job();
        if self.lesson.as_ref().is_some_and(|lesson| lesson.job == job) {
            return self.route_lesson(event);
        }
        let Some(stream) = self.streams.get_mut(&job) else { return };
        match event {
            Event::Started { cached, .. } => {
                stream.cached = cached;
                if stream.choice == 0 {
                    self.worker.metrics.cached_tokens.fetch_add(cached as u64, Relaxed);
                }
            }
            Event::Token { token, logprobs, .. } => self.token(job, token, logprobs),
            Event::Finished { reason, .. } => {
                let piece = stream.reply.finish();
                let stopped = piece.stopped || reason == Finish::End;
                self.tell(job, piece);
                self.finish(job, if stopped { Reason::Stop } else { Reason::Length });
            }
            Event::Failed { error, .. } => {
                let request = stream.request;
                self.fail(request, error.into());
            }
            Event::Stepped { .. } | Event::Learnt { .. } => {}
        }
    }

    fn token(&mut self, job: JobId, token: u32, logprobs: Option<Logprobs>) {
        let Some(stream) = self.streams.get_mut(&job) else { return };
        self.worker.metrics.reply_tokens.fetch_add(1, Relaxed);
        match stream.reply.push(token, logprobs) {
            Ok(piece) => {
                let stopped = piece.stopped;
                self.tell(job, piece);
                if stopped {
                    self.worker.engine.cancel(job);
                    self.finish(job, Reason::Stop);
                }
            }
            Err(error) => {
                let request = stream.request;
                self.fail(request, error.into());
            }
        }
    }

    fn tell(&mut self, job: JobId, piece: Piece) {
        let Some(stream) = self.streams.get(&job) else { return };
        if let Some(request) = self.requests.get(&stream.request).filter(|_| !piece.is_empty()) {
            let part = Part::Piece { choice: stream.choice, text: piece.text, scored: piece.scored };
            // The channel has room for all of an answer; a client that has gone is seen before the next step.
            drop(request.sender.try_send(part));
        }
    }

    /// A reply is complete; with the last one of its request, the slot is free.
    fn finish(&mut self, job: JobId, reason: Reason) {
        let Some(stream) = self.streams.remove(&job) else { return };
        let Some(request) = self.requests.get_mut(&stream.request) else { return };
        self.worker.metrics.replies.fetch_add(1, Relaxed);
        let tokens = stream.reply.tokens.len();
        drop(request.sender.try_send(Part::Finished {
            choice: stream.choice,
            reason,
            tokens,
            cached: stream.cached,
        }));
        if stream.choice == 0 {
            request.held.tokens.extend(stream.reply.tokens);
        }
        request.jobs.retain(|other| *other != job);
        if request.jobs.is_empty() {
            self.leave(stream.request);
        }
    }

    /// A request cannot go on: its jobs are cancelled and its slot is free.
    fn fail(&mut self, id: u64, reject: Reject) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        drop(request.sender.try_send(Part::Failed(reject)));
        for job in std::mem::take(&mut request.jobs) {
            self.worker.engine.cancel(job);
            if let Some(stream) = self.streams.remove(&job).filter(|stream| stream.choice == 0) {
                request.held.tokens.extend(stream.reply.tokens);
            }
        }
        self.leave(id);
    }

    fn leave(&mut self, id: u64) {
        let Some(request) = self.requests.remove(&id) else { return };
        self.worker.slots.give_back(request.slot, request.held);
        if let Named::From(_, id) = request.named {
            let Worker { shelf, engine, .. } = &mut self.worker;
            shelf.release(engine, id);
        }
    }

    // The whole.

    fn publish(&self) {
        let metrics = &self.worker.metrics;
        let set = |gauge: &std::sync::atomic::AtomicU64, value: usize| gauge.store(value as u64, Relaxed);
        set(&metrics.running, self.requests.len());
        set(&metrics.waiting, self.waiting.len());
        set(&metrics.lessons_waiting, self.lessons.len() + usize::from(self.lesson.is_some()));
        set(&metrics.adapters, self.worker.shelf.len());
        let stats = self.worker.engine.stats();
        set(&metrics.pages, stats.pages_total);
        set(&metrics.pages_used, stats.pages_used);
        set(&metrics.pages_cached, stats.pages_cached);
    }

    /// Nobody can ask any more: what is still open is given up.
    fn stop(&mut self) {
        for (_, sender) in self.waiting.drain(..) {
            drop(sender.try_send(Part::Failed(Reject::stopping())));
        }
        let open: Vec<u64> = self.requests.keys().copied().collect();
        for id in open {
            self.fail(id, Reject::stopping());
        }
        if let Some(current) = self.lesson.take() {
            self.worker.engine.cancel(current.job);
            self.give_up(current, Reject::stopping());
        }
        while let Some(waiting) = self.lessons.pop_front() {
            self.refuse_lesson(waiting, Reject::stopping());
        }
    }
}
