//! Ctrl-C: the first one asks a command to stop where it can, the second one ends the program at once.
//!
//! The first is a flag that the command looks at between its steps: what is half done is finished or left out, and
//! what was learnt is saved. Until it has been looked at and forgotten ([`Interrupt::take`]) a second Ctrl-C ends the
//! program with code 130, whatever it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apprentice_graph::ErrorKind;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::exit::{Failure, INTERRUPTED};

/// Whether Ctrl-C was pressed. Clones look at the same flag.
#[derive(Clone, Debug)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens from now on, until the program ends. Called once a command.
    pub fn listen() -> Result<Interrupt, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        let failed = |error: std::io::Error| Failure::Refused {
            kind: ErrorKind::Io,
            message: format!("Ctrl-C cannot be listened for: {error}"),
        };
        // In this order: the first Ctrl-C finds the flag down and raises it, the second finds it up.
        flag::register_conditional_shutdown(SIGINT, i32::from(INTERRUPTED), flag.clone()).map_err(failed)?;
        flag::register(SIGINT, flag.clone()).map_err(failed)?;
        Ok(Interrupt { flag })
    }

    /// Whether Ctrl-C was pressed and not taken.
    pub fn came(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// The same, and forgets it: the next Ctrl-C is a first one.
    pub fn take(&self) -> bool {
        self.flag.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_raises_the_flag_until_it_is_taken() {
        let interrupt = Interrupt::listen().unwrap();
        assert!(!interrupt.came());
        for _ in 0..2 {
            signal_hook::low_level::raise(SIGINT).unwrap();
            assert!(interrupt.clone().came());
            assert!(interrupt.take());
            assert!(!interrupt.came() && !interrupt.take());
        }
    }
}
