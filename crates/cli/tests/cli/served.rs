//! A server of the built binary on a port that is free, and requests to it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// `apprentice serve` at work. Dropped, it is killed.
pub struct Served {
    child: Child,
    address: String,
}

impl Served {
    /// Serves a model with the adapters of a folder, as soon as it listens.
    pub fn start(model: &Path, adapters: &Path, flags: &[&dyn AsRef<OsStr>]) -> Served {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apprentice"));
        command.arg("serve").arg("-m").arg(model).arg("--adapters").arg(adapters).args(["--port", "0"]);
        command.args(flags.iter().map(|flag| AsRef::<OsStr>::as_ref(*flag)));
        let mut child =
            command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let mut said = String::new();
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            said += &format!("{line}\n");
            line.strip_prefix("listening on http://").map(str::to_owned)
        });
        // What it says later would fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let address = address.unwrap_or_else(|| panic!("it does not listen:\n{said}"));
        Served { child, address }
    }

    /// The answer to a request: its status and its JSON.
    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let json = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
        (status.expect("a status"), json)
    }

    /// The answer to a request that is carried out.
    #[track_caller]
    pub fn ok(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, body);
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }

    /// Sends a signal and gives the exit code.
    pub fn end(mut self, signal: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Where it has ended already there is nothing to kill.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
