//! What a check found: a row a part, with figures, bounds and a verdict; as a table and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

/// A finished check.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// Rows, in the order in which they were run.
    pub rows: Vec<Row>,
}

/// A part, a family or a format.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What came out.
    pub verdict: Verdict,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// What else there is to say: where the worst was, or why it was not run.
    pub note: String,
}

/// What came out of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every figure holds.
    Passed,
    /// A figure does not hold.
    Failed,
    /// Its files are not there.
    NotRun,
    /// What it needs is not built.
    NotBuilt,
}

/// A measured number and its bound.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// What was measured.
    pub value: f64,
    /// What it is held to.
    pub bound: f64,
    /// On which side of the bound it must lie.
    pub side: Side,
}

/// A side of a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// At most the bound.
    AtMost,
    /// At least the bound.
    AtLeast,
}

impl Figure {
    /// A figure that may be `bound` and not more.
    pub fn at_most(name: &'static str, value: f64, bound: f64) -> Figure {
        Figure { name, value, bound, side: Side::AtMost }
    }
    /// A figure that may be `bound` and not less.
    pub fn at_least(name: &'static str, value: f64, bound: f64) -> Figure {
        Figure { name, value, bound, side: Side::AtLeast }
    }
    /// Whether it lies on its side of the bound. What is not a number does not.
    pub fn holds(&self) -> bool {
        match self.side {
            Side::AtMost => self.value <= self.bound,
            Side::AtLeast => self.value >= self.bound,
        }
    }
}

impl Row {
    /// A row that was measured: passed if every figure holds.
    pub fn measured(name: impl Into<String>, figures: Vec<Figure>, note: impl Into<String>) -> Row {
        let verdict = if figures.iter().all(Figure::holds) { Verdict::Passed } else { Verdict::Failed };
        Row { name: name.into(), verdict, figures, note: note.into() }
    }
    /// A row without figures.
    pub fn without(name: impl Into<String>, verdict: Verdict, note: impl Into<String>) -> Row {
        Row { name: name.into(), verdict, figures: Vec::new(), note: note.into() }
    }
}

impl Verdict {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::NotRun => "not run",
            Verdict::NotBuilt => "not built",
        }
    }
}

impl Report {
    /// Whether nothing failed; with `all`, whether nothing was left out for not being built either.
    pub fn passed(&self, all: bool) -> bool {
        self.rows.iter().all(|row| match row.verdict {
            Verdict::Passed | Verdict::NotRun => true,
            Verdict::Failed => false,
            Verdict::NotBuilt => !all,
        })
    }

    /// Rows with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// A line a row: name, verdict, figures with their bounds, note.
    pub fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let mut table = String::new();
        for row in &self.rows {
            let figures: Vec<String> = row.figures.iter().map(Figure::text).collect();
            let rest = [figures.join(", "), row.note.clone()];
            let rest: Vec<&str> = rest.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
            let line = format!("{:width$}  {:9}  {}", row.name, row.verdict.name(), rest.join("; "));
            // Writing to a string cannot fail.
            let _ = writeln!(table, "{}", line.trim_end());
        }
        table
    }

    /// The same as data: `{"passed", "rows": [{"name", "verdict", "figures": [{"name", "value", "bound", "side",
    /// "holds"}], "note"}]}`. A value that is not a finite number is `null`.
    pub fn json(&self, all: bool) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        json!({ "passed": self.passed(all), "rows": rows })
    }
}

impl Row {
    fn json(&self) -> Value {
        let figures: Vec<Value> = self.figures.iter().map(Figure::json).collect();
        json!({ "name": self.name, "verdict": self.verdict.name(), "figures": figures, "note": self.note })
    }
}

impl Figure {
    fn text(&self) -> String {
        let side = match self.side {
            Side::AtMost => "at most",
            Side::AtLeast => "at least",
        };
        format!("{} {} ({side} {})", self.name, number(self.value), number(self.bound))
    }

    fn json(&self) -> Value {
        let side = match self.side {
            Side::AtMost => "at most",
            Side::AtLeast => "at least",
        };
        let (name, value, bound, holds) = (self.name, self.value, self.bound, self.holds());
        json!({ "name": name, "value": value, "bound": bound, "side": side, "holds": holds })
    }
}

/// Small and large numbers with an exponent, others as they are.
fn number(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-2..1e6).contains(&value.abs());
    let text = if plain { format!("{value:.7}") } else { return format!("{value:.2e}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_a_number_holds_no_bound() {
        assert!(
            !Figure::at_most("x", f64::NAN, 1.0).holds() && !Figure::at_least("x", f64::NAN, 0.0).holds()
        );
        assert!(Figure::at_most("x", 1.0, 1.0).holds() && Figure::at_least("x", 1.0, 1.0).holds());
        assert!(!Figure::at_most("x", 1.1, 1.0).holds() && !Figure::at_least("x", 0.9, 1.0).holds());
    }

    #[test]
    fn what_is_not_built_fails_only_where_all_is_asked_for() {
        let check = |verdicts: &[Verdict], passed: bool, passed_all: bool| {
            let rows = verdicts.iter().map(|verdict| Row::without("row", *verdict, "")).collect();
            let report = Report { rows };
            assert_eq!((report.passed(false), report.passed(true)), (passed, passed_all), "{verdicts:?}");
        };
        check(&[Verdict::Passed, Verdict::NotRun], true, true);
        check(&[Verdict::Passed, Verdict::NotBuilt], true, false);
        check(&[Verdict::Passed, Verdict::Failed], false, false);
    }

    #[test]
    fn a_row_is_a_line() {
        let figures =
            vec![Figure::at_most("difference", 2.5e-5, 5e-4), Figure::at_least("cosine", 0.99995, 0.9999)];
        let rows =
            vec![Row::measured("logits", figures, "155 rows"), Row::without("x", Verdict::NotRun, "no file")];
        let report = Report { rows };
        assert_eq!(
            report.table(),
            "logits  passed     difference 2.50e-5 (at most 5.00e-4), cosine 0.99995 (at least 0.9999); 155 rows\n\
             x       not run    no file\n"
        );
        assert_eq!(report.json(false)["rows"][0]["figures"][0]["holds"], true);
    }
}
