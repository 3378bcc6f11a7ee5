//! What the server counts, as text for Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters and gauges. Each is a number of its own: a reading may lie between two that belong together.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Answers by the first digit of their status, from 2 on.
    pub answers: [AtomicU64; 4],
    /// Tokens of prompts.
    pub prompt_tokens: AtomicU64,
    /// Those of them that were found in pages.
    pub cached_tokens: AtomicU64,
    /// Tokens of replies.
    pub reply_tokens: AtomicU64,
    /// Replies that ended by themselves.
    pub replies: AtomicU64,
    /// Requests that were given up by their client, or took too long.
    pub cancelled: AtomicU64,
    /// Lessons learnt.
    pub lessons: AtomicU64,
    /// Lessons that were not carried out.
    pub lessons_failed: AtomicU64,
    /// Milliseconds of lessons learnt.
    pub lesson_ms: AtomicU64,
    /// Requests in slots.
    pub running: AtomicU64,
    /// Requests that wait for a slot.
    pub waiting: AtomicU64,
    /// Lessons that wait or are being learnt.
    pub lessons_waiting: AtomicU64,
    /// Adapters that requests may name.
    pub adapters: AtomicU64,
    /// Pages of all layer groups.
    pub pages: AtomicU64,
    /// Pages that replies in progress hold.
    pub pages_used: AtomicU64,
    /// Pages that are kept for whoever asks for the same.
    pub pages_cached: AtomicU64,
}

impl Metrics {
    /// Counts an answer.
    pub fn answered(&self, status: u16) {
        if let Some(counter) =
            (status / 100).checked_sub(2).and_then(|class| self.answers.get(class as usize))
        {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// All of them, in the text format of Prometheus.
    pub fn text(&self, uptime_seconds: f64) -> String {
        let mut text = String::new();
        let out = &mut text;
        head(out, "requests_total", "counter", "Answers by class of status.");
        for (class, counter) in self.answers.iter().enumerate() {
            let value = counter.load(Relaxed);
            line(out, &format!("requests_total{{status=\"{}xx\"}}", class + 2), value as f64);
        }
        let counters = [
            ("prompt_tokens_total", "Tokens of prompts.", &self.prompt_tokens),
            (
                "prompt_tokens_cached_total",
                "Tokens of prompts that were found in pages.",
                &self.cached_tokens,
            ),
            ("reply_tokens_total", "Tokens of replies.", &self.reply_tokens),
            ("replies_total", "Replies that were finished.", &self.replies),
            ("requests_cancelled_total", "Requests that were given up.", &self.cancelled),
            ("lessons_total", "Lessons learnt.", &self.lessons),
            ("lessons_failed_total", "Lessons that were not carried out.", &self.lessons_failed),
        ];
        for (name, help, counter) in counters {
            head(out, name, "counter", help);
            line(out, name, counter.load(Relaxed) as f64);
        }
        head(out, "lesson_seconds_total", "counter", "Seconds of lessons learnt.");
        line(out, "lesson_seconds_total", self.lesson_ms.load(Relaxed) as f64 / 1000.0);
        let gauges = [
            ("requests_running", "Requests in slots.", &self.running),
            ("requests_waiting", "Requests that wait for a slot.", &self.waiting),
            ("lessons_waiting", "Lessons that wait or are being learnt.", &self.lessons_waiting),
            ("adapters", "Adapters that requests may name.", &self.adapters),
            ("pages", "Pages of keys and values.", &self.pages),
            ("pages_used", "Pages that replies in progress hold.", &self.pages_used),
            ("pages_cached", "Pages that are kept for whoever asks for the same.", &self.pages_cached),
        ];
        for (name, help, gauge) in gauges {
            head(out, name, "gauge", help);
            line(out, name, gauge.load(Relaxed) as f64);
        }
        head(out, "uptime_seconds", "gauge", "Seconds since the start.");
        line(out, "uptime_seconds", uptime_seconds);
        text
    }
}

const PREFIX: &str = "apprentice_";

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
}

fn line(out: &mut String, name: &str, value: f64) {
    let _ = writeln!(out, "{PREFIX}{name} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_comment_or_a_name_and_a_number() {
        let metrics = Metrics::default();
        for status in [200, 404, 409, 500, 101, 700] {
            metrics.answered(status);
        }
        metrics.lesson_ms.store(1500, Relaxed);
        let text = metrics.text(2.5);
        for line in text.lines().filter(|line| !line.starts_with("# ")) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("apprentice_") && value.parse::<f64>().is_ok(), "{line}");
        }
        assert!(text.contains("\napprentice_requests_total{status=\"4xx\"} 2\n"), "{text}");
        assert!(text.contains("\napprentice_lesson_seconds_total 1.5\n"));
        assert!(text.contains("\napprentice_uptime_seconds 2.5\n"));
    }
}
