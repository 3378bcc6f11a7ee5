//! The two routes of replies: a request goes in, and its parts come out as one answer or as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apprentice_engine::Sampling;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::answer::{Choice, Dialect, Head, Usage};
use crate::command::{Generation, Part};
use crate::random::random;
use crate::reject::Reject;
use crate::state::State;
use crate::wanted::Wanted;

/// A stream that has nothing to tell says so as often, so that nobody on the way takes it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Answers a request for replies.
///
/// # Errors
/// What refuses it before its first token.
pub async fn answer(state: Arc<State>, dialect: Dialect, wanted: Wanted) -> Result<Response, Reject> {
    let deadline = Instant::now() + state.options.timeout;
    let adapter = wanted.target.adapter(&state.options.model)?.map(str::to_owned);
    let (prompt, messages) = state.prompt(wanted.prompt).await?;
    let room = state.context - prompt.len();
    let prompt_tokens = prompt.len();
    let (choices, logprobs) = (wanted.choices, wanted.logprobs);
    let seed = wanted.seed.unwrap_or_else(random);
    let generation = Generation {
        prompt,
        messages,
        adapter,
        place: wanted.place,
        choices,
        limit: wanted.limit.map_or(room, |limit| limit.min(room)),
        sampling: Sampling { seed, ..wanted.sampling },
        stops: wanted.stops,
        logprobs,
        deadline,
    };
    let mut parts = state.generate(generation)?;
    let (slot, adapter) = match parts.recv().await {
        Some(Part::Begun { slot, adapter }) => (slot, adapter),
        Some(Part::Failed(reject)) => return Err(reject),
        Some(Part::Piece { .. } | Part::Finished { .. }) | None => return Err(Reject::stopping()),
    };
    let model = match adapter {
        Some(adapter) => format!("{}:{adapter}", state.options.model),
        None => state.options.model.clone(),
    };
    let head = Head::new(dialect, model, slot);
    let usage = Usage { prompt: prompt_tokens, ..Usage::default() };
    if wanted.stream {
        let chunks = Chunks::new(state, head, parts, usage, choices, wanted.stream_usage);
        return Ok(chunks.response());
    }
    let (replies, usage) = whole(parts, choices, usage).await?;
    Ok(axum::Json(head.whole(&state.text, &replies, usage, logprobs.is_some())).into_response())
}

/// All parts together.
async fn whole(
    mut parts: mpsc::Receiver<Part>,
    choices: u32,
    mut usage: Usage,
) -> Result<(Vec<Choice>, Usage), Reject> {
    let mut replies = vec![Choice::default(); choices as usize];
    while let Some(part) = parts.recv().await {
        match part {
            Part::Piece { choice, text, scored } => {
                let reply = &mut replies[choice as usize];
                reply.text += &text;
                reply.scored.extend(scored);
            }
            Part::Finished { choice, reason, tokens, cached } => {
                replies[choice as usize].reason = Some(reason);
                usage.finished(choice, tokens, cached);
            }
            Part::Failed(reject) => return Err(reject),
            Part::Begun { .. } => {}
        }
    }
    match replies.iter().all(|reply| reply.reason.is_some()) {
        true => Ok((replies, usage)),
        false => Err(Reject::stopping()), // the engine's thread has gone
    }
}

impl Usage {
    fn finished(&mut self, choice: u32, tokens: usize, cached: usize) {
        self.replies += tokens;
        if choice == 0 {
            self.cached = cached; // later ones find the prompt of the first
        }
    }
}

/// A stream on its way.
struct Chunks {
    state: Arc<State>,
    head: Head,
    parts: mpsc::Receiver<Part>,
    usage: Usage,
    /// Whether the usage is told at the end.
    tell_usage: bool,
    /// Characters told of each reply.
    offsets: Vec<usize>,
    /// Replies that are not complete.
    open: usize,
    ready: VecDeque<String>,
    done: bool,
}

impl Chunks {
    fn new(
        state: Arc<State>,
        head: Head,
        parts: mpsc::Receiver<Part>,
        usage: Usage,
        choices: u32,
        tell_usage: bool,
    ) -> Chunks {
        let opening = (0..choices).filter_map(|index| head.open(index, tell_usage));
        let ready = opening.map(|chunk| chunk.to_string()).collect();
        let (offsets, open) = (vec![0; choices as usize], choices as usize);
        Chunks { state, head, parts, usage, tell_usage, offsets, open, ready, done: false }
    }

    fn response(self) -> Response {
        let events = stream::unfold(self, |mut chunks| async move {
            let data = chunks.next().await?;
            Some((Ok::<_, Infallible>(Event::default().data(data)), chunks))
        });
        Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
    }

    /// The data of the next event.
    async fn next(&mut self) -> Option<String> {
        while self.ready.is_empty() && !self.done {
            match self.parts.recv().await {
                Some(part) => self.take(part),
                None => self.fail(&Reject::stopping()),
            }
        }
        self.ready.pop_front()
    }

    fn take(&mut self, part: Part) {
        let usage = self.tell_usage;
        match part {
            Part::Piece { choice, text, scored } => {
                let offset = &mut self.offsets[choice as usize];
                let chunk = self.head.piece(&self.state.text, choice, &text, &scored, offset, usage);
                self.push(chunk);
            }
            Part::Finished { choice, reason, tokens, cached } => {
                self.usage.finished(choice, tokens, cached);
                self.push(self.head.close(choice, reason, usage));
                self.open -= 1;
                if self.open == 0 {
                    self.end();
                }
            }
            Part::Failed(reject) => self.fail(&reject),
            Part::Begun { .. } => {}
        }
    }

    fn end(&mut self) {
        if self.tell_usage {
            self.push(self.head.usage(self.usage));
        }
        self.ready.push_back("[DONE]".to_owned());
        self.done = true;
    }

    /// The status is told already: an error comes as an event, and without `[DONE]`.
    fn fail(&mut self, reject: &Reject) {
        self.push(reject.body());
        self.done = true;
    }

    fn push(&mut self, chunk: Value) {
        self.ready.push_back(chunk.to_string());
    }
}
