//! A client of HTTP/1.1 in a few lines: one request a connection, the answer as bytes or event by event.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
    /// The body of an answer that must be there.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }
    /// Status, code and field of a refusal; it must be the error object.
    #[track_caller]
    pub fn refusal(&self) -> (u16, String, Option<String>) {
        let json = self.json();
        let error = &json["error"];
        let text = |name: &str| error[name].as_str().map(str::to_owned);
        assert!(text("message").is_some_and(|message| !message.is_empty()), "{json}");
        assert!(text("type").is_some_and(|kind| kind.ends_with("_error")), "{json}");
        (self.status, text("code").unwrap_or_default(), text("param"))
    }
    /// The data of each event of a stream.
    pub fn events(&self) -> Vec<String> {
        let text = self.text();
        let events = text.split_terminator("\n\n").map(|event| {
            event.strip_prefix("data: ").unwrap_or_else(|| panic!("no event: {event:?}")).to_owned()
        });
        events.collect()
    }
}

/// An open connection with a request on its way.
pub struct Exchange {
    reader: BufReader<TcpStream>,
}

/// Sends a request: a method, a path, headers as lines, a body.
pub fn send(address: SocketAddr, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Exchange {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|line| line.starts_with("Host:")) {
        head += &format!("Host: {address}\r\n");
    }
    for line in headers {
        head += &format!("{line}\r\n");
    }
    if !body.is_empty() || method == "POST" {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(b"\r\n").unwrap();
    // A server that refuses by the head alone may close before it has read a body.
    let _ = stream.write_all(body);
    Exchange { reader: BufReader::new(stream) }
}

impl Exchange {
    /// Waits for the answer and reads all of it.
    pub fn answer(mut self) -> Answer {
        let (status, headers) = self.head();
        let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let mut body = Vec::new();
        if chunked {
            while let Some(chunk) = self.chunk() {
                body.extend(chunk);
            }
        } else {
            self.reader.read_to_end(&mut body).unwrap();
        }
        Answer { status, headers, body }
    }

    /// Reads status and headers.
    pub fn head(&mut self) -> (u16, Vec<(String, String)>) {
        let status = self.line();
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        (status.expect("a status"), headers)
    }

    /// Reads a chunk of the body; `None` at its end.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let length = usize::from_str_radix(&self.line(), 16).expect("the length of a chunk");
        let mut chunk = vec![0; length];
        self.reader.read_exact(&mut chunk).unwrap();
        self.line();
        (length > 0).then_some(chunk)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}
