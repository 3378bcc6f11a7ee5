//! Who may ask: keys, and what keeps a web page of somebody else's from asking in the name of whoever reads it.
//!
//! No answer allows another origin to read it (no CORS). What changes something must not come from another origin at all:
//! a body is JSON by its content type, which a page of another origin cannot send unasked, and an `Origin` that is not the
//! server's own is refused. Without keys, a server on the loopback interface answers only to names of this machine, so that
//! a foreign name that resolves to it is of no use.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State as Extracted};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::reject::Reject;
use crate::state::State;

/// Paths that need no key: nothing is told there that is worth one.
const OPEN: [&str; 2] = ["/", "/health"];

/// Lets a request through, or refuses it; counts the answer.
pub async fn guard(Extracted(state): Extracted<Arc<State>>, request: Request, next: Next) -> Response {
    let answer = match check(&state, &request) {
        Ok(()) => next.run(request).await,
        Err(reject) => reject.into_response(),
    };
    state.metrics.answered(answer.status().as_u16());
    answer
}

fn check(state: &State, request: &Request) -> Result<(), Reject> {
    let (headers, keys) = (request.headers(), &state.options.api_keys);
    let host = text(headers, header::HOST);
    if keys.is_empty() && is_loopback(&state.options.address) && !host.is_none_or(is_loopback) {
        let message = "the server answers to this machine's own names only; --api-key lifts that";
        return Err(Reject::new(StatusCode::FORBIDDEN, "host_not_allowed", message));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        check_origin(headers, host)?;
    }
    if keys.is_empty() || OPEN.contains(&request.uri().path()) {
        return Ok(());
    }
    let given = text(headers, header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    // Every key is compared in full, so that the time tells nothing of how much was right.
    match keys.iter().fold(false, |known, key| known | given.is_some_and(|given| same(key, given))) {
        true => Ok(()),
        false => {
            let message = "a key is needed: Authorization: Bearer KEY";
            Err(Reject::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message))
        }
    }
}

fn check_origin(headers: &HeaderMap, host: Option<&str>) -> Result<(), Reject> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let authority =
        origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    match authority {
        Some(authority) if Some(authority) == host => Ok(()),
        _ => {
            let message = "a page of another origin may not ask";
            Err(Reject::new(StatusCode::FORBIDDEN, "origin_not_allowed", message))
        }
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Whether an authority, `HOST` or `HOST:PORT`, is this machine by the loopback interface.
fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Whether two keys are the same, in a time that depends on the length of the first alone.
fn same(key: &str, given: &str) -> bool {
    let given = given.as_bytes();
    let differences = key.bytes().enumerate().fold(0, |differences, (index, byte)| {
        differences | (byte ^ given.get(index).copied().unwrap_or(!byte))
    });
    differences == 0 && key.len() == given.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_or_not() {
        let check = |key, given, expected| assert_eq!(same(key, given), expected, "{key} {given}");
        check("abc", "abc", true);
        check("abc", "abd", false);
        check("abc", "ab", false);
        check("abc", "abcd", false);
        check("abc", "", false);
    }

    #[test]
    fn loopback_by_any_of_its_names() {
        for name in
            ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "127.8.8.8:80", "[::1]", "[::1]:8080"]
        {
            assert!(is_loopback(name), "{name}");
        }
        for name in [
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org:80",
            "0.0.0.0:8080",
            "10.0.0.1",
            "",
        ] {
            assert!(!is_loopback(name), "{name}");
        }
    }

    #[test]
    fn an_origin_is_the_hosts_own_or_refused() {
        let check = |origin: &str, host: &str, ok: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            assert_eq!(check_origin(&headers, Some(host)).is_ok(), ok, "{origin} {host}");
        };
        check("http://127.0.0.1:8080", "127.0.0.1:8080", true);
        check("https://models.example.org", "models.example.org", true);
        check("http://example.org", "127.0.0.1:8080", false);
        check("http://127.0.0.1:3000", "127.0.0.1:8080", false);
        check("null", "127.0.0.1:8080", false);
    }
}
