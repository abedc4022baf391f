//! Numbers, octets and times as people read them.

/// `1 234 567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// `840 B`, `1.7 kB`: decimal, like the rates of links.
pub fn bytes(count: u64) -> String {
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64;
    let mut unit = "B";
    for larger in ["kB", "MB", "GB", "TB", "PB", "EB"] {
        if value < 999.95 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    format!("{value:.1} {unit}")
}

/// `10m 3s`: the two largest units.
pub fn span(seconds: u64) -> String {
    let (days, hours, minutes, rest) =
        (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, _) => format!("{minutes}m {rest}s"),
        (0, _, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
        assert_eq!([999, 1000, 999_949, 999_950].map(bytes), ["999 B", "1.0 kB", "999.9 kB", "1.0 MB"]);
        assert_eq!(bytes(u64::MAX), "18.4 EB");
        assert_eq!([59, 603, 7260, 90_000].map(span), ["59s", "10m 3s", "2h 1m", "1d 1h"]);
    }
}
