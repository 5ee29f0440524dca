// SPDX-License-Identifier: Apache-2.0
//! What the machine says of its memory. Every figure is optional: platforms differ.

use std::fs;

const KIB: u64 = 1024;

/// What transparent huge pages are set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransparentMode {
    /// For every mapping.
    Always,
    /// For mappings that ask.
    Madvise,
    /// For none.
    Never,
}

/// Figures of the machine's memory at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// Bytes of memory in all.
    pub total: Option<u64>,
    /// Bytes that can be had without swapping.
    pub available: Option<u64>,
    /// Bytes that the control group still grants; `None` where it sets no limit.
    pub group_available: Option<u64>,
    /// Explicit huge pages in all.
    pub huge_pages_total: Option<u64>,
    /// Explicit huge pages that nobody has taken or reserved.
    pub huge_pages_free: Option<u64>,
    /// Bytes of an explicit huge page.
    pub huge_page_bytes: Option<u64>,
    /// What transparent huge pages are set to.
    pub transparent: Option<TransparentMode>,
    /// NUMA nodes that are online.
    pub numa_nodes: Option<Vec<u32>>,
}

impl HostMemory {
    /// Reads the figures of this machine; what cannot be read is `None`.
    #[must_use]
    pub fn probe() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        let mut memory = read("/proc/meminfo").map_or_else(Self::default, |t| Self::parse(&t));
        memory.transparent = read("/sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|text| parse_transparent(&text));
        memory.numa_nodes =
            read("/sys/devices/system/node/online").and_then(|text| parse_list(&text));
        memory.group_available = group_available(
            read("/sys/fs/cgroup/memory.max"),
            read("/sys/fs/cgroup/memory.current"),
            read("/sys/fs/cgroup/memory.stat"),
        );
        memory
    }

    /// Bytes that a new pool could take: the smaller of the machine's and the group's figure.
    #[must_use]
    pub fn spare(&self) -> Option<u64> {
        match (self.available, self.group_available) {
            (Some(machine), Some(group)) => Some(machine.min(group)),
            (machine, group) => machine.or(group),
        }
    }

    /// Bytes of explicit huge pages that are free; 0 where unknown.
    #[must_use]
    pub fn huge_free_bytes(&self) -> u64 {
        let pages = self.huge_pages_free.unwrap_or(0);
        pages.saturating_mul(self.huge_page_bytes.unwrap_or(0))
    }

    /// The figures of a text in the form of `/proc/meminfo`.
    fn parse(text: &str) -> Self {
        let bytes = |name| field(text, name).map(|kib| kib.saturating_mul(KIB));
        let reserved = field(text, "HugePages_Rsvd:").unwrap_or(0);
        Self {
            total: bytes("MemTotal:"),
            available: bytes("MemAvailable:"),
            huge_pages_total: field(text, "HugePages_Total:"),
            huge_pages_free: field(text, "HugePages_Free:").map(|n| n.saturating_sub(reserved)),
            huge_page_bytes: bytes("Hugepagesize:"),
            ..Self::default()
        }
    }
}

/// The number behind `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn parse_transparent(text: &str) -> Option<TransparentMode> {
    let (_, rest) = text.split_once('[')?;
    match rest.split_once(']')?.0 {
        "always" => Some(TransparentMode::Always),
        "madvise" => Some(TransparentMode::Madvise),
        "never" => Some(TransparentMode::Never),
        _ => None,
    }
}

/// Limit less use; page cache that the kernel would drop does not count as used.
fn group_available(
    max: Option<String>,
    current: Option<String>,
    stat: Option<String>,
) -> Option<u64> {
    let max: u64 = max?.trim().parse().ok()?;
    let current: u64 = current?.trim().parse().ok()?;
    let cache = stat.and_then(|text| field(&text, "inactive_file "));
    Some(max.saturating_sub(current.saturating_sub(cache.unwrap_or(0))))
}

/// The numbers of a list such as `0-3,8`, the form in which the kernel names nodes and CPUs.
pub(crate) fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(numbers)
}

/// Bytes of huge pages, transparent and explicit, under the addresses `[start, end)`, from a text
/// in the form of `/proc/self/smaps`.
///
/// The kernel may count a neighbouring mapping with ours, so the sum is capped at the range.
pub(crate) fn huge_bytes_of(smaps: &str, start: u64, end: u64) -> Option<u64> {
    let mut inside = false;
    let mut found = None;
    for line in smaps.lines() {
        if let Some((from, to)) = address_range(line) {
            inside = from < end && start < to;
        } else if inside {
            for name in ["AnonHugePages:", "Private_Hugetlb:", "Shared_Hugetlb:"] {
                let kib = field(line, name).unwrap_or(0);
                found = Some(found.unwrap_or(0) + kib.saturating_mul(KIB));
            }
        }
    }
    found.map(|bytes: u64| bytes.min(end.saturating_sub(start)))
}

fn address_range(line: &str) -> Option<(u64, u64)> {
    let (from, rest) = line.split_once('-')?;
    let (to, _) = rest.split_once(' ')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(from)?, number(to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       24684084 kB\nMemAvailable:   1000 kB\n\
        HugePages_Total:      10\nHugePages_Free:        6\nHugePages_Rsvd:        2\n\
        Hugepagesize:       2048 kB\n";

    #[test]
    fn meminfo_gives_bytes_and_unreserved_huge_pages() {
        let memory = HostMemory::parse(MEMINFO);
        assert_eq!(memory.available, Some(1_024_000));
        assert_eq!(memory.huge_pages_free, Some(4));
        assert_eq!(memory.huge_free_bytes(), 4 << 21);
        assert_eq!(HostMemory::parse("nonsense"), HostMemory::default());
    }

    #[test]
    fn the_group_limit_counts_where_it_is_tighter() {
        let text = |s: &str| Some(s.to_owned());
        let group = group_available(text("5000\n"), text("4000"), text("inactive_file 600\n"));
        assert_eq!(group, Some(1600));
        assert_eq!(group_available(text("max\n"), text("4000"), None), None);
        let memory = HostMemory {
            available: Some(9000),
            group_available: group,
            ..HostMemory::default()
        };
        assert_eq!(memory.spare(), Some(1600));
    }

    #[test]
    fn lists_and_modes_are_read() {
        assert_eq!(parse_list("0-2,7\n"), Some(vec![0, 1, 2, 7]));
        assert_eq!(parse_list("x"), None);
        let mode = parse_transparent("always [madvise] never");
        assert_eq!(mode, Some(TransparentMode::Madvise));
        assert_eq!(parse_transparent("none"), None);
    }

    #[test]
    fn smaps_counts_only_what_overlaps_and_never_more_than_the_range() {
        let text = "1000-3000 rw-p 00000000 00:00 0 \nAnonHugePages:         4 kB\n\
            Private_Hugetlb:       1 kB\n9000-a000 rw-p 00000000 00:00 0 \n\
            AnonHugePages:         99 kB\n";
        assert_eq!(huge_bytes_of(text, 0x1000, 0x3000), Some(5 * 1024));
        assert_eq!(huge_bytes_of(text, 0x1000, 0x1100), Some(0x100));
        assert_eq!(huge_bytes_of(text, 0x5000, 0x6000), None);
    }

    #[test]
    fn the_probe_of_this_machine_is_consistent() {
        let memory = HostMemory::probe();
        if let (Some(total), Some(available)) = (memory.total, memory.available) {
            assert!(available <= total);
        }
    }
}
