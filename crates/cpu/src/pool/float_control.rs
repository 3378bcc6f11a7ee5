//! The floating-point control register: nearest even, denormals kept, no traps, for as long as a worker is in a run.
//!
//! A host program may have set it otherwise for its own thread ("flush to zero"), and results would depend on that.

/// The default control, until dropped.
pub struct DefaultControl {
    before: Control,
}

impl DefaultControl {
    /// Sets the default and remembers what was there.
    pub fn enter() -> Self {
        let before = read();
        if before != DEFAULT {
            write(DEFAULT);
        }
        Self { before }
    }
}

impl Drop for DefaultControl {
    fn drop(&mut self) {
        if read() != self.before {
            write(self.before);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod register {
    use std::arch::asm;

    /// MXCSR.
    pub type Control = u32;
    /// All exceptions masked, nearest even, neither flush-to-zero nor denormals-are-zero.
    pub const DEFAULT: Control = 0x1f80;
    /// Sticky exception flags: they change with every operation and say nothing about the mode.
    const FLAGS: Control = 0x3f;

    pub fn read() -> Control {
        let mut value: Control = 0;
        // SAFETY: stores the register at an address that is ours.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack, preserves_flags)) };
        value & !FLAGS
    }

    pub fn write(value: Control) {
        // SAFETY: a value that was read from the register or its documented default, with no reserved bit.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod register {
    use std::arch::asm;

    /// FPCR.
    pub type Control = u64;
    /// Nearest even, no flushing, no traps.
    pub const DEFAULT: Control = 0;

    pub fn read() -> Control {
        let value: Control;
        // SAFETY: reads a register that user code may read.
        unsafe { asm!("mrs {}, fpcr", out(reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }

    pub fn write(value: Control) {
        // SAFETY: a value that was read from the register or its default.
        unsafe { asm!("msr fpcr, {}", in(reg) value, options(nomem, nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    /// Other machines start threads in their default mode, and nothing here changes it.
    pub type Control = ();
    pub const DEFAULT: Control = ();
    pub fn read() -> Control {}
    pub fn write((): Control) {}
}

use register::{Control, DEFAULT, read, write};

#[cfg(all(test, target_arch = "x86_64"))]
pub use register::{read as read_control, write as write_control};
