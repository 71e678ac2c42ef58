//! A server that keeps what it is sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub method: String,
    pub path: String,
    /// In lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl RecordedRequest {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A server on the loopback. Its thread ends with the process.
pub struct WebRecorder {
    pub url: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

type AnswerFn = dyn Fn(&RecordedRequest) -> (u16, String) + Send + Sync;

impl WebRecorder {
    /// A server that answers each request with a status and a body.
    pub fn start(
        answer: impl Fn(&RecordedRequest) -> (u16, String) + Send + Sync + 'static,
    ) -> WebRecorder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<RecordedRequest>>> = Arc::default();
        let kept = requests.clone();
        let answer: Arc<AnswerFn> = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = kept.clone();
                let answer = answer.clone();
                std::thread::spawn(move || serve(stream.unwrap(), &kept, answer.as_ref()));
            }
        });
        WebRecorder { url, requests }
    }

    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

/// Answers one connection until it is closed.
fn serve(stream: TcpStream, kept: &Mutex<Vec<RecordedRequest>>, answer: &AnswerFn) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_owned());
        }
        let mut words = lines[0].split(' ').map(str::to_owned);
        let method = words.next().unwrap();
        let path = words.next().unwrap();
        let header = |line: &String| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let headers: Vec<(String, String)> = lines[1..].iter().map(header).collect();
        let mut request = RecordedRequest {
            method,
            path,
            headers,
            body: Vec::new(),
        };
        let length = request
            .header("content-length")
            .map_or(0, |length| length.parse().unwrap());
        request.body = vec![0; length];
        reader.read_exact(&mut request.body).unwrap();
        let (status, body) = answer(&request);
        kept.lock().unwrap().push(request);
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if reader
            .get_mut()
            .write_all(format!("{head}{body}").as_bytes())
            .is_err()
        {
            return;
        }
    }
}
