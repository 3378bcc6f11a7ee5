//! What a server is told, and the limits that it keeps.

use std::path::PathBuf;
use std::time::Duration;

/// Messages of a conversation.
pub const MESSAGES_MAX: usize = 1024;
/// Parts of a message.
pub const PARTS_MAX: usize = 1024;
/// Bytes of a name: of a role, a conversation, a model.
pub const NAME_BYTES_MAX: usize = 256;
/// Replies of one request.
pub const CHOICES_MAX: i64 = 16;
/// Stop strings of a request.
pub const STOPS_MAX: usize = 4;
/// Bytes of a stop string.
pub const STOP_BYTES_MAX: usize = 256;
/// Entries of a logit bias.
pub const BIASES_MAX: usize = 1024;
/// Optimiser steps of one lesson.
pub const STEPS_MAX: i64 = 100;
/// Optimiser steps of a lesson that names no number.
pub const STEPS: usize = apprentice_engine::TEACHING_STEPS;
/// Templates that are rendered at the same time, each on a thread.
pub const RENDERINGS_MAX: usize = 4;
/// Connections that are open at the same time.
pub const CONNECTIONS_MAX: usize = 1024;
/// What a client may take to send the head of a request, and then its body.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// What running requests get to finish once the server is told to stop.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// What a server is told.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Address that it listens on, `HOST:PORT`; port 0 takes any that is free.
    pub address: String,
    /// Keys, one of which a request must carry; none: anybody may ask.
    pub api_keys: Vec<String>,
    /// Name of the model.
    pub model: String,
    /// Conversations that are remembered, and requests that run at the same time.
    pub slots: usize,
    /// Requests that wait for a slot, and lessons that wait for their turn.
    pub queue: usize,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// What a request may take, from its arrival to its last byte.
    pub timeout: Duration,
    /// Folder of adapters: loaded at the start, written at each generation.
    pub adapters: Option<PathBuf>,
    /// Adapter of requests that name none, as soon as there is one of this name.
    pub adapter: Option<String>,
    /// Whether adapters of another base model are loaded all the same.
    pub force: bool,
}

impl ServerOptions {
    /// A server of `model` on this machine alone.
    pub fn new(model: impl Into<String>) -> ServerOptions {
        ServerOptions {
            address: "127.0.0.1:8080".to_owned(),
            api_keys: Vec::new(),
            model: model.into(),
            slots: 4,
            queue: 64,
            body_bytes: 1 << 20,
            timeout: Duration::from_secs(3600),
            adapters: None,
            adapter: None,
            force: false,
        }
    }
}
