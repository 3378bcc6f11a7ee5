//! An account of memory: bytes by name and kind, and the largest values of each program.

use std::fmt;

use apprentice_graph::{Arena, Type};

/// What memory is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Weights that are read where the file lies.
    Weights,
    /// Weights that are copied.
    CopiedWeights,
    /// Keys and values.
    Pages,
    /// Values of a run that serves.
    ServingArena,
    /// Values of a run that learns.
    LearningArena,
    /// Adapters that rows may name.
    Adapters,
    /// Adapters in training, with their gradients and moments.
    Learners,
    /// Working memory of the workers.
    Scratch,
    /// Logits and adapters that are held outside the backend.
    Copies,
}

/// Bytes of one thing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// What they are for.
    pub kind: Kind,
    /// The thing, by name: a tensor, a pool, a store, an arena.
    pub name: String,
    /// How many.
    pub bytes: u64,
}

/// What a program takes of its arena.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanAccount {
    /// What runs.
    pub name: String,
    /// Where.
    pub arena: Arena,
    /// Its peak.
    pub bytes: u64,
    /// Its largest values, the largest first. They lie there at different times.
    pub largest: Vec<PlannedValue>,
}

/// A value of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedValue {
    /// Where in the model it is made: `blk.3.attn_q`.
    pub site: String,
    /// What makes it: `linear.y`.
    pub output: String,
    /// Its type.
    pub ty: Type,
    /// Bytes that it and what shares its place take.
    pub bytes: u64,
}

/// What an engine will hold.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Account {
    /// Every thing, by kind, then in the order of the model.
    pub items: Vec<Item>,
    /// The programs.
    pub plans: Vec<PlanAccount>,
}

impl Kind {
    /// All kinds, in the order of an account.
    pub const ALL: [Kind; 9] = [
        Kind::Weights,
        Kind::CopiedWeights,
        Kind::Pages,
        Kind::ServingArena,
        Kind::LearningArena,
        Kind::Adapters,
        Kind::Learners,
        Kind::Scratch,
        Kind::Copies,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Weights => "weights",
            Kind::CopiedWeights => "copied weights",
            Kind::Pages => "pages",
            Kind::ServingArena => "serving arena",
            Kind::LearningArena => "learning arena",
            Kind::Adapters => "adapters",
            Kind::Learners => "learners",
            Kind::Scratch => "scratch",
            Kind::Copies => "copies",
        }
    }
}

impl Account {
    /// Bytes of everything.
    pub fn total(&self) -> u64 {
        self.items.iter().fold(0, |sum, item| sum.saturating_add(item.bytes))
    }

    /// Bytes of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        let items = self.items.iter().filter(|item| item.kind == kind);
        items.fold(0, |sum, item| sum.saturating_add(item.bytes))
    }

    pub(crate) fn add(&mut self, kind: Kind, name: impl Into<String>, bytes: u64) {
        if bytes > 0 {
            self.items.push(Item { kind, name: name.into(), bytes });
        }
    }
}

impl fmt::Display for Account {
    /// One line: the sum, then what it is made of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", readable(self.total()))?;
        let mut separator = ": ";
        for kind in Kind::ALL {
            let bytes = self.of(kind);
            if bytes > 0 {
                write!(f, "{separator}{} {}", kind.name(), readable(bytes))?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// Bytes in a unit that keeps them short: `123 B`, `4.5 KiB`, `678 MiB`.
pub fn readable(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, 0);
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn bytes_are_read_at_a_glance() {
        let check = |bytes: u64, expected: &str| assert_eq!(readable(bytes), expected);
        check(0, "0 B");
        check(1023, "1023 B");
        check(1536, "1.50 KiB");
        check(45 << 20, "45.0 MiB");
        check(720 << 20, "720 MiB");
        check(5 << 40, "5.00 TiB");
        check(u64::MAX, "16384 PiB");
    }
}
