//! Limits, and clients that go away.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::client::send;
use crate::house::House;

/// A request whose replies would go on to the end of their contexts.
fn endless() -> serde_json::Value {
    json!({"prompt": "x", "stream": true, "n": 16, "logit_bias": {"257": -100, "258": -100}})
}

#[test]
fn a_client_that_goes_away_frees_its_slot() {
    let house = House::open(|options| options.slots = 1);
    for _ in 0..3 {
        let mut stream = house.begin("POST", "/v1/completions", endless().to_string().as_bytes());
        stream.head();
        stream.chunk();
        drop(stream);
        house.wait("requests_running", |running| running == 0.0);
        house.wait("pages_used", |used| used == 0.0);
    }
    let mut body = endless();
    body["stream"] = false.into();
    let whole = house.begin("POST", "/v1/completions", body.to_string().as_bytes());
    house.wait("requests_running", |running| running == 1.0);
    drop(whole); // before a single byte
    house.wait("requests_running", |running| running == 0.0);
    assert_eq!(house.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 2})).status, 200);
    assert!(house.metric("requests_cancelled_total") >= 3.0);
}

#[test]
fn a_full_queue_is_told_at_once() {
    let house = House::open(|options| {
        options.slots = 1;
        options.queue = 1;
    });
    let first = house.begin("POST", "/v1/completions", endless().to_string().as_bytes());
    house.wait("requests_running", |running| running == 1.0);
    let second = house.begin("POST", "/v1/completions", endless().to_string().as_bytes());
    house.wait("requests_waiting", |waiting| waiting == 1.0);
    let third = house.post("/v1/completions", &endless());
    assert_eq!(third.refusal(), (429, "queue_full".to_owned(), None));
    assert_eq!(third.header("retry-after"), Some("1"));
    drop(first);
    // The second has its turn.
    let mut second = second;
    assert_eq!(second.head().0, 200);
    drop(second);
    house.wait("requests_running", |running| running == 0.0);
}

#[test]
fn a_request_takes_its_time_and_no_more() {
    let house = House::open(|options| options.timeout = Duration::from_millis(1));
    let body = json!({"prompt": "x".repeat(400), "logit_bias": {"257": -100, "258": -100}});
    assert_eq!(house.post("/v1/completions", &body).refusal().0, 408);
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let house = House::open(|options| options.body_bytes = 1000);
    let check = |length: usize, status: u16| {
        let body = json!({"content": "x".repeat(length)});
        assert_eq!(house.post("/tokenize", &body).status, status, "{length}");
    };
    check(900, 200);
    check(1000, 413);
    check(1 << 20, 413);
    // In chunks, without a length that could be refused at once.
    let mut stream = TcpStream::connect(house.address).unwrap();
    let head = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..3 {
        let _ = write!(stream, "200\r\n{}\r\n", "x".repeat(512));
    }
    let _ = stream.write_all(b"0\r\n\r\n");
    let mut answer = String::new();
    let _ = std::io::Read::read_to_string(&mut stream, &mut answer);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[test]
fn a_request_of_another_protocol_is_none() {
    let house = House::open(|_| ());
    let answer = send(house.address, "GET", "/../../etc", &[], b"").answer();
    assert_eq!(answer.status, 404);
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").unwrap();
    drop(stream);
    assert_eq!(house.get("/health").status, 200);
}

#[test]
fn several_replies_in_one_slot_are_one_request() {
    let house = House::open(|options| options.slots = 1);
    let body = json!({"prompt": "x", "n": 16, "max_tokens": 3, "temperature": 1});
    assert_eq!(house.post("/v1/completions", &body).ok()["choices"].as_array().unwrap().len(), 16);
}
