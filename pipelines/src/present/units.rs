//! Numbers as people read them.
//!
//! ```
//! use forebay::present::units;
//!
//! assert_eq!(units::bytes(64_000_000), "64.0 MB");
//! assert_eq!(units::short(12_300), "12.3k");
//! assert_eq!(units::rows(12_345), "12,345 rows");
//! assert_eq!(units::parse_bytes("4GiB"), Ok(4 << 30));
//! ```

use std::time::Duration;

/// `999 B`, `1.5 kB`, `64.0 MB`: powers of 1000.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes, &["B", "kB", "MB", "GB", "TB", "PB", "EB"], " ")
}

/// `999`, `12.3k`, `4.5M`: for narrow places.
pub fn short(count: u64) -> String {
    scaled(count, &["", "k", "M", "G", "T", "P", "E"], "")
}

fn scaled(number: u64, units: &[&str], gap: &str) -> String {
    let mut unit = 0;
    let mut scale = 1_u64;
    // A number that would round up to 1000 takes the next unit.
    while unit + 1 < units.len() && number as f64 / scale as f64 >= 999.95 {
        unit += 1;
        scale *= 1000;
    }
    match unit {
        0 => format!("{number}{gap}{}", units[0]).trim_end().to_owned(),
        _ => format!("{:.1}{gap}{}", number as f64 / scale as f64, units[unit]),
    }
}

/// `1 row`, `12,345 rows`.
pub fn rows(rows: u64) -> String {
    counted(rows, "row")
}

/// `1 span`, `1,200 spans`: the regular plural.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = match count {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{plural}", grouped(count))
}

/// `12,345,678`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `0.8 ms`, `12 ms`, `3.2 s`, `4 min 05 s`, `2 h 03 min`, `1 d 04 h`.
pub fn duration(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1e3;
    let seconds = duration.as_secs_f64().round() as u64;
    match seconds {
        _ if millis < 9.95 => format!("{millis:.1} ms"),
        _ if millis < 999.5 => format!("{millis:.0} ms"),
        _ if millis < 59_950.0 => format!("{:.1} s", millis / 1e3),
        0..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A length of time that is known to the second at best: `under 1 s`, `3.0 s`, `4 min 05 s`.
pub fn seconds(time: Duration) -> String {
    match Duration::from_secs_f64(time.as_secs_f64().round()) {
        Duration::ZERO => "under 1 s".to_owned(),
        seconds => duration(seconds),
    }
}

/// A length of time as people write it: `30d`, `12h`, `90m`, `2h30m`, `2w`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    forebay_model::parse_duration(text)
        .ok_or_else(|| format!("`{text}` is not a length of time; write 30d, 12h, 90m or 45s"))
}

/// A size as people write it: `512MiB`, `4GiB`, `1.5 GB`, or plain bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; write 512MiB or 4GiB");
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit: f64 = match text[number.len()..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kib" | "k" => 1024.0,
        "mib" | "m" => 1048576.0,
        "gib" | "g" => 1073741824.0,
        "tib" | "t" => 1099511627776.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    if number.is_finite() && number >= 0.0 {
        Ok((number * unit) as u64)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_well() {
        assert_eq!(
            [0, 999, 1000, 999_949, 999_950].map(bytes),
            ["0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB"]
        );
        assert_eq!(bytes(u64::MAX), "18.4 EB");
        assert_eq!([7, 12_345, 999_999].map(short), ["7", "12.3k", "1.0M"]);
        assert_eq!(
            [0, 1, 12_345, 1_000_000].map(rows),
            ["0 rows", "1 row", "12,345 rows", "1,000,000 rows"]
        );
        let times = [0.0004, 0.25, 3.21, 59.97, 245.0, 7380.0, 100_800.0];
        let texts = [
            "0.4 ms",
            "250 ms",
            "3.2 s",
            "1 min 00 s",
            "4 min 05 s",
            "2 h 03 min",
            "1 d 04 h",
        ];
        let read = |text: &str| parse_duration(text).ok().map(|time| time.as_secs());
        assert_eq!(
            ["30d", "2 h", "0s", "1.5h"].map(read),
            [Some(2_592_000), Some(7200), Some(0), Some(5400)]
        );
        assert_eq!(
            [
                "30",
                "d",
                "-1d",
                "1mo",
                "99999999999999999999d",
                "9999999999999999999w"
            ]
            .map(read),
            [None; 6]
        );
        assert_eq!(
            times.map(|time| duration(Duration::from_secs_f64(time))),
            texts
        );
    }
}
