//! The routes: what each path reads, and who answers it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State as Extracted};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router, middleware};
use serde_json::{Value, json};

use crate::answer::Dialect;
use crate::command::Command;
use crate::fields::Fields;
use crate::guard::guard;
use crate::options::READ_TIMEOUT;
use crate::reject::Reject;
use crate::state::State;
use crate::{chat, completion, learn, page, replies, tokens};

type Shared = Extracted<Arc<State>>;

/// All routes.
pub fn routes(state: Arc<State>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/health", get(health))
        .route("/v1/models", get(models))
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(completions))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/metrics", get(metrics))
        .route("/slots", get(slots))
        .route("/adapters", get(adapters))
        .route("/adapters/{name}", delete(delete_adapter))
        .route("/adapters/{name}/save", post(save_adapter))
        .route("/learn", post(teach))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(state.clone(), guard))
        .with_state(state)
}

async fn health(Extracted(state): Shared) -> Result<Json<Value>, Reject> {
    match state.stopping.load(Relaxed) {
        true => Err(Reject::stopping()),
        false => Ok(Json(json!({"status": "ok"}))),
    }
}

async fn models(Extracted(state): Shared) -> Result<Json<Value>, Reject> {
    let adapters = state.ask(Command::Adapters).await?;
    let name = &state.options.model;
    let names =
        adapters["data"].as_array().into_iter().flatten().filter_map(|adapter| adapter["model"].as_str());
    let models = std::iter::once(name.as_str()).chain(names).map(|id| {
        json!({"id": id, "object": "model", "created": 0, "owned_by": "apprentice", "context": state.context})
    });
    Ok(Json(json!({"object": "list", "data": models.collect::<Vec<_>>()})))
}

async fn chat_completions(Extracted(state): Shared, request: Request) -> Result<Response, Reject> {
    let wanted = chat::read(fields(&state, request).await?, state.sizes())?;
    replies::answer(state, Dialect::Chat, wanted).await
}

async fn completions(Extracted(state): Shared, request: Request) -> Result<Response, Reject> {
    let wanted = completion::read(fields(&state, request).await?, state.sizes())?;
    replies::answer(state, Dialect::Completion, wanted).await
}

async fn tokenize(Extracted(state): Shared, request: Request) -> Result<Json<Value>, Reject> {
    let fields = fields(&state, request).await?;
    state.with_text(|text| tokens::tokenize(text, fields)).await.map(Json)
}

async fn detokenize(Extracted(state): Shared, request: Request) -> Result<Json<Value>, Reject> {
    let fields = fields(&state, request).await?;
    state.with_text(|text| tokens::detokenize(text, fields)).await.map(Json)
}

async fn metrics(Extracted(state): Shared) -> Response {
    let text = state.metrics.text(state.begun.elapsed().as_secs_f64());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn slots(Extracted(state): Shared) -> Result<Json<Value>, Reject> {
    state.ask(Command::Slots).await.map(Json)
}

async fn adapters(Extracted(state): Shared) -> Result<Json<Value>, Reject> {
    state.ask(Command::Adapters).await.map(Json)
}

async fn save_adapter(
    Extracted(state): Shared,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<Value>, Reject> {
    let mut fields = match body(&state, request).await? {
        bytes if bytes.is_empty() => Fields::default(),
        bytes => Fields::parse(&bytes)?,
    };
    let wanted = fields.string("name")?;
    let peft = match fields.string("format")?.as_deref() {
        None | Some("gguf") => false,
        Some("peft") => true,
        Some(other) => {
            return Err(Reject::field(
                "format",
                format!("format: expected \"gguf\" or \"peft\", found {other:?}"),
            ));
        }
    };
    let saved = wanted.clone().unwrap_or_else(|| name.clone());
    let path = state.ask(|answer| Command::Save(name, wanted, peft, answer)).await?;
    Ok(Json(json!({"name": saved, "file": path.file_name().map(|name| name.to_string_lossy())})))
}

async fn delete_adapter(Extracted(state): Shared, Path(name): Path<String>) -> Result<Json<Value>, Reject> {
    let deleted = name.clone();
    state.ask(|answer| Command::Delete(name, answer)).await?;
    Ok(Json(json!({"name": deleted, "deleted": true})))
}

async fn teach(Extracted(state): Shared, request: Request) -> Result<Json<Value>, Reject> {
    let wish = learn::Wish::read(fields(&state, request).await?, state.sizes())?;
    let held = match wish.needs_slot() {
        true => {
            let place = wish.place.clone();
            Some(state.ask(|answer| Command::Held(place, answer)).await?)
        }
        false => None,
    };
    let model = state.options.model.clone();
    let teaching = state.with_text(move |text| wish.teaching(text, &model, held)).await?;
    let taught = state.ask(|answer| Command::Learn(Box::new(teaching), answer)).await?;
    Ok(Json(learn::answer(&taught)))
}

async fn unknown(uri: Uri) -> Reject {
    Reject::missing("unknown_route", format!("{}: no such route", uri.path()))
}

async fn not_allowed(method: Method, uri: Uri) -> Reject {
    let message = format!("{method} {}: the route is there, but not by this method", uri.path());
    Reject::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

/// The object that a request's body is.
async fn fields(state: &State, request: Request) -> Result<Fields, Reject> {
    Fields::parse(&body(state, request).await?)
}

/// The body of a request: within the limits of size and time, and JSON by its type.
async fn body(state: &State, request: Request) -> Result<Bytes, Reject> {
    let (head, body) = request.into_parts();
    let limit = state.options.body_bytes;
    let announced = length(&head.headers);
    if announced.is_some_and(|bytes| bytes > limit as u64) {
        return Err(too_large(limit));
    }
    let bytes =
        tokio::time::timeout(READ_TIMEOUT, read(body, limit)).await.map_err(|_| Reject::timeout())??;
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match bytes.is_empty() || kind.eq_ignore_ascii_case("application/json") {
        true => Ok(bytes),
        false => {
            let message = format!("content-type: expected application/json, found {kind:?}");
            Err(Reject::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", message))
        }
    }
}

async fn read(body: Body, limit: usize) -> Result<Bytes, Reject> {
    axum::body::to_bytes(body, limit).await.map_err(|error| {
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = cause {
            if error.to_string().contains("length limit") {
                return too_large(limit);
            }
            cause = error.source();
        }
        Reject::new(StatusCode::BAD_REQUEST, "body", format!("the body could not be read: {error}"))
    })
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: usize) -> Reject {
    let message = format!("the body has more than {limit} bytes");
    Reject::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}
