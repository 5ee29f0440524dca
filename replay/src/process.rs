// SPDX-License-Identifier: Apache-2.0
//! What the platform says of this process.

/// The most memory that this process had resident, where `/proc` tells it.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn parse(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_read() {
        assert_eq!(
            parse("Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t 1 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(parse("Name:\tx\n"), None);
    }
}
