//! Numbers of bytes: [`Bytes`], and [`Limit`], which is what a user can write for one.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use std::str::FromStr;

/// A number of bytes.
///
/// It prints in the largest binary unit that it fills: whole when it is whole, else with one digit (two
/// from GiB on). `{:#}` adds the exact count. Sums and products that overflow, and differences below
/// zero, panic in every build: a wrong count of bytes is worse than none.
///
/// ```
/// use plimsoll_budget::Bytes;
/// assert_eq!(Bytes::mib(64).to_string(), "64 MiB");
/// assert_eq!(format!("{:#}", Bytes(196_504_576)), "187.4 MiB (196,504,576 bytes)");
/// assert_eq!("512M".parse(), Ok(Bytes::mib(512)));
/// assert_eq!("2GB".parse(), Ok(Bytes(2_000_000_000)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes at all.
    pub const ZERO: Bytes = Bytes(0);
    /// More than any machine has.
    pub const MAX: Bytes = Bytes(u64::MAX);

    /// `n` times 1024 bytes.
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n * (1 << 10))
    }

    /// `n` times 1024 KiB.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n * (1 << 20))
    }

    /// `n` times 1024 MiB.
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n * (1 << 30))
    }

    /// The bytes of `n` values of type `T`.
    pub const fn of<T>(n: usize) -> Bytes {
        Bytes(n as u64 * size_of::<T>() as u64)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as an index type.
    ///
    /// # Panics
    /// Where `usize` is too small for it, which no 64-bit machine knows.
    pub fn to_usize(self) -> usize {
        usize::try_from(self.0).expect("a number of bytes fits the address space")
    }

    /// The sum, or [`Bytes::MAX`] where it would overflow.
    pub const fn saturating_add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }

    /// The difference, or zero where it would be negative.
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// The smallest multiple of `unit` that is not less; for figures that a user is told to set.
    ///
    /// ```
    /// use plimsoll_budget::Bytes;
    /// assert_eq!(Bytes(196_504_576).round_up(Bytes::mib(1)), Bytes::mib(188));
    /// ```
    pub const fn round_up(self, unit: Bytes) -> Bytes {
        Bytes(self.0.div_ceil(unit.0) * unit.0)
    }

    /// This many percent of it, rounded down.
    pub fn percent(self, percent: f64) -> Bytes {
        Bytes((self.0 as f64 * (percent / 100.0)) as u64)
    }
}

impl From<u64> for Bytes {
    fn from(n: u64) -> Bytes {
        Bytes(n)
    }
}

impl From<usize> for Bytes {
    fn from(n: usize) -> Bytes {
        Bytes(n as u64)
    }
}

impl Add for Bytes {
    type Output = Bytes;
    #[track_caller]
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.checked_add(other.0).expect("a sum of bytes overflowed"))
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    #[track_caller]
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.checked_sub(other.0).expect("a difference of bytes is negative"))
    }
}

impl Mul<u64> for Bytes {
    type Output = Bytes;
    #[track_caller]
    fn mul(self, times: u64) -> Bytes {
        Bytes(self.0.checked_mul(times).expect("a product of bytes overflowed"))
    }
}

impl AddAssign for Bytes {
    #[track_caller]
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl SubAssign for Bytes {
    #[track_caller]
    fn sub_assign(&mut self, other: Bytes) {
        *self = *self - other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

/// Binary units with their exponents of two, largest first.
const BINARY: [(&str, u32); 6] = [("EiB", 60), ("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = in_units(self.0, f.precision());
        if f.alternate() && self.0 >= 1024 {
            text += &format!(" ({} bytes)", with_commas(self.0));
        }
        // Pads to a width as for a number, and leaves the precision alone, which `pad` would cut by.
        f.pad_integral(true, "", &text)
    }
}

fn in_units(n: u64, precision: Option<usize>) -> String {
    for (at, &(unit, exponent)) in BINARY.iter().enumerate() {
        let whole = n.is_multiple_of(1 << exponent);
        let digits = precision.unwrap_or(if whole { 0 } else { 1 + usize::from(exponent >= 30) });
        let number = format!("{:.digits$}", n as f64 / (1u64 << exponent) as f64);
        // What rounds up to a whole larger unit is printed in that unit: 1.00 GiB, never 1024.0 MiB.
        let fills = n >= 1 << exponent || (at + 1 < BINARY.len() && rounds_up(n, BINARY[at + 1].1));
        if fills {
            return format!("{number} {unit}");
        }
    }
    format!("{n} B")
}

/// Whether `n` in the unit of this exponent, with one digit, prints as 1024 or more.
fn rounds_up(n: u64, exponent: u32) -> bool {
    n as f64 / (1u64 << exponent) as f64 >= 1024.0 - 0.05
}

fn with_commas(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A text that does not name a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a size: {reason} (write 512MiB, 2GB, 512M for MiB, or plain bytes{more})")]
pub struct ParseBytesError {
    text: String,
    reason: &'static str,
    /// What else would have been understood here.
    more: &'static str,
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    /// Reads `512MiB`, `1.5 GiB`, `2GB` (powers of ten), `512M` (= MiB), `4096B` and `4096`; case does not count.
    fn from_str(text: &str) -> Result<Bytes, ParseBytesError> {
        parse(text.trim()).map_err(|reason| ParseBytesError { text: text.to_string(), reason, more: "" })
    }
}

fn parse(text: &str) -> Result<Bytes, &'static str> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = unit_size(unit.trim_start()).ok_or("the unit is not known")?;
    if number.is_empty() {
        return Err("it does not begin with a number");
    }
    if fraction.contains('.') || whole.len() + fraction.len() == 0 {
        return Err("the number is malformed");
    }
    if scale == 1 && !fraction.is_empty() {
        return Err("bytes come in whole numbers");
    }
    // Digits past the ninth of a fraction are below one byte up to GiB, and no one writes them above.
    let fraction = &fraction[..fraction.len().min(9)];
    let digits: u128 = [whole, fraction].concat().parse().map_err(|_| "the number is too large")?;
    let bytes = digits.checked_mul(scale as u128).ok_or("the number is too large")? / 10u128.pow(fraction.len() as u32);
    u64::try_from(bytes).map(Bytes).map_err(|_| "the number is too large")
}

fn unit_size(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let power = |letter: char| " kmgtpe".find(letter).map(|at| at as u32);
    let mut letters = unit.chars();
    match (letters.next(), letters.as_str()) {
        (None, _) | (Some('b'), "") => Some(1),
        (Some(letter), "" | "ib") => power(letter).map(|p| 1 << (10 * p)),
        (Some(letter), "b") => power(letter).map(|p| 1000u64.pow(p)),
        _ => None,
    }
}

/// A memory limit as a user writes it: bytes, a share of what the host allows, or none.
///
/// ```
/// use plimsoll_budget::{Bytes, Limit};
/// assert_eq!("512MiB".parse(), Ok(Limit::Bytes(Bytes::mib(512))));
/// assert_eq!("50%".parse(), Ok(Limit::Percent(50.0)));
/// assert_eq!("50%".parse::<Limit>()?.resolve(Some(Bytes::gib(4))), Some(Bytes::gib(2)));
/// assert_eq!("none".parse(), Ok(Limit::None));
/// # Ok::<(), plimsoll_budget::ParseBytesError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// This many bytes.
    Bytes(Bytes),
    /// This many percent, over 0 and up to 100, of the lowest limit that the host sets.
    Percent(f64),
    /// No limit.
    None,
}

impl Limit {
    /// The bytes meant on a host that allows `host` bytes (`None`: it sets no limit); `None` is no limit.
    pub fn resolve(self, host: Option<Bytes>) -> Option<Bytes> {
        match self {
            Limit::Bytes(bytes) => Some(bytes),
            Limit::Percent(percent) => host.map(|bytes| bytes.percent(percent)),
            Limit::None => None,
        }
    }
}

impl From<Bytes> for Limit {
    fn from(bytes: Bytes) -> Limit {
        Limit::Bytes(bytes)
    }
}

impl TryFrom<&str> for Limit {
    type Error = ParseBytesError;

    fn try_from(text: &str) -> Result<Limit, ParseBytesError> {
        text.parse()
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Bytes(bytes) => bytes.fmt(f),
            Limit::Percent(percent) => write!(f, "{percent}%"),
            Limit::None => f.pad("none"),
        }
    }
}

impl FromStr for Limit {
    type Err = ParseBytesError;

    /// Reads what [`Bytes`] reads, a percentage such as `50%`, and `none`.
    fn from_str(text: &str) -> Result<Limit, ParseBytesError> {
        let error = |reason| ParseBytesError { text: text.to_string(), reason, more: ", 50%, none" };
        let trimmed = text.trim();
        if ["none", "unlimited"].iter().any(|word| trimmed.eq_ignore_ascii_case(word)) {
            return Ok(Limit::None);
        }
        let Some(number) = trimmed.strip_suffix('%') else {
            return parse(trimmed).map(Limit::Bytes).map_err(error);
        };
        match number.trim_end().parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Limit::Percent(percent)),
            Ok(_) => Err(error("a percentage lies over 0 and up to 100")),
            Err(_) => Err(error("the percentage is not a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_prints(bytes: u64, expected: &str) {
        assert_eq!(Bytes(bytes).to_string(), expected);
    }

    #[test]
    fn prints_in_the_largest_unit_it_fills() {
        check_prints(0, "0 B");
        check_prints(1023, "1023 B");
        check_prints(1024, "1 KiB");
        check_prints(1536, "1.5 KiB");
        check_prints(196_504_576, "187.4 MiB");
        check_prints(512 << 20, "512 MiB");
        check_prints(2 << 30, "2 GiB");
        check_prints(1_814_638_592, "1.69 GiB");
        check_prints(3 << 40, "3 TiB");
        check_prints(u64::MAX, "16.00 EiB");
    }

    #[test]
    fn never_prints_1024_of_a_unit() {
        check_prints((1 << 30) - 1, "1.00 GiB");
        check_prints((1 << 20) - 1, "1.0 MiB");
        check_prints(1023 << 20, "1023 MiB");
        for near in (1u64 << 30) - (1 << 20)..(1 << 30) {
            if near.is_multiple_of(9973) {
                assert!(!Bytes(near).to_string().starts_with("1024"), "{near}");
            }
        }
    }

    #[test]
    fn prints_with_width_precision_and_exact_count() {
        assert_eq!(format!("{:>10}", Bytes::mib(64)), "    64 MiB");
        assert_eq!(format!("{:<10}|", Bytes::mib(64)), "64 MiB    |");
        assert_eq!(format!("{:.3}", Bytes(196_504_576)), "187.401 MiB");
        assert_eq!(format!("{:#}", Bytes(1024)), "1 KiB (1,024 bytes)");
        assert_eq!(format!("{:#}", Bytes(12)), "12 B");
    }

    #[track_caller]
    fn check_reads(text: &str, expected: u64) {
        assert_eq!(text.parse(), Ok(Bytes(expected)), "{text}");
    }

    #[test]
    fn reads_sizes() {
        check_reads("512MiB", 512 << 20);
        check_reads("512M", 512 << 20);
        check_reads("512m", 512 << 20);
        check_reads("512MB", 512_000_000);
        check_reads("2GB", 2_000_000_000);
        check_reads(" 1.5 GiB ", 3 << 29);
        check_reads("0.1GiB", 107_374_182);
        check_reads(".5K", 512);
        check_reads("1.K", 1024);
        check_reads("4096", 4096);
        check_reads("4096B", 4096);
        check_reads("0", 0);
        check_reads("16EB", 16_000_000_000_000_000_000);
        check_reads("18446744073709551615", u64::MAX);
    }

    #[track_caller]
    fn check_rejects(text: &str, reason: &str) {
        let error = text.parse::<Bytes>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }

    #[test]
    fn rejects_what_is_no_size() {
        check_rejects("", "does not begin with a number");
        check_rejects("MiB", "does not begin with a number");
        check_rejects("-1", "unit is not known");
        check_rejects("1e9", "unit is not known");
        check_rejects("5 QiB", "unit is not known");
        check_rejects("5 MiBs", "unit is not known");
        check_rejects("1.2.3M", "malformed");
        check_rejects(".M", "malformed");
        check_rejects("1.5", "whole numbers");
        check_rejects("16EiB", "too large");
        check_rejects("18446744073709551616", "too large");
        check_rejects(&"9".repeat(60), "too large");
        check_rejects("50%", "unit is not known");
        check_rejects("5 \u{fc}", "unit is not known");
    }

    #[test]
    fn what_is_printed_whole_reads_back() {
        for bytes in [0, 1, 1023, 1024, 64 << 20, 3 << 30, 7 << 50] {
            check_reads(&Bytes(bytes).to_string(), bytes);
        }
    }

    #[test]
    fn reads_limits() {
        assert_eq!("12.5 %".parse(), Ok(Limit::Percent(12.5)));
        assert_eq!("1G".parse(), Ok(Limit::Bytes(Bytes::gib(1))));
        assert_eq!("Unlimited".parse(), Ok(Limit::None));
        for text in ["0%", "101%", "-5%", "nan%", "x%", "%", "5 Q"] {
            let error = text.parse::<Limit>().unwrap_err().to_string();
            assert!(error.ends_with("or plain bytes, 50%, none)"), "{error}");
        }
        assert_eq!(Limit::Percent(50.0).resolve(None), None);
        assert_eq!(Limit::Percent(50.0).to_string(), "50%");
    }

    #[test]
    #[should_panic(expected = "a sum of bytes overflowed")]
    fn sums_do_not_wrap() {
        let _ = Bytes::MAX + Bytes(1);
    }
}
