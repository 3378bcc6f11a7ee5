//! Refusals: the one place where a kind of error becomes a status, and an error becomes an answer.
//!
//! Every refusal is the OpenAI error object: `{"error": {"message", "type", "param", "code"}}`; a conflict of a prompt
//! with a slot also tells the `position`.

use apprentice_engine::{EngineError, ErrorKind};
use apprentice_models::ModelError;
use apprentice_text::TextError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why a request is not carried out.
#[derive(Clone, PartialEq, Debug)]
pub struct Reject {
    /// Status of the answer.
    pub status: StatusCode,
    /// What there is to say, for people.
    pub message: String,
    /// The field of the request that is wrong, as a path: `messages[2].content`.
    pub param: Option<String>,
    /// A name for programs.
    pub code: &'static str,
    /// The first position at which a prompt is not what a slot holds.
    pub position: Option<usize>,
}

impl Reject {
    /// A refusal with a status of its own.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Reject {
        Reject { status, message: message.into(), param: None, code, position: None }
    }
    /// A field that is not what it must be.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Reject {
        Reject::new(StatusCode::BAD_REQUEST, "invalid_value", message).at(param)
    }
    /// A field that asks for something that is not built.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Reject {
        Reject::new(status(ErrorKind::Unsupported), "unsupported", message).at(param)
    }
    /// Something named that does not exist.
    pub fn missing(code: &'static str, message: impl Into<String>) -> Reject {
        Reject::new(status(ErrorKind::Missing), code, message)
    }
    /// Something that is already otherwise.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Reject {
        Reject::new(status(ErrorKind::Conflict), code, message)
    }
    /// A prompt beyond the context.
    pub fn context(found: usize, limit: usize) -> Reject {
        let message = format!("{found} tokens; the context has {limit}");
        Reject::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message)
    }
    /// The queue is full.
    pub fn busy() -> Reject {
        let message = "too many requests are waiting; try again later";
        Reject::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
    }
    /// The server is on its way down.
    pub fn stopping() -> Reject {
        Reject::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the server is stopping")
    }
    /// A request that took longer than the server allows.
    pub fn timeout() -> Reject {
        Reject::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the request took too long and was stopped")
    }
    /// The same, and the field that it is about.
    pub fn at(mut self, param: impl Into<String>) -> Reject {
        self.param = Some(param.into());
        self
    }
    /// The same, unless it already names a field.
    pub fn or_at(mut self, param: &str) -> Reject {
        self.param.get_or_insert_with(|| param.to_owned());
        self
    }
    /// The same, and the first differing position.
    pub fn position(mut self, position: usize) -> Reject {
        self.position = Some(position);
        self
    }

    /// The error object.
    pub fn body(&self) -> Value {
        let mut error = json!({
            "message": self.message,
            "type": self.family(),
            "param": self.param,
            "code": self.code,
        });
        if let Some(position) = self.position {
            error["position"] = position.into();
        }
        json!({ "error": error })
    }

    fn family(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            409 => "conflict_error",
            429 => "rate_limit_error",
            status if status >= 500 => "server_error",
            _ => "invalid_request_error",
        }
    }
}

/// The status of a kind of error.
pub fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Input | ErrorKind::Limit | ErrorKind::Unsupported => StatusCode::BAD_REQUEST,
        ErrorKind::Missing => StatusCode::NOT_FOUND,
        ErrorKind::Conflict => StatusCode::CONFLICT,
        ErrorKind::Io => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorKind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn code(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Input => "invalid_value",
        ErrorKind::Missing => "not_found",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Limit => "limit",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Io => "io",
        ErrorKind::Cancelled => "cancelled",
    }
}

macro_rules! rejected {
    ($($error:ty),*) => {
        $(impl From<$error> for Reject {
            fn from(error: $error) -> Reject {
                Reject::new(status(error.kind()), code(error.kind()), error.to_string())
            }
        })*
    };
}

rejected!(ModelError);

/// A failure of what the server runs on is not the client's, whatever its kind.
impl From<EngineError> for Reject {
    fn from(error: EngineError) -> Reject {
        match error {
            EngineError::Context { found, limit } => Reject::context(found, limit),
            EngineError::Backend(_) | EngineError::Graph(_) => {
                Reject::new(StatusCode::INTERNAL_SERVER_ERROR, code(error.kind()), error.to_string())
            }
            error => Reject::new(status(error.kind()), code(error.kind()), error.to_string()),
        }
    }
}

/// A conversation that the template of the model does not take is a wrong request; so is asking a model without one.
impl From<TextError> for Reject {
    fn from(error: TextError) -> Reject {
        let status = match error.kind() {
            ErrorKind::Io => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Reject::new(status, code(error.kind()), error.to_string())
    }
}

impl IntoResponse for Reject {
    fn into_response(self) -> Response {
        let json = HeaderValue::from_static("application/json");
        let mut answer =
            (self.status, [(header::CONTENT_TYPE, json)], self.body().to_string()).into_response();
        let extra = match self.status {
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Some((header::RETRY_AFTER, "1"))
            }
            _ => None,
        };
        if let Some((name, value)) = extra {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_the_error_object() {
        let refused = Reject::field("n", "expected 1 to 16, found 0");
        let expected = json!({"error": {
            "message": "expected 1 to 16, found 0", "type": "invalid_request_error", "param": "n", "code": "invalid_value",
        }});
        assert_eq!(refused.body(), expected);
        assert_eq!(Reject::conflict("prompt_mismatch", "x").position(7).body()["error"]["position"], 7);
    }

    #[test]
    fn every_kind_but_the_systems_is_the_clients() {
        let check = |kind, expected| assert_eq!(status(kind).as_u16(), expected, "{kind:?}");
        check(ErrorKind::Input, 400);
        check(ErrorKind::Limit, 400);
        check(ErrorKind::Unsupported, 400);
        check(ErrorKind::Missing, 404);
        check(ErrorKind::Conflict, 409);
        check(ErrorKind::Io, 500);
        check(ErrorKind::Cancelled, 503);
    }
}
