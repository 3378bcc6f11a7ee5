//! What requests share: the text of the model, the way to the engine's thread, and the numbers of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Instant;

use apprentice_text::{Conversation, EncodeOptions, Message, Text};
use axum::http::StatusCode;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::command::{Answer, Command, Generation, Part};
use crate::metrics::Metrics;
use crate::options::{RENDERINGS_MAX, ServerOptions};
use crate::reject::Reject;
use crate::wanted::{Prompt, Sizes};

/// What all requests share.
pub struct State {
    /// What the server was told.
    pub options: ServerOptions,
    /// The text of the model.
    pub text: Text,
    /// Positions of a sequence.
    pub context: usize,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// When the server began.
    pub begun: Instant,
    /// Whether it is on its way down.
    pub stopping: AtomicBool,
    queue: SyncSender<Command>,
    renderings: Semaphore,
}

impl State {
    /// What requests share, with `queue` as the way to the engine's thread.
    pub fn new(
        options: ServerOptions,
        text: Text,
        context: usize,
        metrics: Arc<Metrics>,
        queue: SyncSender<Command>,
    ) -> State {
        State {
            options,
            text,
            context,
            metrics,
            begun: Instant::now(),
            stopping: AtomicBool::new(false),
            queue,
            renderings: Semaphore::new(RENDERINGS_MAX),
        }
    }

    /// What a request must fit.
    pub fn sizes(&self) -> Sizes {
        Sizes { vocab: self.text.vocab(), slots: self.options.slots }
    }

    /// Work with text, on a thread where it holds nobody up; a few at a time.
    ///
    /// # Errors
    /// Those of the work; the server is stopping.
    pub async fn with_text<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Text) -> Result<T, Reject> + Send + 'static,
    ) -> Result<T, Reject> {
        let _turn = self.renderings.acquire().await.map_err(|_| Reject::stopping())?;
        let text = self.text.clone();
        tokio::task::spawn_blocking(move || work(&text)).await.unwrap_or_else(|error| {
            let message = format!("the request could not be read: {error}");
            Err(Reject::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message))
        })
    }

    /// The tokens of a prompt, and what it was made from.
    ///
    /// # Errors
    /// A conversation that the template does not take; a prompt without tokens, or without room for a reply.
    pub async fn prompt(&self, prompt: Prompt) -> Result<(Vec<u32>, Option<Vec<Message>>), Reject> {
        let (param, (tokens, messages)) = match prompt {
            Prompt::Tokens(tokens) => ("prompt", (tokens, None)),
            Prompt::Text(prompt) => {
                let encode =
                    move |text: &Text| Ok(text.encode(&prompt, EncodeOptions { special: true, bos: true }));
                ("prompt", (self.with_text(encode).await?, None))
            }
            Prompt::Messages(messages) => {
                let render = move |text: &Text| {
                    let conversation = Conversation::new(messages);
                    let tokens = text.prompt(&conversation)?;
                    Ok((tokens, Some(conversation.messages)))
                };
                ("messages", self.with_text(render).await.map_err(|reject| reject.or_at("messages"))?)
            }
        };
        match tokens.len() {
            0 => Err(Reject::field(param, format!("{param}: has no tokens"))),
            found if found >= self.context => Err(Reject::context(found, self.context).at(param)),
            _ => Ok((tokens, messages)),
        }
    }

    /// Asks for replies; their parts come out of the channel.
    ///
    /// # Errors
    /// Too many wait, or the server is stopping.
    pub fn generate(&self, generation: Generation) -> Result<mpsc::Receiver<Part>, Reject> {
        let (sender, receiver) = mpsc::channel(generation.parts_max().min(Semaphore::MAX_PERMITS));
        self.send(Command::Generate(Box::new(generation), sender))?;
        Ok(receiver)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// Those of the answer; too many wait, or the server is stopping.
    pub async fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Result<T, Reject> {
        let (sender, receiver) = oneshot::channel();
        self.send(command(sender))?;
        receiver.await.unwrap_or_else(|_| Err(Reject::stopping()))
    }

    fn send(&self, command: Command) -> Result<(), Reject> {
        if self.stopping.load(Relaxed) {
            return Err(Reject::stopping());
        }
        self.queue.try_send(command).map_err(|error| match error {
            TrySendError::Full(_) => Reject::busy(),
            TrySendError::Disconnected(_) => Reject::stopping(),
        })
    }
}
