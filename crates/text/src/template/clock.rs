//! The date as a template asks for it: the directives of `strftime` that templates use, in UTC.

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// `format` with its directives replaced; one that is not known stays as it is.
pub(super) fn format_utc(unix_seconds: u64, format: &str) -> String {
    let days = unix_seconds / 86_400;
    let (year, month, day) = date(days);
    let (hour, minute, second) = (unix_seconds / 3600 % 24, unix_seconds / 60 % 60, unix_seconds % 60);
    let hour12 = (hour + 11) % 12 + 1;
    let month_name = MONTHS[(month - 1) as usize];
    let day_name = DAYS[((days + 4) % 7) as usize]; // day 0 was a Thursday
    let day_of_year = days - days_before(year) + 1;

    let mut text = String::with_capacity(format.len() + 16);
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let unpadded = rest.starts_with('-');
        let mut characters = rest[usize::from(unpadded)..].chars();
        let Some(directive) = characters.next() else {
            text.push('%');
            continue;
        };
        let number = |value: u64, width: usize| {
            if unpadded { value.to_string() } else { format!("{value:0width$}") }
        };
        text.push_str(&match directive {
            'Y' => number(year, 4),
            'y' => number(year % 100, 2),
            'm' => number(month, 2),
            'd' => number(day, 2),
            'e' if !unpadded => format!("{day:2}"),
            'j' => number(day_of_year, 3),
            'H' => number(hour, 2),
            'I' => number(hour12, 2),
            'M' => number(minute, 2),
            'S' => number(second, 2),
            'B' => month_name.to_string(),
            'b' | 'h' => month_name[..3].to_string(),
            'A' => day_name.to_string(),
            'a' => day_name[..3].to_string(),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_string(),
            'F' => format!("{year:04}-{month:02}-{day:02}"),
            'T' => format!("{hour:02}:{minute:02}:{second:02}"),
            'Z' => "UTC".to_string(),
            'z' => "+0000".to_string(),
            '%' => "%".to_string(),
            _ => {
                text.push('%');
                continue;
            }
        });
        rest = characters.as_str();
    }
    text + rest
}

/// Year, month and day of a day counted from 1970-01-01, by the calendar of 146,097 days in 400 years.
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the leap day is the last of its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + carry, month, day)
}

/// Days from 1970-01-01 to the first of January of `year`.
fn days_before(year: u64) -> u64 {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    365 * (year - 1970) + leaps(year - 1) - leaps(1969)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(unix_seconds: u64, format: &str, expected: &str) {
        assert_eq!(format_utc(unix_seconds, format), expected, "{unix_seconds} {format:?}");
    }

    #[test]
    fn dates() {
        check(0, "%A %d %B %Y %H:%M:%S %j", "Thursday 01 January 1970 00:00:00 001");
        check(951_782_400, "%d %b %Y, %a %j", "29 Feb 2000, Tue 060");
        check(1_735_689_599, "%F %T %I %p %j %y", "2024-12-31 23:59:59 11 PM 366 24");
        check(1_740_787_200, "%-d.%-m.%Y %e", "1.3.2025  1");
        check(4_102_444_800, "%F", "2100-01-01");
    }

    #[test]
    fn odd_formats() {
        check(0, "", "");
        check(0, "100%", "100%");
        check(0, "%% %Q %-", "% %Q %-");
        check(0, "é%dü", "é01ü");
        check(u64::MAX, "%Z", "UTC");
    }
}
