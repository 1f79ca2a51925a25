//! Figures as people read them.

use plimsoll::Bytes;

/// A limit that can be typed: whole KiB, rounded up so that the number printed works, in MiB where that is exact enough.
pub fn kib_up(bytes: Bytes) -> String {
    format!("{}KiB", bytes.0.div_ceil(1024))
}

/// MiB with one digit: `509.3`.
pub fn mib(bytes: u64) -> String {
    grouped_tenths(bytes as f64 / (1 << 20) as f64)
}

fn grouped_tenths(value: f64) -> String {
    let tenths = (value * 10.0).round() as u64;
    format!("{}.{}", grouped(tenths / 10), tenths % 10)
}

/// A whole number with commas: `46,765,056`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time with three digits or so: `412 us`, `8.31 ms`, `2.07 s`, `2:07 min`.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 0.1 => format!("{:.2} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 60.0 => format!("{s:.2} s"),
        s => format!("{} min", clock(s)),
    }
}

/// Minutes and seconds: `2:07`; with hours `1:02:07`.
pub fn clock(s: f64) -> String {
    let s = s as u64;
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        h => format!("{h}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

/// A count in short: `11.2 M`.
pub fn count(n: u64) -> String {
    match n as f64 {
        x if x < 1e4 => n.to_string(),
        x if x < 1e6 => format!("{:.1} k", x / 1e3),
        x if x < 1e9 => format!("{:.1} M", x / 1e6),
        x => format!("{:.1} G", x / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        assert_eq!(grouped(46_765_056), "46,765,056");
        assert_eq!(grouped(100), "100");
        assert_eq!(mib(1_481_218_458), "1,412.6");
        assert_eq!(seconds(0.000_412), "412 us");
        assert_eq!(seconds(127.0), "2:07 min");
        assert_eq!(count(11_173_962), "11.2 M");
        assert_eq!(kib_up(Bytes(1025)), "2KiB");
    }
}
