// SPDX-License-Identifier: Apache-2.0
//! Lines of the Azure traces: a date and two lengths, no identity of prefixes.

use super::error::{TraceProblem, short};
use super::number::Whole;
use super::request::{Blocks, Request};

/// The first line.
pub(super) const HEADER: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

/// Turns lines into requests; arrivals count from the first one.
#[derive(Debug, Default)]
pub(super) struct Parser {
    origin: Option<f64>,
}

impl Parser {
    /// The request of `line`.
    pub(super) fn request(&mut self, index: u64, line: &str) -> Result<Request, TraceProblem> {
        let [date, input, output] = fields(line)?;
        let at = unix_seconds(&date).ok_or_else(|| bad(format!("{date:?} is not a date")))?;
        let origin = *self.origin.get_or_insert(at);
        Ok(Request {
            index,
            arrival: (at - origin).max(0.0),
            input_tokens: whole(&input)?.tokens(HEADER[1])?,
            output_tokens: whole(&output)?.tokens(HEADER[2])?,
            session: None,
            blocks: Blocks::default(),
        })
    }
}

/// Whether `line` is the header.
pub(super) fn is_header(line: &str) -> bool {
    fields(line).is_ok_and(|fields| fields.iter().map(String::as_str).eq(HEADER))
}

fn bad(reason: String) -> TraceProblem {
    TraceProblem::BadRecord {
        format: "azure",
        reason: short(reason),
    }
}

fn whole(text: &str) -> Result<Whole, TraceProblem> {
    text.parse()
        .map(Whole)
        .map_err(|_| bad(format!("{text:?} is not a whole number")))
}

/// The three fields of a line.
fn fields(line: &str) -> Result<[String; 3], TraceProblem> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .trim(csv::Trim::All)
        .from_reader(line.as_bytes());
    let mut record = csv::StringRecord::new();
    reader
        .read_record(&mut record)
        .map_err(|error| bad(error.to_string()))?;
    if record.len() < HEADER.len() {
        return Err(TraceProblem::Truncated {
            reason: format!("{} of {} fields", record.len(), HEADER.len()),
        });
    }
    let fields: Vec<String> = record.iter().map(str::to_owned).collect();
    let count = fields.len();
    fields
        .try_into()
        .map_err(|_| bad(format!("{count} fields, not {}", HEADER.len())))
}

/// Seconds since 1970 of `2023-11-16 18:17:03.9799600`.
fn unix_seconds(text: &str) -> Option<f64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let [year, month, day] = split(date, '-')?;
    let [hour, minute, second] = split(time.trim_end_matches('Z'), ':')?;
    let part = |text: &str, most: i64| {
        text.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse::<i64>().ok())?
            .filter(|value| *value <= most)
    };
    let days = days_from_civil(
        part(year, 9999)?,
        part(month, 12).filter(|m| *m > 0)?,
        part(day, 31).filter(|d| *d > 0)?,
    );
    let whole = (days * 24 + part(hour, 23)?) * 60 + part(minute, 59)?;
    let second: f64 = second
        .bytes()
        .all(|b| b.is_ascii_digit() || b == b'.')
        .then(|| second.parse().ok())?
        .filter(|value| *value < 61.0)?;
    // Minutes since 1970 stay far below 2^53, so the conversion is exact.
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    Some(whole as f64 * 60.0 + second)
}

fn split(text: &str, separator: char) -> Option<[&str; 3]> {
    let parts: Vec<&str> = text.split(separator).collect();
    parts.try_into().ok()
}

/// Days since 1970-01-01 of the proleptic Gregorian calendar; years count from March, so that the
/// leap day is the last.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_become_seconds() {
        assert_eq!(unix_seconds("1970-01-01 00:00:00"), Some(0.0));
        assert_eq!(unix_seconds("2000-02-29 12:00:01.5"), Some(951_825_601.5));
        assert_eq!(unix_seconds("2023-11-16T18:17:03Z"), Some(1_700_158_623.0));
        for text in [
            "",
            "2023-11-16",
            "2023-13-01 00:00:00",
            "2023-01-01 -1:00:00",
            "a-b-c d:e:f",
        ] {
            assert_eq!(unix_seconds(text), None, "{text}");
        }
    }
}
