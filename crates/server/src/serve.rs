//! The server: the engine on the thread that runs it, HTTP on another.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;
use std::thread;

use apprentice_engine::Engine;
use apprentice_text::Text;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};

use crate::error::ServerError;
use crate::metrics::Metrics;
use crate::options::{CONNECTIONS_MAX, READ_TIMEOUT, STOP_TIMEOUT, ServerOptions};
use crate::routes::routes;
use crate::shelf::Shelf;
use crate::slots::Slots;
use crate::state::State;
use crate::worker::Worker;

/// A server that listens and has not answered yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    engine: Engine,
    text: Text,
    shelf: Shelf,
    options: ServerOptions,
    stop: watch::Sender<bool>,
    signals: bool,
}

/// Stops a server from another thread.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Tells it to stop: no new requests, a little time for those that run.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    /// Loads adapters and begins to listen.
    ///
    /// # Errors
    /// Settings that cannot be; adapters that cannot be loaded; an address that cannot be listened on.
    pub fn bind(mut engine: Engine, text: Text, options: ServerOptions) -> Result<Server, ServerError> {
        check(&options)?;
        let shelf = Shelf::open(&mut engine, options.adapters.clone(), options.force)?;
        let failed = |error| ServerError::Address { address: options.address.clone(), error };
        let listener = TcpListener::bind(&options.address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Server {
            listener,
            address,
            engine,
            text,
            shelf,
            options,
            stop: watch::Sender::new(false),
            signals: false,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of adapters loaded.
    pub fn adapters(&self) -> usize {
        self.shelf.len()
    }

    /// Stops it.
    pub fn stop(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Has it stop at Ctrl-C or a request to terminate; a second one ends the process at once, with code 130.
    pub fn stop_on_signals(&mut self) {
        self.signals = true;
    }

    /// Answers until it is told to stop. The engine runs on the thread of the call.
    ///
    /// # Errors
    /// Threads that the system does not give.
    pub fn run(self) -> Result<(), ServerError> {
        let Server { listener, engine, text, shelf, options, stop, signals, .. } = self;
        let failed = |what| move |error| ServerError::System { what, error };
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(failed("the runtime of HTTP"))?;
        let metrics = Arc::new(Metrics::default());
        let (sender, receiver) = sync_channel(options.queue);
        let context = engine.options().context;
        let worker = Worker {
            engine,
            text: text.clone(),
            shelf,
            slots: Slots::new(options.slots),
            adapter: options.adapter.clone(),
            queue: options.queue,
            metrics: metrics.clone(),
            model: options.model.clone(),
        };
        let state = Arc::new(State::new(options, text, context, metrics, sender));
        let http = thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || answer(&runtime, listener, state, &stop, signals))
            .map_err(failed("the thread of HTTP"))?;
        worker.run(&receiver);
        http.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn check(options: &ServerOptions) -> Result<(), ServerError> {
    let wrong = |setting, expected, found: String| Err(ServerError::Setting { setting, expected, found });
    if options.model.is_empty() || options.model.contains(':') {
        return wrong("alias", "a name without ':'", format!("{:?}", options.model));
    }
    if options.api_keys.iter().any(|key| key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic())) {
        return wrong("api-key", "visible ASCII characters", "another, or none".to_owned());
    }
    for (setting, found) in
        [("slots", options.slots), ("queue", options.queue), ("max-body", options.body_bytes)]
    {
        if found == 0 {
            return wrong(setting, "at least 1", found.to_string());
        }
    }
    Ok(())
}

/// The thread of HTTP. When it ends, nobody can ask the engine any more, and its thread ends too.
fn answer(
    runtime: &Runtime,
    listener: TcpListener,
    state: Arc<State>,
    stop: &watch::Sender<bool>,
    signals: bool,
) -> Result<(), ServerError> {
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::from_std(listener)
            .map_err(|error| ServerError::System { what: "the listener", error })?;
        if signals {
            tokio::spawn(stop_on_signals(Signals::new()?, stop.clone()));
        }
        let connections = GracefulShutdown::new();
        let router = routes(state.clone());
        let mut stopped = stop.subscribe();
        tokio::select! {
            () = accept(&listener, &router, &connections) => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
        drop(listener);
        state.stopping.store(true, Relaxed);
        // Whoever is not done by then is cut off.
        let _ = tokio::time::timeout(STOP_TIMEOUT, connections.shutdown()).await;
        Ok(())
    })
}

/// What tells a program to stop.
struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Signals, ServerError> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let listen = |kind| signal(kind).map_err(|error| ServerError::System { what: "signals", error });
            Ok(Signals {
                interrupt: listen(SignalKind::interrupt())?,
                terminate: listen(SignalKind::terminate())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Signals {})
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}

async fn stop_on_signals(mut signals: Signals, stop: watch::Sender<bool>) {
    signals.next().await;
    stop.send_replace(true);
    signals.next().await;
    std::process::exit(130);
}

/// Takes connections, up to a number of them at a time.
async fn accept(listener: &tokio::net::TcpListener, router: &Router, connections: &GracefulShutdown) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            // Out of file descriptors, or gone before it was taken: neither lasts.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        // A stream of small events is told event by event.
        let _ = socket.set_nodelay(true);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(READ_TIMEOUT)
            .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router.clone()));
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            // A connection that breaks is its client's affair.
            let _ = connection.await;
            drop(place);
        });
    }
}
