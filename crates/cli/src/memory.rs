//! Memory known first: the budget that a user sets, and the account that a command shows before it begins.

use apprentice_engine::{Account, Kind, Options, Workload, account, readable};
use apprentice_models::Model;

use crate::backend::RunArgs;
use crate::exit::Failure;

/// Bytes from text: `512M`, `4G`, `1.5GiB`, or a plain number. Units are powers of 1,024.
pub fn bytes(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_uppercase();
    let shift = match unit.trim_end_matches("IB").trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("expected a number of bytes, with K, M, G or T for powers of 1,024".to_owned()),
    };
    let wrong = || "expected a number of bytes, such as 4G or 512M".to_owned();
    let value = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(1 << shift).ok_or("more bytes than there are")?,
        Err(_) => {
            let value = number.parse::<f64>().map_err(|_| wrong())? * (1u64 << shift) as f64;
            if value >= u64::MAX as f64 { return Err(wrong()) } else { value as u64 }
        }
    };
    if value == 0 { Err("expected more than 0 bytes".to_owned()) } else { Ok(value) }
}

impl RunArgs {
    /// What an engine made for `options` would hold at `work`. Nothing is allocated.
    ///
    /// # Errors
    /// More than `--memory` permits, by name and number; a workload that the model cannot have.
    pub fn afford(&self, model: &Model, options: &Options, work: &Workload) -> Result<Account, Failure> {
        let account = account(model, options, work, self.backend(model)?.as_ref())?;
        self.within(&account)?;
        Ok(account)
    }

    /// Refuses an account that is over budget.
    pub fn within(&self, account: &Account) -> Result<(), Failure> {
        let needed = account.total();
        let Some(limit) = self.memory.filter(|limit| needed > *limit) else { return Ok(()) };
        let largest = Kind::ALL.into_iter().max_by_key(|kind| account.of(*kind)).unwrap_or(Kind::Weights);
        let most = format!("most of it for {} ({})", largest.name(), readable(account.of(largest)));
        Err(Failure::limit(format!(
            "--memory: {needed} bytes are needed, at most {limit} are permitted; {most}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn units_are_powers_of_1024() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(bytes(text).ok(), expected, "{text:?}");
        check("4G", Some(4 << 30));
        check("512M", Some(512 << 20));
        check("1.5GiB", Some(3 << 29));
        check("123", Some(123));
        check("64kb", Some(64 << 10));
        check("2 T", Some(2 << 40));
        for wrong in ["", "0", "-1", "G", "1e3", "4X", "18446744073709551616", "99999999T", "1.2.3", "nan"] {
            check(wrong, None);
        }
    }
}
